"""Labels of curves, written beside them in their colours where there is room, so that no legend is needed."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy.ndimage import distance_transform_edt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CELL = 3.0  # side of a cell of the map of curves, pixels
_ANCHORS = 90  # places along a curve at which its label is tried
_DISTANCES = (7.0, 18.0, 34.0)  # of a label from its curve, points
_LEADER = 12.0  # points from which on a line connects label and curve
_APART = 22.0  # points from other curves at which a place on a curve is its own


@dataclass(frozen=True)
class LabelledCurve:
    """A drawn curve that wants a label: its text, its colour as #rrggbb, and its points in data coordinates."""

    text: str
    color: str
    x: np.ndarray
    y: np.ndarray


def label_curves(ax: "Axes", curves: list[LabelledCurve], *, size: float = 8.5) -> list[LabelledCurve]:
    """Write the label of each curve where it covers no curve and no other label, and where no other curve is near.

    Args:
        ax: axes on which everything has been drawn: the places are those of its present size and limits.
        curves: all curves to keep clear of; those with an empty text get no label.
        size: of the font, points.

    Returns:
        The curves whose labels find no such place, and are not written.
    """
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # a layout engine may move the axes
    drawn = [_pixels(ax, curve) for curve in curves]
    maps = [_map(points, ax) for points in drawn]
    counts = np.sum(maps, axis=0) if maps else np.zeros((1, 1))
    scale, taken = figure.dpi / 72, np.zeros_like(counts)
    left_out = []
    for curve, points, own in zip(curves, drawn, maps, strict=True):
        if not curve.text or not len(points):
            continue
        text = ax.annotate(
            curve.text, (0, 0), xytext=(0, 0), textcoords="offset points", color=curve.color, fontsize=size,
            parse_math=False, ha="center", va="center", annotation_clip=False,
        )  # fmt: skip
        extent = text.get_window_extent()
        half = np.array([extent.width, extent.height]) / 2
        place = _best_place(points, own, counts - own, taken, half, scale)
        if place is None:
            text.remove()
            left_out.append(curve)
            continue
        anchor, centre = place
        low, high = _cells(centre - half), _cells(centre + half) + 1
        taken[max(low[1], 0) : high[1], max(low[0], 0) : high[0]] = 1
        origin = np.array(ax.bbox.extents[:2])
        text.xy = tuple(ax.transData.inverted().transform(anchor + origin))
        text.set_position(tuple((centre - anchor) / scale))
        _lead(ax, text.xy, (centre - anchor) / scale, half / scale, curve.color)
    return left_out


def _lead(ax: "Axes", xy: tuple[float, float], offset: np.ndarray, half: np.ndarray, color: str) -> None:
    """Connect a label that is not beside its curve with the point that it names; lengths are in points."""
    edge = offset - np.clip(offset, -half, half)
    if np.linalg.norm(edge) > _LEADER:
        ax.annotate(
            "", xy, xytext=tuple(edge), textcoords="offset points", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 1},
        )  # fmt: skip


def _pixels(ax: "Axes", curve: LabelledCurve) -> np.ndarray:
    """Return points along a curve, no further apart than a cell, in pixels from the corner of the axes, (n, 2)."""
    points = ax.transData.transform(np.column_stack([curve.x, curve.y]).astype(float)) - ax.bbox.extents[:2]
    dense = [points[:1]]
    for start, stop in pairwise(points):
        length = float(np.hypot(*(stop - start)))
        if np.isfinite(length):
            parts = min(2000, int(length / _CELL) + 1)
            dense.append(start + np.arange(1, parts + 1)[:, None] / parts * (stop - start))
        else:  # after a gap: a point that nothing connects with the one before
            dense.append(stop[None])
    found = np.concatenate(dense)
    with np.errstate(invalid="ignore"):
        return found[((found >= 0) & (found <= [ax.bbox.width, ax.bbox.height])).all(1)]


def _cells(points: np.ndarray) -> np.ndarray:
    return np.floor(points / _CELL).astype(int)


def _map(points: np.ndarray, ax: "Axes") -> np.ndarray:
    """Return 1 in the cells that a curve passes, shape (rows, columns)."""
    passed = np.zeros((int(ax.bbox.height / _CELL) + 1, int(ax.bbox.width / _CELL) + 1))
    columns, rows = _cells(points).T
    passed[rows, columns] = 1
    return passed


def _best_place(
    points: np.ndarray, own: np.ndarray, others: np.ndarray, taken: np.ndarray, half: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the point on the curve and the centre of its label with the least cost, in pixels; None if all collide."""
    anchors = points[np.unique(np.linspace(0, len(points) - 1, _ANCHORS).astype(int))]
    to_own, to_others = (_distances(passed) for passed in (own, others))
    angles = np.arange(8) * np.pi / 4
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    offsets = np.array([direction * (half + d * scale) for d in _DISTANCES for direction in directions])
    centres = (anchors[:, None] + offsets[None]).reshape(-1, 2)
    cost = np.tile(np.repeat(_DISTANCES, 8) / 2, len(anchors))
    cost += np.repeat(np.maximum(0, _APART * scale - _at(to_others, anchors)), len(offsets)) / scale

    extent = np.array(own.shape[::-1]) * _CELL
    collides = ((centres - half < 2) | (centres + half > extent - 2)).any(1)
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 9), np.linspace(-1, 1, 5)), axis=-1).reshape(-1, 2)
    inside = centres[:, None] + grid[None] * (half + 2 * scale)
    collides |= _at(taken, inside).any(1)
    mine, theirs = _at(to_own, inside).min(1), _at(to_others, inside).min(1)
    collides |= np.minimum(mine, theirs) < 1.5 * _CELL
    cost += 25.0 * (theirs < mine + 3 * scale)  # beside another curve the label would name that one
    if collides.all():
        return None
    best = int(np.argmin(np.where(collides, np.inf, cost)))
    return anchors[best // len(offsets)], centres[best]


def _distances(passed: np.ndarray) -> np.ndarray:
    """Return the distance of each cell from the nearest that is passed, in pixels; large if none is."""
    if not passed.any():
        return np.full(passed.shape, 1e4)
    distances = distance_transform_edt(passed == 0)
    assert isinstance(distances, np.ndarray)
    return distances * _CELL


def _at(values: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the values in the cells of some points; outside the axes those at the edge."""
    columns, rows = np.moveaxis(_cells(points), -1, 0)
    return values[np.clip(rows, 0, values.shape[0] - 1), np.clip(columns, 0, values.shape[1] - 1)]
