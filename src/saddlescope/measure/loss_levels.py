"""Levels of a record that only decreases, up to one level of noise: the loss of a full data set, or a singular value.

    y        the decreasing function nearest to the record (isotonic regression)
    fall     d, a tenth of the smallest drop that counts or three standard deviations of the noise
    dwell    tau(t), the time y takes to fall from y(t) + d/2 to y(t) - d/2

A level is a maximum of the dwell time, a drop a minimum. Where the record is flat to within the noise, tau is the
length of the level. For records of training as they are logged, see `saddlescope.measure.loss_drops`.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import scipy  # its submodules, a second together, are loaded where first used

from saddlescope.measure.loss_drops import (
    NORMAL_MEDIAN,
    TILT,
    crossing,
    enter_and_leave,
    longest_dwells,
    with_midpoints,
)
from saddlescope.measure.records import Series, extreme_exponent


@dataclass(frozen=True)
class LevelPolicy:
    """Thresholds of a level, tuned on staircases of `benchmarks/synthetic_staircases.py` with seeds that no test uses.

    Attributes:
        contrast: of the speeds in a drop and on the levels beside it.
        drop: smallest drop that counts, in units of the range.
        noises: the fall d in standard deviations of the noise: flat parts of y stray by about one from end to end.
        part: the fall d without noise, as a part of the smallest drop.
        parts, fewest: parts of the record in which noise is estimated, and the fewest samples in one.
    """

    contrast: float = 8.0
    drop: float = 0.02
    noises: float = 3.0
    part: float = 0.1
    parts: int = 8
    fewest: int = 15


POLICY = LevelPolicy()


@dataclass(frozen=True)
class Level:
    """A level: the time half-way down to it from the one before, those between which it is flat, its mean height."""

    start: float
    begin: float
    end: float
    height: float


def find_levels(t: Series, loss: Series, *, contrast: float = POLICY.contrast) -> list[Level]:
    """Return the levels of a record, the first of which starts with it.

    Two are distinguished if between them the record falls at least `contrast` times as fast as on either, by at least
    2 % of its range and by three standard deviations of the noise.
    """
    exponent = extreme_exponent(loss)
    loss = np.ldexp(loss, -exponent)  # sums of the largest numbers overflow
    typical = scipy.ndimage.median_filter(loss, size=3, mode="nearest")
    fit = scipy.optimize.isotonic_regression(typical, increasing=False).x
    least = POLICY.drop * float(fit[0] - fit[-1])
    fall = max(POLICY.part * least, POLICY.noises * _noise(loss, fit))
    if not fall > 0:
        return [Level(float(t[0]), float(t[0]), float(t[-1]), math.ldexp(float(loss[0]), exponent))]
    finer, finer_fit = with_midpoints(t), with_midpoints(fit)  # a drop may be between two samples
    enter, leave = enter_and_leave(finer, finer_fit, fall)
    levels = _distinguished(finer_fit, leave - enter, contrast, max(least, fall))
    heights = [float(np.mean(typical[part_of(t, enter[i], leave[i], 0.25, 0.75)])) for i in levels]
    starts = [float(t[0])]
    for (one, following), (high, low) in zip(itertools.pairwise(levels), itertools.pairwise(heights), strict=True):
        half = (high + low) / 2
        below = one + 1 + int(np.argmax(finer_fit[one + 1 : following + 1] <= half))
        starts.append(float(crossing(finer, finer_fit, np.array([below - 1]), np.array([half]))[0]))
    return [
        Level(start, float(enter[i]), float(leave[i]), math.ldexp(height, exponent))
        for start, i, height in zip(starts, levels, heights, strict=True)
    ]


def part_of(t: Series, start: float, stop: float, first: float, last: float) -> np.ndarray:
    """Return the records in a part of the steps from start to stop, or the one nearest to its middle."""
    low, high = start + first * (stop - start), start + last * (stop - start)
    inside = np.flatnonzero((t >= low) & (t <= high))
    return inside if len(inside) else np.argmin(np.abs(t - (low + high) / 2), keepdims=True)


def _noise(loss: Series, fit: Series) -> float:
    """Estimate the standard deviation of the losses about a decreasing function, where it is largest.

    Medians of second differences, which do not depend on the slope, over the full record; and of the residuals of the
    fit, which include slow fluctuations, over parts of it: training is often quiet on the first plateau, noisy later.
    """
    size = max(POLICY.fewest, len(loss) // POLICY.parts)
    starts = range(0, max(len(loss) - size, 0) + 1, max(size // 2, 1))
    second, away = np.abs(np.diff(loss, 2)) / math.sqrt(6), np.abs(loss - fit)
    parts = [second, *(away[start : start + size] for start in starts)]
    return max(float(np.median(part)) for part in parts) / NORMAL_MEDIAN


def _distinguished(fit: Series, dwell: Series, contrast: float, least: float) -> list[int]:
    """Return the sample of longest dwell on each level, in order."""
    found = longest_dwells(np.log(dwell) - TILT * np.arange(len(dwell)), contrast)
    while len(found) > 1:
        drops = [fit[one] - fit[following] for one, following in itertools.pairwise(found)]
        k = int(np.argmin(drops))
        if drops[k] >= least:
            break
        del found[k if dwell[found[k]] < dwell[found[k + 1]] else k + 1]
    return found
