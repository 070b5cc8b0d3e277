"""Context of a run: progress callback, scratch folder for cached parts, data folder."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, product, starmap
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import xarray as xr

from saddlescope._shared.errors import BusyError, InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.reproduction.data_sets import Digested
from saddlescope.reproduction.grid import Axes, Join, join_cells

D = TypeVar("D", bound=Digested)
T = TypeVar("T")

_WAIT = 1.0  # seconds between two looks at a part that another run makes

_README = b"Parts that runs share, such as trained networks, named by their parameters. Runs make deleted ones again.\n"


@dataclass(frozen=True, repr=False)
class RunContext(ReprMixin):
    """Inputs of a run besides its parameters; none of them may change its result.

    Attributes:
        scratch: a folder that survives a kill and is passed again to the same run (same entry, same parameters); long
            runs store their checkpoints here. It is removed once the result is stored.
        report: called with the finished fraction in [0, 1] and a short note such as "epoch 3 of 40".
        data: folder with data sets in their official formats; None: only the embedded data exist.
        shared: folder of the parts that runs of several entries share; None: the parts stay in the scratch folder.
        again: make shared parts again, even if an earlier run has stored them.
        data_sets: checksums of the data sets by which the run is named; `read_data` admits no others.
        cell: number of the cell that `over` computes; of a run, 0.
        inside: beginning of the names of its cached parts: those of the cells that it is in.
    """

    scratch: Path
    report: Report = silent
    data: Path | None = None
    shared: Path | None = None
    again: bool = False
    data_sets: Mapping[str, str] = field(default_factory=dict)
    cell: int = 0
    inside: str = ""

    def over(
        self,
        axes: Axes,
        compute: Callable[..., xr.Dataset],
        *,
        name: str = "",
        weights: Sequence[int | float] = (),
        processes: int = 1,
        join: Join = "exact",
    ) -> xr.Dataset:
        """Return the data sets of all cells of a grid, each made by `cells`, joined along its axes by `join_cells`.

        >>> def compute(scale: float, seed: int, step: RunContext) -> xr.Dataset:
        ...     return xr.Dataset({"end": scale * seed})
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as scratch:
        ...     RunContext(Path(scratch)).over({"scale": (0.5, 1.0), "seed": range(2)}, compute).end.values.tolist()
        [[0.0, 0.5], [0.0, 1.0]]
        """
        parts = self.cells(axes, compute, name=name, weights=weights, processes=processes)
        return join_cells(parts, axes, join=join)

    def cells(
        self,
        axes: Axes,
        compute: Callable[..., xr.Dataset],
        *,
        name: str = "",
        weights: Sequence[int | float] = (),
        processes: int = 1,
    ) -> list[xr.Dataset]:
        """Return the data set of every cell of a grid, the last axis fastest, computing those that are not cached.

        Args:
            axes: values by name, the slowest first: numbers or words, as they name the cached parts.
            compute: function from the values of a cell, and the context of its step, to its data set. With more than
                one process it is pickled: it must be a function, or a partial of one, of a module.
            name: distinguishes the grids of one run that have the same axes.
            weights: time that each cell takes, in any unit; equal if left out.
            processes: number of worker processes, for cells that cannot use more than one processor; with 1 they are
                computed here. It changes no result.

        Raises:
            InputError: a cell raised it, or its process was killed; finished cells stay cached.
            RuntimeError: a cell failed in its process; standard error has its traceback.
        """
        cells = [_Cell.of(k, name, axes, values, compute) for k, values in enumerate(product(*axes.values()))]
        missing = [cell for cell in cells if not self.has(cell.part)]
        if min(processes, len(missing)) > 1:
            from saddlescope.reproduction.process_pool import run_tasks

            tasks = {cell.label: partial(_store, cell, replace(self, report=silent)) for cell in missing}
            _, rest = self.split(len(cells) - len(missing), len(missing))
            run_tasks(tasks, processes=processes, report=rest.report, ended=_ended)
        found = []
        for cell, step in self.steps(cells, weights):
            report = silent if self.has(cell.part) else step.note(cell.label)
            report(0.0, "begun")
            found.append(cell.make(replace(step, report=report)))
            report(1.0, "done")
        return found

    def split(self, *weights: int | float) -> "tuple[RunContext, ...]":
        """Return one context per part of the run, each reporting 0 to 1 over its share of the progress of this one.

        >>> theory, flow = RunContext(Path(), lambda fraction, note: print(f"{fraction:.2f} {note}")).split(1, 3)
        >>> flow.report(0.5, "flow")
        0.62 flow
        """
        ends = [end / sum(weights) for end in accumulate(weights)]
        return tuple(replace(self, report=_share(self.report, *of)) for of in zip([0.0, *ends], ends, strict=False))

    def steps(self, items: "Iterable[T]", weights: Sequence[int | float] = ()) -> "Iterator[tuple[T, RunContext]]":
        """Yield each item with the context of its step; steps take equal shares of the progress, or shares by weight.

        >>> context = RunContext(Path(), lambda fraction, note: print(f"{fraction:.2f} {note}"))
        >>> for seed, step in context.steps([7, 8]):
        ...     step.report(1.0, f"seed {seed}")
        0.50 seed 7
        1.00 seed 8
        """
        listed = list(items)
        return zip(listed, self.split(*(weights or [1.0] * len(listed))), strict=True)

    def note(self, prefix: str) -> Report:
        """Return a `report` that puts a prefix before each note: "alpha = 1e-8, step 3"."""
        return lambda fraction, note: self.report(fraction, f"{prefix}, {note}")

    def read_data(self, name: str, read: Callable[[str, Path | None, Report], D]) -> D:
        """Return the data set of a name, read from the folder of data sets by the `read` of the entry's `DataSets`.

        Raises:
            InputError: it is absent or damaged, or is not the one with which the run began.
        """
        found = read(name, self.data, lambda fraction, note: self.report(0.0, note))
        if name in self.data_sets and (now := found.digest()) != (then := self.data_sets[name]):
            raise InputError(
                f"The data set {name} must not change during a run; its SHA-256 is now {now[:12]}..., and the run "
                f"began with {then[:12]}.... Give the folder of the same data on all machines, and rerun the command."
            )
        return found

    def has(self, name: str) -> bool:
        """Return True if the part of that name is cached."""
        return self._file(name).exists()

    def cached(self, name: str, compute: Callable[[], xr.Dataset]) -> xr.Dataset:
        """Return the cached part of that name, computing and storing it if absent.

        Raises:
            InputError: a name that is no file name, such as one with a slash.
        """
        from saddlescope import store

        if Path(name).name != name:
            raise InputError(f"The name of a part must be a file name; got {name!r}.")

        if self.has(name):
            return store.read(self._file(name))
        part = compute()
        store.write(part, self._file(name))
        return part

    def shared_part(
        self, kind: str, params: Mapping[str, Any], compute: "Callable[[RunContext], xr.Dataset]"
    ) -> xr.Dataset:
        """Return a part that runs of several entries share, such as a trained network.

        The first run that needs it makes and stores it; another one that needs it at the same time waits, then reads.

        Args:
            kind: folder of the part, such as "vision-transformers".
            params: all that the part depends on, as JSON values; another version of saddlescope makes its own part.
            compute: makes the part; its context has a scratch folder that survives a kill, whichever run goes on.
        """
        from saddlescope import __version__, store

        parts = self.shared or self.scratch / "parts"
        folder = store.RunFolder(parts, kind, {**params, "saddlescope": __version__})
        own = self.scratch / f"{kind}-{folder.digest}.made"
        while not folder.file.exists() or (self.again and not own.exists()):
            with ExitStack() as undo:
                try:
                    scratch = undo.enter_context(folder.lock())
                except BusyError:
                    self.report(0.0, "waiting for another run that makes the same part")
                    time.sleep(_WAIT)
                    continue
                if not folder.file.exists() or self.again:
                    part = compute(replace(self, scratch=scratch, cell=0, inside=""))
                    store.write_bytes(_README, parts / store.PARTS)
                    store.write(part, folder.file)
                own.touch()
                folder.clear()
        folder.tidy()
        return store.read(folder.file)

    def _file(self, name: str) -> Path:
        return self.scratch / f"{self.inside}{name}.nc"


class _Cell(NamedTuple):
    """One cell of a grid: its number, its values in words, and the name and the computation of its cached part."""

    number: int
    label: str
    part: str
    compute: Callable[[RunContext], xr.Dataset]

    @classmethod
    def of(
        cls, number: int, name: str, axes: Axes, values: tuple[Any, ...], compute: Callable[..., xr.Dataset]
    ) -> "_Cell":
        named = list(zip(axes, values, strict=True))
        part = ",".join(filter(None, [name, *(f"{axis}={value}" for axis, value in named)]))
        return cls(number, ", ".join(starmap(_in_words, named)), part, partial(compute, *values))

    def make(self, context: RunContext) -> xr.Dataset:
        """Return the cached part, computing it if absent."""
        own = replace(context, cell=self.number, inside=f"{context.inside}{self.part},")
        return context.cached(self.part, partial(self.compute, own))


def _store(cell: _Cell, context: RunContext, report: Report) -> None:
    """Make a cell in a process of its own."""
    cell.make(replace(context, report=report))


def _ended(name: str, status: int) -> None:
    if status >= 0:
        raise RuntimeError(f"The process of {name} ended with status {status} in the middle of its work.")
    raise InputError(
        f"processes must be few enough for the memory; the process of {name} was killed by signal {-status}. Rerun the "
        "same command to resume, with a smaller processes= to use less memory."
    )


def _in_words(axis: str, value: object) -> str:
    """Return a value of an axis in words: a word says what it is, a number needs the name of its axis."""
    return value if isinstance(value, str) else f"{axis} {value}"


def _share(report: Report, start: float, stop: float) -> Report:
    """Return a `report` that maps its 0 to 1 to `start` to `stop`."""
    return lambda fraction, note: report(start + (stop - start) * fraction, note)
