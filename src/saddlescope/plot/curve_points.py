"""Points of curves worth drawing: thinned, reduced to corners, or moved onto logarithmic axes."""

from itertools import pairwise

import numpy as np

MOST_POINTS = 3000
"""Largest number of points of a curve that is not thinned: more than a screen has columns."""


def thin(x: np.ndarray, *curves: np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """Return indices of about `most` points that keep the look of the curves over x, linear or logarithmic.

    The points are divided into equally full bins and, if x rises and is positive, into bins of equal width in log x.
    The least and the greatest value of each curve in each bin stay, one NaN, which breaks a curve, and both ends.

    Args:
        x: positions, shape (n,).
        curves: values over x, each of shape (n,).
        most: the largest number of points that is not thinned.

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
    """Return indices of points whose connecting lines stay within `tolerance` of the curve (Douglas and Peucker).

    For staircases: flat or straight pieces keep their two ends only.

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
    """Return the values, with NaN where they are not positive, so that a curve on a logarithmic axis breaks there."""
    values = np.asarray(values, float)
    return np.where(values > 0, values, np.nan)


def lifted(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a band's edges for a logarithmic axis: edges that are not positive move to the smallest positive one."""
    edges = positive(np.concatenate([low, high]))
    floor = np.nanmin(edges) if np.isfinite(edges).any() else np.nan
    return (np.where(np.asarray(low) > 0, low, floor), np.where(np.asarray(high) > 0, high, floor))
