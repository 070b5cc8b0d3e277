"""What a run is given besides its parameters: where to report, to keep what it needs to resume, to find data."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import xarray as xr

from saddlescope._shared.reprs import ReprMixin


def _silent(fraction: float, note: str) -> None:
    pass


@dataclass(frozen=True, repr=False)
class RunContext(ReprMixin):
    """The surroundings of a run. Nothing here may change its result.

    Attributes:
        scratch: a folder that survives a kill and is given again to the same run (same entry, same parameters); long
            runs keep their checkpoints here. It is removed once the result is stored.
        report: called with the finished fraction in [0, 1] and a short note such as "epoch 3 of 40".
        data: folder with data sets in their official formats, or None: then the embedded data alone are there.
    """

    scratch: Path
    report: Callable[[float, str], None] = _silent
    data: Path | None = None

    def part(self, start: float, stop: float) -> Callable[[float, str], None]:
        """A `report` for one part of the run: its 0 to 1 is the whole's `start` to `stop`."""
        return lambda fraction, note: self.report(start + (stop - start) * fraction, note)

    def subtask(self, start: float, stop: float) -> "RunContext":
        """The context of one part of the run, which reports as `part` says."""
        return replace(self, report=self.part(start, stop))

    def has(self, name: str) -> bool:
        """Whether the part of the run of that name is finished already."""
        return self._file(name).exists()

    def cached(self, name: str, make: Callable[[], xr.Dataset]) -> xr.Dataset:
        """The part of the run of that name: what a killed run has finished already, else what `make` makes."""
        from saddlescope import store

        if self.has(name):
            return store.read(self._file(name))
        part = make()
        store.write(part, self._file(name))
        return part

    def _file(self, name: str) -> Path:
        return self.scratch / f"{name}.nc"
