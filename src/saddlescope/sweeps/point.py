"""One point of a sweep: its stored run, its state, and its execution on any machine."""

import dataclasses
import json
import threading
import traceback
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError, StorageError
from saddlescope._shared.json_text import parse_json
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.reproduction import entry as entries
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.own_code import described
from saddlescope.reproduction.runner import identity, json_values, stamped_run

_one_at_a_time = threading.Lock()  # entries may draw from generators that all threads of a process share


class State(StrEnum):
    """State of a point."""

    FINISHED = "finished"
    FAILED = "failed"
    MISSING = "missing"


@dataclasses.dataclass(frozen=True, repr=False)
class Point(ReprMixin):
    """One point: the parameters of one run, and its files, which all sweeps with this point share.

    Attributes:
        out: the folder of sweeps, `OUT/sweeps`.
        entry: name of the entry.
        params: the parameters of the run.
        size: of the parameters that are not set by hand.
        settings: the parameters set by hand, as typed.
        label: the swept values in words, for messages.
        data_sets: checksums of the data sets that the run reads, by name.
    """

    out: Path
    entry: str
    params: Any
    size: str
    settings: Mapping[str, str]
    label: str
    data_sets: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @cached_property
    def run_folder(self) -> store.RunFolder:
        """Files of the run: `OUT/sweeps/<paper>/<entry>/points/<digest>.nc`."""
        return store.RunFolder(self.out, self.entry, identity(json_values(self.params), self.data_sets), part="points")

    @property
    def file(self) -> Path:
        """File of the stored run."""
        return self.run_folder.file

    @property
    def _failure(self) -> Path:
        return self.file.with_suffix(".failed.json")

    @property
    def state(self) -> State:
        """State, by the stored files."""
        if self.file.exists():
            return State.FINISHED
        return State.FAILED if self._failure.exists() else State.MISSING

    @property
    def error(self) -> str:
        """Reason why the point failed, in one sentence; empty if it did not."""
        if self.state is not State.FAILED:
            return ""
        try:
            return str(parse_json(self._failure.read_text("ascii"))["error"])
        except (OSError, ValueError, KeyError, TypeError):
            return "It failed, and the record of its error is damaged."

    def fail(self, error: str, details: str = "") -> None:
        """Store the error of a failed point; the next call skips the point unless it retries failed ones."""
        record = {"point": self.label, "entry": self.entry, "settings": dict(self.settings), "error": error}
        text = json.dumps(record | {"traceback": details}, indent=1)
        store.write_bytes(text.encode(), self._failure)

    def forget_failure(self) -> None:
        """Remove the record of a failure, so that the next call retries the point."""
        self._failure.unlink(missing_ok=True)

    def store_run(self, run: xr.Dataset | bytes) -> None:
        """Store the point's run, with its provenance, or the content of its file from another machine."""
        if isinstance(run, bytes):
            store.write_bytes(run, self.file)
        else:
            store.write(run, self.file)
        self.forget_failure()

    def forget(self) -> None:
        """Remove the stored run, so that the next call reruns it."""
        self.file.unlink(missing_ok=True)
        self.forget_failure()

    def run(self, data: Path | None = None, report: Report = silent) -> None:
        """Run the point and store the run or its error; do nothing if one of them is stored.

        A killed point resumes. If another process is running the point, wait for it.

        Raises:
            StorageError: the folder cannot be written or the disk is full; the point does not count as failed.
        """
        if self.state is not State.MISSING:
            return
        with _one_at_a_time, self.run_folder.lock(patience=-1.0) as scratch:
            if self.state is State.MISSING:
                self._run(RunContext(scratch, report, data, data_sets=self.data_sets))
            self.run_folder.clear()

    def _run(self, context: RunContext) -> None:
        entry = entries.find_entry(self.entry)
        try:
            run = stamped_run(entry, self.params, context, self.size, self.settings)
        except StorageError:
            raise
        except InputError as error:
            self.fail(str(error), traceback.format_exc() if error.__cause__ is not None else "")
        except Exception as error:
            self.fail(described(error), traceback.format_exc())
        else:
            self.store_run(run)
