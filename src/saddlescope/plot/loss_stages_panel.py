"""Picture of a recorded loss: raw and smoothed, with its plateaus as bands and its drops as lines."""

from typing import Any

import numpy as np

from saddlescope.plot.figure import AnyMark, Axis, Band, Line, Mark, Panel

_POINTS = 4000  # of the raw loss: more cannot be seen


def loss_stages_panel(found: Any) -> Panel:
    """Return the panel of a `LossStages`; its axes are logarithmic where it says so, and it has the entire record."""
    x, y = _thinned(found.steps, found.losses)
    shift = found.log_steps and x[0] <= 0  # a logarithmic axis has no 0: it begins at the first step after it
    if shift:
        y, x = y[x > 0], x[x > 0]
    low, high = float(np.min(y)), float(np.max(y))
    marks: list[AnyMark] = [
        _band(max(one.begin, float(x[0])), one.end, low, high, group="plateau", color=5) for one in found.plateaus
    ]
    for drop in found.drops:
        if drop.latest > drop.earliest:
            marks.append(_band(drop.earliest, drop.latest, low, high, group="drop", color=1))
        marks.append(Mark(at=drop.step, group="drop", color=1))
    marks.append(Line(x=x, y=y, width=0.8, opacity=0.45, color=0))
    marks.append(Line(x=found.smooth_steps, y=found.smooth_losses, width=2.0, color=0))
    return Panel(
        x=Axis("step", scale="log" if found.log_steps else "linear", range=(float(x[0]), float(x[-1]))),
        y=Axis("loss", scale="log" if found.log_loss else "linear"),
        marks=tuple(marks),
        title=_title(found),
    )


def _title(found: Any) -> str:
    if not found.drops:
        return "no drop; plateau in colour" if found.plateaus else "no drop"
    steps = ", ".join(f"{drop.step:.4g}" for drop in found.drops[:6]) + (", …" if len(found.drops) > 6 else "")
    return f"drops at step {steps}; plateaus in colour"


def _band(first: float, last: float, low: float, high: float, *, group: str, color: int) -> Band:
    return Band(x=np.array([first, last]), low=np.full(2, low), high=np.full(2, high), group=group, color=color)


def _thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and greatest of every few neighbours."""
    size = -(-2 * len(x) // _POINTS)
    if size <= 2:
        return x, y
    starts = np.arange(0, len(x), size)
    low, high = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
    return np.repeat(x[starts], 2), np.stack([low, high], axis=1).ravel()
