"""Result of a sweep: one labelled data set over the swept parameters, and the runs of its points."""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError, unknown
from saddlescope._shared.json_text import parse_json
from saddlescope._shared.reprs import ReprMixin
from saddlescope.reproduction import entry as entries
from saddlescope.reproduction.claim import Outcome
from saddlescope.reproduction.formatting import counts
from saddlescope.reproduction.runner import Reproduction
from saddlescope.sweeps.assemble import KIND, fault_of
from saddlescope.sweeps.grid import Grid
from saddlescope.sweeps.point import State

_POINT = re.compile(r"points/[0-9a-f]{12}\.nc")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Sweep(ReprMixin):
    """One stored sweep of an entry.

    Attributes:
        file: file of its data set; the runs of its points are in the folder `points` beside it.
        grid: its points.
        data: the data set. Its dimensions are the swept parameters, in the order of the grid, with their values as
            coordinates (for a tuple parameter the element, if every point has one), then `claim`, with the
            coordinates `claim_statement`, `claim_quantity`, `claim_kind`, `claim_unit`, `claim_low` and `claim_high`,
            and `metric`, with `metric_quantity`, `metric_unit` and `metric_scale`. Its variables:

            - `state(axes)`: finished, failed or missing; `error(axes)`: the reason, one sentence;
            - `value`, `uncertainty` `(axes, claim)` in the claim's unit, NaN where absent;
              `outcome(axes, claim)`: one of the outcomes of a claim, or empty without a run; `remark`;
            - `metrics(axes, metric)`: the metrics of the entry, NaN where absent, and
              `metric_remark`;
            - `cpu_seconds(axes)`; `point(axes)`: the file of the run, relative to the folder of the data set.
    """

    file: Path
    grid: Grid
    data: xr.Dataset

    @property
    def entry(self) -> entries.Entry:
        """Entry of the sweep."""
        return self.grid.entry

    @classmethod
    def open(cls, file: str | os.PathLike[str]) -> "Sweep":
        """Read a stored sweep; nothing is run or judged.

        Raises:
            InputError: the file is damaged or foreign, or its entry or a swept parameter no longer exists.
        """
        data = store.read(file)
        if data.attrs.get("kind") != KIND:
            raise InputError(f"{file} must be a stored sweep, such as one below OUT/sweeps; got another kind of file.")
        try:
            axes = [(name, tuple(texts)) for name, texts in parse_json(data.attrs["grid"])]
            settings = dict(parse_json(data.attrs["settings"]))
            grid = Grid.of(entries.find_entry(data.attrs["entry"]), axes, data.attrs["size"], settings)
            if fault := fault_of(data, grid.names):
                raise ValueError(fault)
            if data.state.shape != grid.shape:
                raise ValueError("its variables are not over its axes")
            if outside := [name for name in data.point.values.ravel().tolist() if not _POINT.fullmatch(str(name))]:
                raise ValueError(f"{outside[0]!r} is outside its folder of points")
        except InputError as error:
            raise InputError(f"{file}: {error}") from error
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise InputError(f"{file} is no complete sweep ({error}); rerun the sweep.") from error
        return cls(Path(file), grid, data)

    @property
    def counts(self) -> Mapping[State, int]:
        """Number of points of each state."""
        states = [str(state) for state in self.data.state.values.ravel()]
        return {state: states.count(state) for state in State}

    @property
    def failures(self) -> Mapping[str, str]:
        """Points without a run, by their swept values in words, and the reasons, one sentence each."""
        without = {}
        for index in self.grid.indices:
            if str(self.data.state.values[index]) != State.FINISHED:
                without[self.grid.label(index)] = str(self.data.error.values[index])
        return without

    def at(self, **values: Any) -> Reproduction:
        """Return the run of one point, with its verdicts and figures.

        Args:
            **values: a coordinate on each axis.

        Raises:
            InputError: an axis is missing or unknown, a value is not on it, or the point has no run.
        """
        index = self._index(values)
        if str(self.data.state.values[index]) != State.FINISHED:
            error = str(self.data.error.values[index])
            raise InputError(f"No run is stored at {self.grid.label(index)}: {error or 'it is missing'}")
        return Reproduction.open(self.folder / str(self.data.point.values[index]))

    def runs(self) -> xr.Dataset:
        """Return the data of all points as one data set over the swept parameters.

        Each variable of the runs becomes one with the axes in front. Points without a run are NaN, or empty. A variable
        whose shape differs between points is left out, and named in the attribute `left_out`; a coordinate whose values
        differ becomes a variable `<name>_of_run`, as does a variable with the name of an axis.

        Raises:
            InputError: no point has a run.
        """
        finished = {
            index: store.read(self.folder / str(self.data.point.values[index]))
            for index in self.grid.indices
            if str(self.data.state.values[index]) == State.FINISHED
        }
        if not finished:
            raise InputError(f"No point of {self.file} has a run. Pass --retry to retry failed points.")
        return _merged(self.grid, finished)

    @property
    def folder(self) -> Path:
        """Folder of the data set, to which the files of the points are relative."""
        return self.file.parent

    def _index(self, values: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the indices on the axes of the point with these values."""
        for name in values:
            if name not in self.grid.names:
                raise unknown("axis", name, self.grid.names)
        index = []
        for axis in self.grid.axes:
            if axis.name not in values:
                raise InputError(f"{axis.name} must be given; it is an axis of the sweep.")
            places = [k for k, value in enumerate(axis.values) if np.array_equal(value, values[axis.name])]
            if not places:
                shown = ", ".join(map(str, axis.values[:8])) + (", ..." if len(axis.values) > 8 else "")
                raise InputError(f"{axis.name} must be one of {shown}; got {values[axis.name]!r}.")
            index.append(places[0])
        return tuple(index)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {state}" for state, count in self.counts.items() if count)
        return f"Sweep({self.grid.in_words}; {counts})"

    @property
    def outcomes(self) -> dict[str, dict[Outcome, int]]:
        """Number of points of each outcome, by the name of the claim."""
        by_claim = ((str(name), self.data.outcome.sel(claim=name).values.ravel()) for name in self.data.claim.values)
        return {name: counts(found.tolist()) for name, found in by_claim}

    def _table(self) -> tuple[Sequence[str], list[tuple[object, ...]]]:
        """Return the number of points of each outcome that occurs, for each claim."""
        occurring = [outcome for outcome in Outcome if any(found[outcome] for found in self.outcomes.values())]
        rows: list[tuple[object, ...]] = [
            (name, *(found[outcome] for outcome in occurring)) for name, found in self.outcomes.items()
        ]
        return ("claim", *occurring), rows


def stored_sweeps(folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Return the data set files of all sweeps stored below a folder, in the order of their names.

    Raises:
        InputError: the folder does not exist.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}; name the one that was given to --out.")
    found = [file for marker in sorted(folder.rglob(store.SWEEPS)) for file in marker.parent.glob("*/*/*.nc")]
    return tuple(sorted(file for file in found if not file.name.startswith(".")))


def _merged(grid: Grid, runs: Mapping[tuple[int, ...], xr.Dataset]) -> xr.Dataset:
    """Merge the runs, given by their indices on the axes; the axes come first (see `Sweep.runs`)."""
    variables: dict[str, tuple] = {}
    coordinates: dict[str, tuple] = {axis.name: (axis.name, list(axis.values)) for axis in grid.axes}
    left_out = []
    for name in dict.fromkeys(name for run in runs.values() for name in run.variables):
        first, *others = here = [run.variables[name] for run in runs.values() if name in run.variables]
        if len(here) < len(runs) or any(v.dims != first.dims or v.shape != first.shape for v in others):
            left_out.append(str(name))
            continue
        own, free = tuple(_free(str(dim), grid) for dim in first.dims), _free(str(name), grid)
        is_coordinate = name in next(iter(runs.values())).coords
        if is_coordinate and all(first.equals(v) for v in others):
            coordinates[free] = (own, first.values, first.attrs)
            continue
        stacked = _stacked(grid, {index: v.values for index, v in zip(runs, here, strict=True)})
        variables[f"{name}_of_run" if is_coordinate else free] = (grid.names + own, stacked, first.attrs)
    return xr.Dataset(variables, coordinates, {"left_out": ", ".join(left_out)})


def _free(name: str, grid: Grid) -> str:
    """Return the name, or another one if an axis of the sweep has it."""
    return f"{name}_of_run" if name in grid.names else name


def _stacked(grid: Grid, values: Mapping[tuple[int, ...], np.ndarray]) -> np.ndarray:
    """Return one array with the axes in front; points without a run are NaN (integers become floats) or empty."""
    first = next(iter(values.values()))
    complete = len(values) == len(grid.indices)
    kind = np.result_type(*{value.dtype for value in values.values()}) if first.dtype.kind not in "OUS" else object
    if not complete and np.dtype(kind).kind in "iub":
        kind = np.float64
    empty = "" if kind is object else 0 if complete else np.nan
    stacked = np.full(grid.shape + first.shape, empty, kind)
    for index, value in values.items():
        stacked[index] = value
    return stacked
