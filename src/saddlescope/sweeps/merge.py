"""Runs of the points of a sweep, merged into one data set over the swept parameters."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from saddlescope.sweeps.grid import Grid


def merge_runs(grid: Grid, runs: Mapping[tuple[int, ...], xr.Dataset]) -> xr.Dataset:
    """Merge the runs, given by their indices on the axes; the axes come first (see `Sweep.runs`)."""
    first, *others = runs.values()
    dims = {dim: _free(str(dim), grid) for dim in first.dims}
    variables: dict[str, tuple] = {}
    coordinates: dict[str, tuple] = {axis.name: (axis.name, list(axis.values)) for axis in grid.axes}
    others_only = {name: None for run in others for name in run.variables if name not in first.variables}
    left_out = [str(name) for name in others_only]
    for name in first.variables:
        variable = first.variables[name]
        here = [run.variables[name] for run in others if name in run.variables]
        if len(here) < len(others) or any(v.dims != variable.dims or v.shape != variable.shape for v in here):
            left_out.append(str(name))
            continue
        own = tuple(dims[dim] for dim in variable.dims)
        if name in first.coords and all(variable.equals(v) for v in here):
            coordinates[_free(str(name), grid)] = (own, variable.values, variable.attrs)
            continue
        values = {index: run.variables[name].values for index, run in runs.items()}
        merged = f"{name}_of_run" if name in first.coords else _free(str(name), grid)
        variables[merged] = (grid.names + own, _stacked(grid, values), variable.attrs)
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
