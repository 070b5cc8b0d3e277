"""Data set of a sweep, assembled from the stored runs of its points."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError
from saddlescope.reproduction.claim import Estimate
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.own_code import described
from saddlescope.reproduction.runner import Reproduction
from saddlescope.sweeps.grid import Grid
from saddlescope.sweeps.point import Point, State

KIND = "sweep"
"""Value of the attribute `kind` in the data set of a sweep."""


def assemble(grid: Grid, points: Iterable[Point], folder: Path, notes: Mapping[str, str]) -> xr.Dataset:
    """Return the data set that `Sweep` describes; each stored run is judged by the current claims.

    Args:
        grid: of the sweep.
        points: its points, in the order of the grid.
        folder: of the data set; files are given relative to it.
        notes: reasons for missing points, by their labels.
    """
    entry, axes = grid.entry, grid.names
    claims, metrics = entry.claims, entry.metrics
    numbers = {
        "value": np.full((*grid.shape, len(claims)), np.nan),
        "uncertainty": np.full((*grid.shape, len(claims)), np.nan),
        "metrics": np.full((*grid.shape, len(metrics)), np.nan),
        "cpu_seconds": np.full(grid.shape, np.nan),
    }
    words = {name: np.full((*grid.shape, len(claims)), "", object) for name in ("outcome", "remark")}
    words["metric_remark"] = np.full((*grid.shape, len(metrics)), "", object)
    words |= {name: np.full(grid.shape, "", object) for name in ("state", "error", "point")}
    for index, point in zip(grid.indices, points, strict=True):
        words["point"][index] = point.file.relative_to(folder).as_posix()
        state, error = point.state, point.error or notes.get(point.label, "")
        if state is State.FINISHED:
            try:
                stored = Reproduction.open(point.file)
            except InputError as reason:  # damaged since it was stored
                state, error = State.MISSING, str(reason)
            else:
                _judge(grid, stored.run, index, numbers, words)
                numbers["cpu_seconds"][index] = stored.provenance.cpu_seconds
        words["state"][index], words["error"][index] = str(state), _storable(error)
    last: dict[str, tuple[str, ...]] = dict.fromkeys(("value", "uncertainty", "outcome", "remark"), ("claim",))
    last |= dict.fromkeys(("metrics", "metric_remark"), ("metric",))
    return xr.Dataset(
        {name: (axes + last.get(name, ()), values) for name, values in (numbers | words).items()},
        {axis.name: (axis.name, list(axis.values)) for axis in grid.axes} | _described(entry),
        _attributes(grid, float(np.nansum(numbers["cpu_seconds"]))),
    )


def _judge(
    grid: Grid,
    run: xr.Dataset,
    index: tuple[int, ...],
    numbers: Mapping[str, np.ndarray],
    words: Mapping[str, np.ndarray],
) -> None:
    """Write the claims and metrics of one run into the arrays."""
    for k, claim in enumerate(grid.entry.claims):
        try:
            verdict = claim.judge(run)
        except Exception as error:  # it may need more than one point has, such as two scales
            why = f"It cannot be judged at this point: {described(error)}."
            verdict = claim.verdict(Estimate.unresolved(why))
        numbers["value"][(*index, k)] = verdict.value
        numbers["uncertainty"][(*index, k)] = verdict.uncertainty
        words["outcome"][(*index, k)] = str(verdict.outcome)
        words["remark"][(*index, k)] = _storable(verdict.remark)
    for k, metric in enumerate(grid.entry.metrics):
        try:
            numbers["metrics"][(*index, k)] = float(metric.statistic(run))
        except Exception as error:
            words["metric_remark"][(*index, k)] = _storable(f"It cannot be computed at this point: {described(error)}.")


def _described(entry: Entry) -> dict[str, tuple]:
    """Return the descriptions of claims and metrics, as coordinates."""
    claims, metrics = entry.claims, entry.metrics
    described = {
        "claim": [claim.name for claim in claims],
        "claim_statement": [claim.statement for claim in claims],
        "claim_quantity": [claim.quantity for claim in claims],
        "claim_kind": [str(claim.kind) for claim in claims],
        "claim_unit": [claim.unit for claim in claims],
        "claim_low": [claim.low for claim in claims],
        "claim_high": [claim.high for claim in claims],
    }
    named = {
        "metric": [metric.name for metric in metrics],
        "metric_quantity": [metric.quantity for metric in metrics],
        "metric_unit": [metric.unit for metric in metrics],
        "metric_scale": [metric.scale for metric in metrics],
    }
    return {name: ("claim", _texts(values)) for name, values in described.items()} | {
        name: ("metric", _texts(values)) for name, values in named.items()
    }


def _texts(values: list[Any]) -> Any:
    return np.array(values, object) if not values or isinstance(values[0], str) else np.array(values)


def _attributes(grid: Grid, cpu_seconds: float) -> dict[str, str | float]:
    """Return the provenance of the sweep, under the names of `store.Provenance` where they apply."""
    measured = store.stopwatch()()
    return {
        "kind": KIND,
        "entry": grid.entry.name,
        "size": grid.size,
        "settings": json.dumps(dict(grid.settings), ensure_ascii=False),
        "grid": json.dumps([[axis.name, list(axis.texts)] for axis in grid.axes], ensure_ascii=False),
        "command": grid.command,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu_seconds": round(cpu_seconds, 2),
        "versions": json.dumps(measured["versions"]),
        "platform": measured["platform"],
        "commit": measured["commit"],
    }


def _storable(text: str) -> str:
    """Return the text without characters that a netCDF string cannot hold."""
    return text.encode(errors="replace").decode().replace("\0", "�")
