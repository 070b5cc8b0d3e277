"""Context of a run: progress callback, scratch folder for cached parts, data folder."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import xarray as xr

from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin


@dataclass(frozen=True, repr=False)
class RunContext(ReprMixin):
    """Inputs of a run besides its parameters; none of them may change its result.

    Attributes:
        scratch: a folder that survives a kill and is passed again to the same run (same entry, same parameters); long
            runs store their checkpoints here. It is removed once the result is stored.
        report: called with the finished fraction in [0, 1] and a short note such as "epoch 3 of 40".
        data: folder with data sets in their official formats; None: only the embedded data exist.
    """

    scratch: Path
    report: Report = silent
    data: Path | None = None

    def part(self, start: float, stop: float) -> Report:
        """Return a `report` for one part of the run, which maps its 0 to 1 to `start` to `stop` of the run."""
        return lambda fraction, note: self.report(start + (stop - start) * fraction, note)

    def subtask(self, start: float, stop: float) -> "RunContext":
        """Return the context of one part of the run, which reports as `part` defines."""
        return replace(self, report=self.part(start, stop))

    def has(self, name: str) -> bool:
        """Return True if the part of that name is cached."""
        return self._file(name).exists()

    def cached(self, name: str, compute: Callable[[], xr.Dataset]) -> xr.Dataset:
        """Return the cached part of that name, computing and storing it if absent."""
        from saddlescope import store

        if self.has(name):
            return store.read(self._file(name))
        part = compute()
        store.write(part, self._file(name))
        return part

    def _file(self, name: str) -> Path:
        return self.scratch / f"{name}.nc"
