"""Roots of many polynomials on [0, 1] at once, for the turns of a loss within a step; and the turns that persist.

In Bernstein's basis the number of changes of sign among the coefficients bounds the number of roots: none means no
root, one means exactly one (Descartes' rule). So nothing is sampled, and no pair of roots can be missed: where there
are more changes the interval is halved until there are not (Vincent's theorem).
"""

from functools import cache
from math import comb

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.polynomial.polynomial import polyval

_HALVINGS = 40  # of an interval, after which only a root of even multiplicity to rounding remains, thus no turn
_BISECTIONS = 52


@cache
def _to_bernstein(count: int) -> np.ndarray:
    degree = count - 1
    return np.array([[comb(i, k) / comb(degree, k) for k in range(count)] for i in range(count)])


def bernstein(coefficients: Float[np.ndarray, "q n"]) -> Float[np.ndarray, "q n"]:
    """Return Bernstein coefficients on [0, 1] of polynomials given by powers; the first and last are end values."""
    return _to_bernstein(len(coefficients)) @ coefficients


def sign_changes(b: Float[np.ndarray, "q n"]) -> Int[np.ndarray, "n"]:
    """Return the number of changes of sign among the coefficients of each column; zeros do not count."""
    signs = np.sign(b)
    for i in range(1, len(signs)):  # a zero takes the sign before it
        signs[i] = np.where(signs[i] == 0, signs[i - 1], signs[i])
    return np.sum(signs[1:] * signs[:-1] < 0, axis=0)


def turning_points(coefficients: Float[np.ndarray, "q n"]) -> tuple[Int[np.ndarray, "k"], Float[np.ndarray, "k"]]:
    """Find the points in (0, 1) at which polynomials change sign.

    Args:
        coefficients: of the powers 0 to q - 1, one polynomial per column.

    Returns:
        The column and the point of each change of sign.
    """
    columns, left, width = np.arange(coefficients.shape[1]), np.zeros(coefficients.shape[1]), 1.0
    b = bernstein(coefficients)
    owners, lows, highs = [], [], []
    for _ in range(_HALVINGS):
        changes = sign_changes(b)
        one, more = changes == 1, changes > 1
        owners.append(columns[one])
        lows.append(left[one])
        highs.append(left[one] + width)
        if not more.any():
            break
        columns, left, b, width = columns[more], left[more], b[:, more], width / 2
        first, second = _halves(b)
        at_half = np.flatnonzero(second[0] == 0)  # a root there would be in neither open half: now in the second
        second[0, at_half] = first[-1, at_half] = np.sign(first[-2, at_half]) * np.finfo(float).tiny
        columns, left = np.concatenate([columns, columns]), np.concatenate([left, left + width])
        b = np.concatenate([first, second], axis=1)
    owner = np.concatenate(owners)
    return owner, _bisect(coefficients[:, owner], np.concatenate(lows), np.concatenate(highs))


def persistent(
    owners: Int[np.ndarray, "k"],
    values: Float[np.ndarray, "k"],
    first: Float[np.ndarray, "n"],
    last: Float[np.ndarray, "n"],
    least: "float | Float[np.ndarray, 'k']",
) -> Bool[np.ndarray, "k"]:
    """Return a mask of the turns that remain when rises and falls of at most `least` are removed, smallest first.

    Args:
        owners: the curve of each turn, ascending.
        values: of the curves at their turns, in the order of time on each curve.
        first: first value of each curve.
        last: last value of each curve.
        least: the size that rises and falls must exceed, of all turns or of each; between two turns, the larger one.
    """
    own = np.broadcast_to(least, values.shape)
    keep = np.ones(len(owners), bool)
    same = owners[1:] == owners[:-1]
    before, after = first[owners], last[owners]
    before[1:][same], after[:-1][same] = values[:-1][same], values[1:][same]
    small = np.minimum(np.abs(values - before), np.abs(values - after)) <= own
    small[1:] |= same & (np.abs(values[1:] - values[:-1]) <= own[:-1])
    small[:-1] |= same & (np.abs(values[1:] - values[:-1]) <= own[1:])
    for owner in np.unique(owners[small]):
        turns = list(range(*np.searchsorted(owners, [owner, owner + 1])))
        while turns:
            steps = np.abs(np.diff([first[owner], *values[turns], last[owner]]))
            allowed = np.array([0.0, *own[turns], 0.0])
            excess = steps - np.maximum(allowed[1:], allowed[:-1])
            j = int(np.argmin(excess))
            if excess[j] > 0:
                break
            for turn in turns[max(j - 1, 0) : j + 1]:  # the ends of this rise or fall, where they are turns
                keep[turn] = False
            del turns[max(j - 1, 0) : j + 1]
    return keep


def _halves(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients on [0, 1/2] and on [1/2, 1], by de Casteljau's scheme."""
    first, second, now = np.empty_like(b), np.empty_like(b), b
    for i in range(len(b)):
        first[i], second[len(b) - 1 - i] = now[0], now[-1]
        now = (now[1:] + now[:-1]) / 2
    return first, second


def _bisect(coefficients: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the roots between low and high, one for each column, by bisection to the last bit."""
    rising = _value(coefficients, high) > _value(coefficients, low)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        before = (_value(coefficients, middle) < 0) == rising
        low, high = np.where(before, middle, low), np.where(before, high, middle)
    return (low + high) / 2


def _value(coefficients: np.ndarray, at: np.ndarray) -> np.ndarray:
    return polyval(at, coefficients, tensor=False)
