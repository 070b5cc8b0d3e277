"""Shares of trials as they are drawn: a curve with its 95 % interval."""

import numpy as np

from saddlescope.plot import Band, Line
from saddlescope.reproduction.claim import wilson_interval


def share_marks(
    x: np.ndarray, counts: np.ndarray, trials: np.ndarray, label: str, color: int, *, points: bool = False
) -> list[Line | Band]:
    """What part the counts are of the trials at each place on x, with Wilson's intervals."""
    of = np.maximum(trials, 1)
    low, high = np.array([wilson_interval(count, n) for count, n in zip(counts, of, strict=True)]).T
    style = "points" if points else "solid"
    return [
        Band(x=x, low=low, high=high, group=label, color=color),
        Line(x=x, y=counts / of, group=label, color=color, style=style),
    ]
