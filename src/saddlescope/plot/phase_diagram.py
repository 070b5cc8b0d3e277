"""Phase diagrams of a sweep: verdicts, metrics and measured values over the axes of its grid.

The input is the labelled data set of a sweep, as `saddlescope.sweeps.Sweep` defines it: `state` over the swept axes,
`outcome` and `value` over axes and claims, `metrics` over axes and metrics, with units, scales and bounds as
coordinates. Over seeds, means, ranges and shares are shown; failed and missing points do not enter them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import xarray as xr

from saddlescope.figures.records import AnyMark, Axis, Band, Figure, Heat, Kind, Kinds, Line, Mark, Panel
from saddlescope.plot.phase_layout import PhaseLayout, cells_axis, line_axis, names_axis
from saddlescope.plot.tick_names import shortened

OUTCOMES = (
    Kind("holds", 2, "✓"),
    Kind("fails", 1, "✗"),
    Kind("agrees", 2, "✓"),
    Kind("differs", None, "○"),
    Kind("seen", 2, "✓"),
    Kind("not seen", None, "○"),
    Kind("undecided", None, "?"),
    Kind("not tested", None, "–"),
    Kind("failed", 3, "!"),
)
"""Outcomes of a claim at a point; nothing is drawn at missing points."""
_MOST_WRITTEN = 12  # largest number of values along x with numbers in the cells
_NOT_RUN = " Empty cells: the point has not been run."


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """A number of each point: a metric, or the value of a claim; infinite bounds are not drawn."""

    place: int
    name: str
    label: str
    unit: str = ""
    scale: Literal["linear", "log"] = "linear"
    low: float = -np.inf
    high: float = np.inf


def phase_figures(sweep: xr.Dataset) -> tuple[Figure, ...]:
    """Draw the phase diagrams of a sweep: verdicts, metrics, and values of the claims.

    Over one axis: curves, with the range over seeds as a band, and verdicts as a table of cells. Over two: maps, one
    per claim or metric. Over more: one figure per claim or metric, with a panel for each value of the further axes, and
    no values of the claims, which the data set has.

    Args:
        sweep: the data set of a sweep, with at least one swept axis.

    Returns:
        The figures: metrics, verdicts, measured values.
    """
    layout, claims = PhaseLayout.of(sweep.state), _claims(sweep)
    drawn = _numbers(sweep.metrics, layout, _metrics(sweep), "Results across the grid")
    drawn += _verdicts(sweep, layout, claims)
    if not layout.panels:
        drawn += _numbers(sweep["value"], layout, claims, "Values of the claims")
    return tuple(drawn)


def _claims(sweep: xr.Dataset) -> tuple[_Reading, ...]:
    columns = (sweep[name].values.tolist() for name in ("claim", "claim_unit", "claim_low", "claim_high"))
    return tuple(
        _Reading(place=place, name=shortened(label), label=label, unit=unit, low=low, high=high)
        for place, (label, unit, low, high) in enumerate(zip(*columns, strict=True))
    )


def _metrics(sweep: xr.Dataset) -> tuple[_Reading, ...]:
    columns = (sweep[f"metric{part}"].values.tolist() for part in ("", "_quantity", "_unit", "_scale"))
    return tuple(
        _Reading(place=place, name=shortened(name.replace("_", " ")), label=label, unit=unit, scale=scale)
        for place, (name, label, unit, scale) in enumerate(zip(*columns, strict=True))
    )


def _verdicts(sweep: xr.Dataset, layout: PhaseLayout, claims: Sequence[_Reading]) -> list[Figure]:
    """Draw maps of outcomes, or of the share of seeds that reproduce a claim."""
    kinds = _kinds(sweep)
    caption = "Verdict on each claim at each point." if not layout.seeds else (
        "Share of the deciding seeds that reproduce each claim; the cells have the counts."
        " Empty cells: no seed decides it."
    )  # fmt: skip
    if layout.seeds and len(layout.mapped) > 1:
        decided = [one for one in claims if ((kinds == 0) | (kinds == 1)).isel(claim=one.place).any()]
        nowhere = [one.label for one in claims if one not in decided]
        caption += f" Decided at no point: {', '.join(nowhere)}." if nowhere else ""
        claims = decided or claims
    elif not layout.seeds and (kinds < 0).any():
        caption += _NOT_RUN
    if len(layout.mapped) == 1:
        ((_, shown),) = PhaseLayout((*layout.mapped, "claim"), (), layout.seeds).slices(kinds)
        rows = names_axis("claim", tuple(one.label for one in claims), falling=True)
        panel = Panel(x=cells_axis(shown, layout.mapped[0]), y=rows, marks=(_outcomes(shown.values, layout),))
        return [Figure(name="verdicts", title="Verdicts", caption=caption, panels=(panel,), columns=1)]
    return _figures(
        "verdicts",
        "Verdicts",
        caption,
        claims,
        layout,
        lambda one: kinds.isel(claim=one.place),
        lambda one, array: (_outcomes(array.values, layout),),
    )


def _numbers(values: xr.DataArray, layout: PhaseLayout, readings: Sequence[_Reading], title: str) -> list[Figure]:
    """Draw curves or maps of numbers that are finite somewhere; the last dimension is that of the readings."""
    found = [one for one in readings if np.isfinite(values[..., one.place]).any()]
    absent = [one.label for one in readings if one not in found]
    if not found:
        return []
    line = len(layout.mapped) == 1
    over = "" if not layout.seeds else (
        " Each curve is the mean over seeds, the band their range." if line else " Each cell is the mean over seeds."
    )  # fmt: skip
    over += " On a logarithmic scale the mean is the geometric one." if over and _logarithmic(found) else ""
    bounds = (
        " Dotted lines: the bounds, fixed before the run."
        if line and any(np.isfinite((one.low, one.high)).any() for one in found)
        else ""
    )
    if any(bool(values[..., one.place].isnull().any()) for one in found):
        over += " Gaps: no run resolved the number."
    nowhere = f" Resolved at no point: {', '.join(absent)}." if absent else ""
    return _figures(
        f"{values.dims[-1]}-values",
        title,
        f"Each panel shows one number of the runs over the swept parameters.{over}{bounds}{nowhere}",
        found,
        layout,
        lambda one: values[..., one.place],
        lambda one, array: _curve(one, array, layout) if line else (_map(one, array.values, layout),),
    )


def _figures(
    name: str,
    title: str,
    caption: str,
    readings: Sequence[_Reading],
    layout: PhaseLayout,
    select: Callable[[_Reading], xr.DataArray],
    marks: Callable[[_Reading, xr.DataArray], tuple[AnyMark, ...]],
) -> list[Figure]:
    """Draw one figure with one panel per reading; if further axes have panels, one figure per reading."""

    def panels(one: _Reading) -> tuple[Panel, ...]:
        selected = select(one)
        return tuple(
            Panel(title=at or one.label, x=x, y=y, marks=marks(one, array))
            for at, array in layout.slices(selected)
            for x, y in [_axes(one, array, layout)]
        )

    if not layout.panels:
        every = tuple(panel for one in readings for panel in panels(one))
        return [Figure(name=name, title=title, caption=caption, panels=every, columns=min(3, len(every)))]
    return [
        Figure(
            name=f"{name}-{k}",
            title=f"{title}: {one.label}",
            caption=caption + layout.left_out(select(one)),
            panels=_of_one_scale(panels(one)),
            columns=3,
        )
        for k, one in enumerate(readings, 1)
    ]


def _of_one_scale(panels: tuple[Panel, ...]) -> tuple[Panel, ...]:
    """Give the panels the same colours for the same numbers."""
    heats = [mark for panel in panels for mark in panel.marks if isinstance(mark, Heat) and mark.range is None]
    shown = [heat.z[np.isfinite(heat.z) & ((heat.scale == "linear") | (heat.z > 0))] for heat in heats]
    if not sum(map(len, shown)):
        return panels
    numbers = np.concatenate(shown)
    ends = float(numbers.min()), float(numbers.max())
    return tuple(
        replace(
            panel, marks=tuple(replace(mark, range=ends) if isinstance(mark, Heat) else mark for mark in panel.marks)
        )
        for panel in panels
    )


def _axes(one: _Reading, array: xr.DataArray, layout: PhaseLayout) -> tuple[Axis, Axis]:
    if len(layout.mapped) == 1:
        return line_axis(array, layout.mapped[0])[0], Axis(one.name, one.unit, scale=one.scale)
    return cells_axis(array, layout.mapped[0]), cells_axis(array, layout.mapped[1])


def _kinds(sweep: xr.Dataset) -> xr.DataArray:
    """Return the index of each point's outcome in `OUTCOMES`, for each claim; -1 where it is missing."""
    places = xr.full_like(sweep.outcome, -1, dtype=int)
    for place, kind in enumerate(OUTCOMES):
        places = places.where(sweep.outcome != kind.name, place)
    return places.where(sweep.state != "failed", [kind.name for kind in OUTCOMES].index("failed")).where(
        sweep.state != "missing", -1
    )


