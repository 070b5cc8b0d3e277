"""One point of a sweep: where its run lies, what state it is in, and how it is made, on whatever machine."""

import dataclasses
import json
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import BusyError, InputError, StorageError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.reproduction import entry as entries
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.runner import json_values, stamped_run

BUSY_PAUSE = 0.2  # seconds between two looks at a point that another process is at
_one_at_a_time = threading.Lock()  # entries may draw from generators that all threads of a process share


class State(StrEnum):
    """What has become of a point."""

    FINISHED = "finished"
    FAILED = "failed"
    MISSING = "missing"


@dataclasses.dataclass(frozen=True, repr=False)
class Point(ReprMixin):
    """One point: the parameters of one run, and its place, which all sweeps with this point share.

    Attributes:
        out: the folder of sweeps, `OUT/sweeps`.
        entry: name of the entry.
        params: the parameters of the run.
        size: of the parameters that are not set by hand.
        settings: those that are, as typed.
        label: the swept values in words, for messages.
    """

    out: Path
    entry: str
    params: Any
    size: str
    settings: Mapping[str, str]
    label: str

    @cached_property
    def place(self) -> store.RunFolder:
        """Where the run lies: `OUT/sweeps/<paper>/<entry>/points/<digest>.nc`."""
        return store.RunFolder(self.out, self.entry, json_values(self.params), part="points")

    @property
    def file(self) -> Path:
        """The stored run."""
        return self.place.file

    @property
    def _failure(self) -> Path:
        return self.file.with_suffix(".failed.json")

    @property
    def state(self) -> State:
        """What is stored of the point."""
        if self.file.exists():
            return State.FINISHED
        return State.FAILED if self._failure.exists() else State.MISSING

    @property
    def error(self) -> str:
        """Why the point failed, in one sentence; empty when it did not."""
        if self.state is not State.FAILED:
            return ""
        try:
            return str(json.loads(self._failure.read_text())["error"])
        except (OSError, ValueError, KeyError, TypeError):
            return "It failed, and the record of why is damaged."

    def fail(self, error: str, details: str = "") -> None:
        """Stores that the point failed, and why; the next call passes it by unless it is told to try again."""
        record = {"point": self.label, "entry": self.entry, "settings": dict(self.settings), "error": error}
        text = json.dumps(record | {"traceback": details}, indent=1)
        store.write_bytes(text.encode(), self._failure)

    def forget_failure(self) -> None:
        """Lets the next call try the point again."""
        self._failure.unlink(missing_ok=True)

    def keep(self, run: xr.Dataset | bytes) -> None:
        """Stores the point's run, with its provenance; or the content of its file, which another machine has sent."""
        if isinstance(run, bytes):
            store.write_bytes(run, self.file)
        else:
            store.write(run, self.file)
        self.forget_failure()

    def forget(self) -> None:
        """Removes the stored run, so that it is made anew."""
        self.file.unlink(missing_ok=True)
        self.forget_failure()

    def run(self, data: Path | None = None, report: Callable[[float, str], None] = lambda fraction, note: None) -> None:
        """Runs the point and stores the run, or why it failed; does nothing when one of them is stored.

        A point that is killed goes on where it was. One that another process is at is waited for.

        Raises:
            StorageError: the folder cannot be written or the disk is full; that is not the point's failure.
        """
        with _one_at_a_time:
            while self.state is State.MISSING:
                try:
                    with self.place.lock() as scratch:
                        if self.state is State.MISSING:
                            self._run(RunContext(scratch, report, data))
                        self.place.clear()
                    return
                except BusyError:
                    time.sleep(BUSY_PAUSE)

    def _run(self, context: RunContext) -> None:
        entry = entries.find(self.entry)
        try:
            run = stamped_run(entry, self.params, context, self.size, self.settings)
        except (StorageError, BusyError):
            raise
        except InputError as error:
            self.fail(str(error))
        except Exception as error:
            self.fail(sentence(error), traceback.format_exc())
        else:
            self.keep(run)


def sentence(error: BaseException) -> str:
    """An error in one line: its kind and the first line of what it says."""
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
