"""Tasks of the live page, run by worker processes that stay warm, so that nothing is imported or compiled twice."""

import json
import tempfile
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.reproduction import RunContext, find_entry, load_entries

_KEPT = 8  # runs that can be saved without another run
_kept: OrderedDict[str, xr.Dataset] = OrderedDict()  # the latest runs of this process


@dataclass(frozen=True)
class Folders:
    """Files of a server.

    Attributes:
        results: folder in which runs are saved.
        shared: folder of the parts that runs share, and of their scratch folders.
        data: folder of data sets.
        entry_file: your Python file of entries.
    """

    results: Path
    shared: Path
    data: Path | None = None
    entry_file: Path | None = None


@dataclass(frozen=True)
class Request:
    """Task of a worker: run an entry and return its answer, the file in which the run is saved, or small pictures."""

    do: Literal["run", "save", "thumbnail"]
    entry: str
    size: str
    settings: Mapping[str, str]
    folders: Folders

    @property
    def key(self) -> str:
        """Text that is equal for equal runs."""
        return json.dumps([self.entry, self.size, sorted(self.settings.items())])

    def __call__(self, report: Report) -> dict[str, Any]:
        """Return the answer, in JSON values."""
        from saddlescope.explore.answer import answer, thumbnails
        from saddlescope.reproduction.catalogue import own_file
        from saddlescope.reproduction.runner import store_run

        began = time.monotonic()
        if self.folders.entry_file is not None:
            load_entries(self.folders.entry_file)
        entry = find_entry(self.entry)
        try:
            run = self._run(report)
        except MemoryError as error:
            raise InputError("The run needs more memory than this machine has; choose less.") from error
        if self.do == "save":
            return {"file": str(store_run(entry, run, out=self.folders.results).file)}
        if self.do == "thumbnail":
            return dict(thumbnails(next(iter(entry.figures(run)))))
        made = answer(entry, run, self.size, self.settings, own_file(self.entry))
        return made | {"seconds": round(time.monotonic() - began, 3)}

    def _run(self, report: Report) -> xr.Dataset:
        """Return the stamped run: a kept one, or a new one."""
        from saddlescope.reproduction.runner import stamped_run

        if self.key not in _kept:
            entry, folders = find_entry(self.entry), self.folders
            params = entry.configure(self.size, self.settings)
            with tempfile.TemporaryDirectory(dir=folders.shared) as scratch:
                read = entry.checksums(params, folders.data, report=report)
                context = RunContext(Path(scratch), report, folders.data, folders.shared / "parts", data_sets=read)
                _kept[self.key] = stamped_run(entry, params, context, self.size, self.settings).load()
        _kept.move_to_end(self.key)
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
        return _kept[self.key]