def _outcomes(kinds: np.ndarray, layout: PhaseLayout) -> AnyMark:
    """Return cells of outcomes, shape ([seed,] y, x), or of the share of decided seeds inside the bounds."""
    x, y = np.arange(kinds.shape[-1]), np.arange(kinds.shape[-2])
    if not layout.seeds:
        return Kinds(x=x, y=y, z=kinds, kinds=OUTCOMES)
    held = np.isin(kinds, (0, 2, 4)).sum(0)  # those inside their bounds
    decided = held + np.isin(kinds, (1, 3, 5)).sum(0)
    words = np.char.add(np.char.add(held.astype(str), "/"), decided.astype(str))
    return Heat(
        x=x,
        y=y,
        z=np.where(decided > 0, held / np.maximum(decided, 1), np.nan),
        label="share inside the bounds",
        range=(0.0, 1.0),
        words=words if len(x) <= _MOST_WRITTEN else None,
    )


def _map(one: _Reading, values: np.ndarray, layout: PhaseLayout) -> Heat:
    """Return the cells of a number, shape ([seed,] y, x): the mean over seeds."""
    z = _mean(values, one.scale) if layout.seeds else values
    return Heat(
        x=np.arange(z.shape[1]),
        y=np.arange(z.shape[0]),
        z=z,
        label=Axis(one.name, one.unit).title,
        scale=one.scale,
        words=_written(z) if z.shape[1] <= _MOST_WRITTEN else None,
    )


