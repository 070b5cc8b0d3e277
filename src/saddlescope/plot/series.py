"""What both ways of drawing share: which marks form a series, its colour, and the points that are worth drawing."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np

from saddlescope.plot.figure import AnyMark, Axis, Band, Figure, Heat, Kinds, Line, Mark, Panel, Picture

MOST_POINTS = 3000
"""Points of a curve beyond which it is thinned: more than a screen has columns."""


@dataclass(frozen=True)
class Series:
    """One entry of a figure's legend: what is switched on and off together, in all panels.

    Attributes:
        name: of the group, or the label of what has no group.
        color: index into the palette; None is neutral.
        shape: how the legend shows it: a style of `Line`, "band", "mark", or "kind", which has no switch.
    """

    name: str
    color: int | None
    shape: str


def name_of(mark: AnyMark) -> str:
    """The name of the series a mark belongs to; empty when it is not in the legend."""
    if isinstance(mark, Heat | Kinds):
        return ""
    if isinstance(mark, Mark | Picture):
        return mark.group
    return mark.group or mark.label


def color_series(
    figure: Figure,
) -> Iterator[tuple[Panel, list[tuple[AnyMark, int | None]]]]:
    """The panels, each with its marks and the palette index of each: its own, that of its series, or a free one."""
    known: dict[str, int | None] = {}
    given = {color for panel in figure.panels for mark in panel.marks for color in _given(mark)}
    free = (index for index in count() if index not in given)
    for panel in figure.panels:
        colored = []
        for mark in panel.marks:
            name, color = name_of(mark), None if isinstance(mark, Heat | Kinds) else mark.color
            if color is None and name in known:
                color = known[name]
            elif color is None and isinstance(mark, Line | Band):
                color = next(free)
            if name and not isinstance(mark, Picture):
                known.setdefault(name, color)
            colored.append((mark, color))
        yield panel, colored


def _given(mark: AnyMark) -> set[int | None]:
    """The palette indices that a mark names."""
    if isinstance(mark, Kinds):
        return {kind.color for kind in mark.kinds}
    return set() if isinstance(mark, Heat) else {mark.color}


def legend(figure: Figure) -> tuple[Series, ...]:
    """The legend in the order in which its series first appear; a curve shows a series better than its band."""
    found: dict[str, Series] = {}
    for _, marks in color_series(figure):
        for mark, color in marks:
            if isinstance(mark, Kinds):
                told = (Series(f"{kind.sign} {kind.name}", kind.color, "kind") for kind in mark.occurring)
                found |= {series.name: series for series in told}
            name = "" if isinstance(mark, Picture) else name_of(mark)
            if not name or (name in found and not (found[name].shape == "band" and isinstance(mark, Line))):
                continue
            shape = mark.style if isinstance(mark, Line) else "band" if isinstance(mark, Band) else "mark"
            found[name] = Series(name, color, shape)
    return tuple(found.values())


MOST_NAMES = 14
"""Names along an axis beyond which some are left out: more would overlap."""
MOST_APART = 16
"""Cells along an axis beyond which they touch: gaps between more would be wider than the cells."""
_LONGEST = 22  # letters of a name along an axis


def named_ticks(axis: Axis) -> tuple[list[int], list[str]]:
    """Where names stand along an axis that has some, and the names, shortened; evenly thinned where there are many."""
    places = list(range(0, len(axis.names), -(-len(axis.names) // MOST_NAMES)))
    return places, [shortened(axis.names[place]) for place in places]


def shortened(name: str) -> str:
    """The name, or the beginning of a long one."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def thin(x: np.ndarray, *curves: np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """Indices of at most about `most` points that keep the look of the curves over x, linear or logarithmic.

    The points are cut into equally full bins and, when x rises and is positive, into bins of equal width in log x. Of
    each bin the least and the greatest value of each curve stay, and one NaN, which breaks a curve; the ends stay.

    Args:
        x: positions, shape (n,).
        curves: values over x, each of shape (n,).
        most: the number of points beyond which anything is left out.

    Returns:
        Rising indices into x.
    """
    n = len(x)
    if n <= most:
        return np.arange(n)
    bins = [np.linspace(0, n, most // (4 * len(curves)) + 1)]
    if x[0] >= 0 and x[-1] > 0 and bool((np.diff(x) >= 0).all()):
        smallest = x[x > 0][0]
        bins.append(np.searchsorted(x, np.geomspace(smallest, x[-1], len(bins[0]))))
    keep = {0, n - 1}
    for edges in bins:
        edges = np.unique(edges.astype(int))
        for start, stop in pairwise(edges):
            for curve in curves:
                part = curve[start:stop]
                broken = np.isnan(part)
                if broken.any():
                    keep.add(int(start + broken.argmax()))
                if not broken.all():
                    keep |= {int(start + np.nanargmin(part)), int(start + np.nanargmax(part))}
    return np.array(sorted(keep))


def corners(x: np.ndarray, y: np.ndarray, tolerance: float) -> np.ndarray:
    """Indices of the points between which straight lines stay within `tolerance` of the curve (Douglas and Peucker).

    Made for staircases: what is flat or straight keeps its two ends only.

    Args:
        x: positions, shape (n,), rising.
        y: values there, shape (n,), without NaN.
        tolerance: the largest vertical distance, in the unit of y.

    Returns:
        Rising indices into x, the ends among them.
    """
    keep = {0, len(x) - 1}
    open_pieces = [(0, len(x) - 1)]
    while open_pieces:
        start, stop = open_pieces.pop()
        if stop - start < 2:
            continue
        inner = slice(start + 1, stop)
        chord = y[start] + (y[stop] - y[start]) * (x[inner] - x[start]) / (x[stop] - x[start])
        distance = np.abs(y[inner] - chord)
        if distance.max() > tolerance:
            middle = start + 1 + int(distance.argmax())
            keep.add(middle)
            open_pieces += [(start, middle), (middle, stop)]
    return np.array(sorted(keep))


def positive(values: np.ndarray) -> np.ndarray:
    """The values with NaN for what has no logarithm, so that a curve breaks there."""
    values = np.asarray(values, float)
    return np.where(values > 0, values, np.nan)


def lifted(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A band's edges for a logarithmic axis: what is not positive moves to the smallest positive edge."""
    edges = positive(np.concatenate([low, high]))
    floor = np.nanmin(edges) if np.isfinite(edges).any() else np.nan
    return (np.where(np.asarray(low) > 0, low, floor), np.where(np.asarray(high) > 0, high, floor))
