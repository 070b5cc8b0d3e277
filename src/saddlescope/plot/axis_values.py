"""The values that marks have along an axis, and axes on which they are all integers."""

from typing import Literal

import numpy as np

from saddlescope.figures.records import AnyMark, Axis, Band, Mark, Panel


def values_along(panel: Panel, name: Literal["x", "y"]) -> np.ndarray:
    """Return all finite values that the marks of a panel have along an axis, shape (value,)."""
    parts = [np.ravel(np.asarray(part, float)) for mark in panel.marks for part in _along(mark, name)]
    values = np.concatenate(parts) if parts else np.zeros(0)
    return values[np.isfinite(values)]


def has_integers(panel: Panel, name: Literal["x", "y"]) -> bool:
    """Return True for a linear axis with integers alone, such as ranks and layers; its ticks are integers."""
    axis: Axis = getattr(panel, name)
    if axis.scale != "linear" or axis.names:
        return False
    values = values_along(panel, name)
    return bool(values.size and np.ptp(values) >= 1 and (values == np.round(values)).all())


def _along(mark: AnyMark, name: Literal["x", "y"]) -> tuple[np.ndarray | float, ...]:
    match mark:
        case Mark():
            return (mark.at,) if mark.axis == name else ()
        case Band() if name == "y":
            return (mark.low, mark.high)
        case _:
            return (getattr(mark, name),)