def _written(z: np.ndarray) -> np.ndarray:
    return np.array([[f"{value:.3g}".replace("e-0", "e-") if np.isfinite(value) else "" for value in row] for row in z])


def _curve(one: _Reading, array: xr.DataArray, layout: PhaseLayout) -> tuple[AnyMark, ...]:
    """Return the curve of a number over one axis, shape ([seed,] x): mean and range over seeds, and bounds."""
    values, (_, x) = array.values, line_axis(array, layout.mapped[0])
    rising = np.argsort(x, kind="stable")
    values, x = values[..., rising], x[rising]
    middle = _mean(values, one.scale) if layout.seeds else values
    marks: list[AnyMark] = [Mark(at=at, axis="y") for at in (one.low, one.high) if np.isfinite(at)]
    if layout.seeds:
        finite = np.isfinite(values)
        low, high = np.where(finite, values, np.inf).min(0), np.where(finite, values, -np.inf).max(0)
        some = finite.any(0)
        marks.append(Band(x=x, low=np.where(some, low, np.nan), high=np.where(some, high, np.nan), color=0))
    return (*marks, Line(x=x, y=middle, color=0), Line(x=x, y=middle, color=0, style="points"))


def _mean(values: np.ndarray, scale: str) -> np.ndarray:
    """Return the mean of finite values over the first axis, on the scale of the picture; NaN where none is finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        shown = np.log(values) if scale == "log" else values
        finite = np.isfinite(shown) | (shown == -np.inf)
        count = finite.sum(0)
        mean = np.where(finite, shown, 0.0).sum(0) / np.maximum(count, 1)
        return np.where(count > 0, np.exp(mean) if scale == "log" else mean, np.nan)


def _logarithmic(readings: Sequence[_Reading]) -> bool:
    return any(one.scale == "log" for one in readings)
