"""Maps of the entry `generalisation_map`."""

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.generalisation_map.simulations import LEARNED
from saddlescope.plot import Axis, Figure, Heat, Line, Panel

_SIGMA, _SCALE = 0.05, 1e-3  # what a map does not show; the nearest there is

_AXES = {"sigma": "log₁₀ σ", "scale": "log₁₀ initial scale τ"}

_NAMES = {"symmetric": "symmetric, gradient flow", "trained": "U V, gradient descent"}

_DIVERSE = {"both": "both concepts diverse", "strong": "the strong signal diverse", "weak": "the weak signal diverse"}

_BORDER = "predicted border"


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw failures at the stop and within the budget, with their predictions."""
    done, budget = run.attrs["done"], run.attrs["budget"]
    starts = run.sizes["start"]
    stopped = (run.at_stop < LEARNED).where(run.at_stop.notnull()).mean("start")
    late = (run.at_budget < LEARNED).mean("start")
    hidden = (4 * done / run.share).broadcast_like(stopped)
    slow = run.predicted.median("start") / budget
    return [
        Figure(
            name="stopped",
            title="Training that stops by its own loss cannot see a concept that is a small part of it",
            caption=f"Share of {starts} starts in which an output at the test point is below half its target when the "
            f"training loss has fallen to {done:.0%} of its start; initial scale {_near(run, 'scale'):g}. Dots: where "
            f"the weaker concept's share of the first training loss is {4 * done:g}. More diversity in both concepts "
            "helps; more in the stronger one alone hides the other; and a weak signal can be made so diverse that it "
            "hides the strong one.",
            panels=tuple(
                _map(f"{title}; {_NAMES[model]}", stopped.sel(model=model, diverse=kind), hidden, "sigma")
                for model in run.model.values
                for kind, title in _DIVERSE.items()
            ),
            columns=3,
        ),
        Figure(
            name="budget",
            title="A budget of steps is used up by the scale of the start, and twice as fast by unequal weights",
            caption=f"Share of starts in which an output is below half its target at s = {budget:g} (steps times the "
            "learning rate times the larger strength). Dots: where the median of the predicted last stage is as late "
            f"as that. Top: σ = {_near(run, 'sigma'):g}; bottom: diversity in both concepts, at an initial scale of "
            f"{_near(run, 'scale'):g}.",
            panels=tuple(
                _map(f"{_NAMES[model]}", late.sel(model=model, diverse="both"), slow, x)
                for x in ("scale", "sigma")
                for model in run.model.values
            ),
            columns=2,
        ),
        _collapse(run),
    ]


def _near(run: xr.Dataset, axis: str) -> float:
    return float(run[axis].sel({axis: {"sigma": _SIGMA, "scale": _SCALE}[axis]}, method="nearest"))


def _map(title: str, failed: xr.DataArray, excess: xr.DataArray, x: str) -> Panel:
    """Draw the share that fails over x and the ratio, with the border where the predicted excess is 1."""
    left_out = "sigma" if x == "scale" else "scale"
    at = {left_out: {"sigma": _SIGMA, "scale": _SCALE}[left_out]}
    shown = failed.sel(at, method="nearest").transpose("ratio", x)
    predicted = excess.sel({name: failed[name] for name in ("model", "diverse")})
    predicted = predicted.sel(at, method="nearest").transpose("ratio", x)
    across, along = np.log10(shown[x].values), np.log2(shown["ratio"].values)
    heat = Heat(x=across, y=along, z=shown.values, label="share that fails", range=(0.0, 1.0))
    return Panel(
        title=title,
        x=Axis(_AXES[x]),
        y=Axis("log₂ ratio of μ"),
        marks=(heat, *_border(across, along, np.log(predicted.values))),
    )


def _border(x: np.ndarray, y: np.ndarray, excess: np.ndarray) -> tuple[Line, ...]:
    """Return dots where values on a grid, (len(y), len(x)), pass 0 along its lines."""
    dots = []
    for places, others, values, turned in ((y, x, excess.T, False), (x, y, excess, True)):
        for other, row in zip(others, values, strict=True):
            for k in np.flatnonzero(row[1:] * row[:-1] < 0):
                part = row[k] / (row[k] - row[k + 1])
                place = places[k] + part * (places[k + 1] - places[k])
                dots.append((place, other) if turned else (other, place))
    if not dots:
        return ()
    across, along = np.array(dots).T
    return (Line(x=across, y=along, style="points", group=_BORDER, color=1, width=4.0),)


def _collapse(run: xr.Dataset) -> Figure:
    """Draw every cell at the smallest scale on one curve, and times against their prediction."""
    done = run.attrs["done"]
    small = run.isel(scale=0)
    shares = np.geomspace(float(run.share.min()), 0.5, 300)
    outputs = [
        Line(
            x=shares,
            y=np.maximum(0.0, 1 - np.sqrt(done / shares)),
            group="theory",
            color=7,
            style="dashed",
        )
    ]
    times = []
    for color, model in enumerate(run.model.values):
        one = small.sel(model=model)
        for lines, x, y in (
            (outputs, small.share, one.at_stop.mean("start")),
            (times, one.predicted.median("start"), one.learned.median("start", skipna=False)),
        ):
            x, y = (of.transpose("diverse", "ratio", "sigma").values.ravel() for of in (x, y))
            order = np.argsort(x)
            lines.append(Line(x=x[order], y=y[order], group=_NAMES[str(model)], color=color, style="points", width=3.5))
    ends = (
        np.array([float(np.nanmin(line.y)) for line in times]),
        np.array([float(np.nanmax(line.y)) for line in times]),
    )
    diagonal = np.array([ends[0].min(), ends[1].max()])
    times.append(Line(x=diagonal, y=diagonal, group="theory", color=7, style="dashed"))
    time = "s at which both concepts are learned"
    return Figure(
        name="collapse",
        title="One number tells what is left unlearned, and the Schur complements of the start tell when it will be",
        caption=f"A dot for each cell of the grid, at the smallest scale, {float(small.scale):g}. Left: mean of the "
        "smaller output when training stops, against the weaker concept's share of the first training loss. Right: "
        "median time at which it passes one half, against the predicted one.",
        panels=(
            Panel(title="output at the stop", x=Axis("share", scale="log"), y=Axis("output"), marks=tuple(outputs)),
            Panel(
                title="times", x=Axis(f"{time}, predicted", scale="log"), y=Axis(time, scale="log"), marks=tuple(times)
            ),
        ),
    )
