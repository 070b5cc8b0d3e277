"""Data set of a sweep, assembled from the stored runs of its points."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError
from saddlescope.reproduction.claim import Claim, Estimate, Outcome, Verdict
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.own_code import described
from saddlescope.reproduction.runner import Reproduction
from saddlescope.sweeps.grid import Grid
from saddlescope.sweeps.point import Point, State

KIND = "sweep"
"""Value of the attribute `kind` in the data set of a sweep."""

POINTWISE: Mapping[str, tuple[str, type]] = {
    **dict.fromkeys(("state", "error", "point"), ("", str)),
    "cpu_seconds": ("", float),
    **dict.fromkeys(("value", "uncertainty"), ("claim", float)),
    **dict.fromkeys(("outcome", "remark"), ("claim", str)),
    "metrics": ("metric", float),
    "metric_remark": ("metric", str),
}
"""Variables of the data set over the swept parameters: their last dimension, if they have one more, and their type."""

DESCRIBED: Mapping[str, tuple[str, type]] = {
    **dict.fromkeys(("claim", "claim_statement", "claim_quantity", "claim_kind", "claim_unit"), ("claim", str)),
    **dict.fromkeys(("claim_low", "claim_high"), ("claim", float)),
    **dict.fromkeys(("metric", "metric_quantity", "metric_unit", "metric_scale"), ("metric", str)),
}
"""Coordinates that describe claims and metrics: their dimension and type."""

_WORDS = {"state": State, "outcome": ("", *Outcome), "metric_scale": ("linear", "log")}


def assemble(grid: Grid, points: Iterable[Point], folder: Path, notes: Mapping[str, str]) -> xr.Dataset:
    """Return the data set that `Sweep` describes; each stored run is judged by the current claims.

    Args:
        grid: of the sweep.
        points: its points, in the order of the grid.
        folder: of the data set; files are given relative to it.
        notes: reasons for missing points, by their labels.
    """
    entry = grid.entry
    rows = [_row(entry, point, folder, notes.get(point.label, "")) for point in points]
    length = {"claim": (len(entry.claims),), "metric": (len(entry.metrics),)}
    variables = {}
    for name, (last, kind) in POINTWISE.items():
        empty = np.nan if kind is float else ""
        values = np.full((len(rows), *length.get(last, ())), empty, float if kind is float else object)
        for k, row in enumerate(rows):
            values[k] = row.get(name, empty)
        variables[name] = ((*grid.names, *filter(None, [last])), values.reshape(grid.shape + values.shape[1:]))
    coordinates: dict[str, Any] = {axis.name: (axis.name, list(axis.values)) for axis in grid.axes}
    for name, (dim, kind) in DESCRIBED.items():
        described_by = entry.claims if dim == "claim" else entry.metrics
        field = "name" if name == dim else name.partition("_")[2]
        values = [kind(getattr(one, field)) for one in described_by]
        coordinates[name] = (dim, np.array(values, kind if values and kind is float else object))
    cpu_seconds = float(np.nansum(variables["cpu_seconds"][1]))
    return _stamped(xr.Dataset(variables, coordinates), grid, cpu_seconds)


def fault_of(data: xr.Dataset, axes: tuple[str, ...]) -> str:
    """Return the fault of the data set of a sweep over these parameters, whoever wrote it; empty if it has none."""
    expected = {name: ((*axes, *filter(None, [last])), kind) for name, (last, kind) in POINTWISE.items()}
    expected |= {name: ((dim,), kind) for name, (dim, kind) in DESCRIBED.items()}
    for name, (dims, kind) in expected.items():
        if name not in data.variables or data[name].dims != dims:
            return f"{name} is not over {', '.join(dims)}"
        found = data[name].values.ravel().tolist()
        if not all(isinstance(value, kind) for value in found):
            return f"{name} has no {'words' if kind is str else 'numbers'}"
        if name in _WORDS and (strange := set(found) - set(map(str, _WORDS[name]))):
            return f"{name} {min(strange)!r} is unknown"
    return ""


def _row(entry: Entry[Any], point: Point, folder: Path, note: str) -> dict[str, Any]:
    """Return the values of one point, by their variables."""
    state = point.state  # read once: another process may finish the point meanwhile
    row: dict[str, Any] = {"point": point.file.relative_to(folder).as_posix()}
    row |= {"state": str(state), "error": _storable(point.error or note)}
    if state is not State.FINISHED:
        return row
    try:
        stored = Reproduction.open(point.file)
    except InputError as reason:  # damaged since it was stored
        return row | {"state": str(State.MISSING), "error": _storable(str(reason))}
    verdicts = [_judged(claim, stored.run) for claim in entry.claims]
    measured = [_measured(metric.statistic, stored.run) for metric in entry.metrics]
    return row | {
        "cpu_seconds": stored.provenance.cpu_seconds,
        "value": [verdict.value for verdict in verdicts],
        "uncertainty": [verdict.uncertainty for verdict in verdicts],
        "outcome": [str(verdict.outcome) for verdict in verdicts],
        "remark": [_storable(verdict.remark) for verdict in verdicts],
        "metrics": [value for value, _ in measured],
        "metric_remark": [_storable(remark) for _, remark in measured],
    }


def _judged(claim: Claim, run: xr.Dataset) -> Verdict:
    try:
        return claim.judge(run)
    except Exception as error:  # it may need more than one point has, such as two scales
        return claim.verdict(Estimate.unresolved(f"It cannot be judged at this point: {described(error)}."))


def _measured(statistic: Callable[[xr.Dataset], float], run: xr.Dataset) -> tuple[float, str]:
    try:
        return float(statistic(run)), ""
    except Exception as error:
        return np.nan, f"It cannot be computed at this point: {described(error)}."


def _stamped(data: xr.Dataset, grid: Grid, cpu_seconds: float) -> xr.Dataset:
    """Return the data set with the provenance of the sweep, under the names of `store.Provenance` where they apply."""
    made = store.stopwatch()()
    axes = json.dumps([[axis.name, list(axis.texts)] for axis in grid.axes], ensure_ascii=False)
    about = {"kind": KIND, "entry": grid.entry.name, "size": grid.size, "settings": grid.settings, "grid": axes}
    about |= {"command": grid.command, "cpu_seconds": round(cpu_seconds, 2)}
    return store.stamped(data, about | {name: made[name] for name in ("versions", "finished", "platform", "commit")})


def _storable(text: str) -> str:
    """Return the text without characters that a netCDF string cannot hold."""
    return text.encode(errors="replace").decode().replace("\0", "�")
