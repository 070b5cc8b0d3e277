"""Curves of several flows under one name, and of shares of trials with 95 % intervals."""

import numpy as np

from saddlescope.plot import Band, Line
from saddlescope.reproduction.claim import wilson_interval


def flow_curves(
    x: np.ndarray, values: np.ndarray, group: str, color: int, *, width: float = 1.0, opacity: float = 0.6
) -> list[Line]:
    """Return one line per flow, all of one group; the last axis of the values is that of x."""
    rows = np.reshape(values, (-1, len(x)))
    return [Line(x=x, y=row, group=group, color=color, width=width, opacity=opacity) for row in rows]


def share_curve(
    x: np.ndarray, counts: np.ndarray, trials: np.ndarray, label: str, color: int, *, points: bool = False
) -> list[Line | Band]:
    """Draw the shares of the counts in the trials against x, with Wilson's intervals."""
    of = np.maximum(trials, 1)
    low, high = np.array([wilson_interval(count, n) for count, n in zip(counts, of, strict=True)]).T
    style = "points" if points else "solid"
    return [
        Band(x=x, low=low, high=high, group=label, color=color),
        Line(x=x, y=counts / of, group=label, color=color, style=style),
    ]
