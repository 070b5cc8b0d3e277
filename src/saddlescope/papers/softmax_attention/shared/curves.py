"""Panels of several flows under one name, and curves of shares of trials with 95 % intervals."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from saddlescope.plot import Axis, Band, Line, Panel
from saddlescope.plot.figure import AnyMark
from saddlescope.reproduction.claim import wilson_interval


def flow_panel(
    title: str,
    x: Axis,
    y: Axis,
    time: np.ndarray,
    groups: Mapping[str, ArrayLike],
    *,
    first: int = 0,
    width: float = 1.0,
    opacity: float = 0.6,
    floor: float = -np.inf,
    more: Iterable[AnyMark] = (),
) -> Panel:
    """Draw flows against time: one line per flow, one colour per group from the index `first` on, and other marks.

    The last axis of the values of a group is that of time; values below the floor are drawn there.
    """
    lines = [
        Line(x=time, y=row, group=group, color=color, width=width, opacity=opacity)
        for color, (group, values) in enumerate(groups.items(), first)
        for row in np.maximum(np.asarray(values, float), floor).reshape(-1, len(time))
    ]
    return Panel(title=title, x=x, y=y, marks=(*lines, *more))


def share_curve(x: np.ndarray, counts: np.ndarray, trials: np.ndarray, label: str, color: int) -> list[Line | Band]:
    """Draw the shares of the counts in the trials against x, with Wilson's intervals."""
    of = np.maximum(trials, 1)
    low, high = np.array([wilson_interval(count, n) for count, n in zip(counts, of, strict=True)]).T
    return [Band(x=x, low=low, high=high, group=label, color=color), Line(x=x, y=counts / of, group=label, color=color)]
