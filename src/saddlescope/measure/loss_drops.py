"""Drops of a recorded loss between plateaus, in noise, with spikes, over decades of the loss and of the steps.

    bins     medians of the losses: single records early, a part of the record late, as many as the noise permits
    fit      the decreasing function nearest to them in the mean of |distance| (isotonic regression of medians): spikes,
             oscillations and outliers do not move it
    fall     d, from 2 % to a third of the range of the fit
    dwell    tau(t), the time the fit takes to fall from d/2 above its value at t to d/2 below it

On a plateau the dwell time is long, in a drop it is short; as times are compared with times nearby, the axis of the
steps does not matter. A drop is a minimum of the dwell time, at a d of about its own size, between two maxima at least
three times as long: so a curve that only slows down, as a power law or an exponential decay does, has none. Losses over
more than one decade are searched twice, in the loss and in its logarithm. A drop of the logarithm is one of the loss,
too, which falls faster than before: a steady fall to 0 has none, though its logarithm falls faster and faster.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import scipy  # its submodules, a second together, are loaded where first used
from jaxtyping import Float, Int

from saddlescope.measure.records import Series

FEWEST = 5  # fewer records cannot show two plateaus


@dataclass(frozen=True)
class DropPolicy:
    """Thresholds of a drop, tuned on curves of `tests/measure/loss_curves.py` with seeds that no test uses.

    Attributes:
        contrast: of the speeds in a drop and on the plateaus beside it.
        fall, finer: least d, in units of the range, and the ratio of a d to the next one.
        falls: number of d on an axis of the loss.
        log_fall: least d of the logarithm of a loss over many decades: drops by half are seen.
        sizes: of a drop in units of the d at which it is found.
        visible, clear: least sizes of a drop in units of the range: in any noise, and with no rise above a third of it.
        noises: least d in standard deviations of the noise.
        decades: ratio of the losses from which their logarithm is searched, too.
        brief: part of the record: a lower loss or a rise that lasts no longer was a spike.
        resolutions: numbers of late bins of a record, the first of which with little noise is taken.
        certain: share of the random halves of the records: drops found in fewer are noise.
        halves: number of random halves.
        initial: least fall before the first plateau, in units of the range.
        early: part of the record: what happens before needs logarithmic steps to be seen.
    """

    contrast: float = 3.0
    fall: float = 0.02
    finer: float = 1.5
    falls: int = 8
    log_fall: float = 0.3
    sizes: tuple[float, float] = (2.0, 6.0)
    visible: float = 0.1
    clear: float = 0.035
    noises: float = 2.0
    decades: float = 10.0
    brief: float = 0.1
    resolutions: tuple[int, ...] = (800, 400, 200, 100, 50)
    certain: float = 1 / 3
    halves: int = 10
    initial: float = 0.05
    early: float = 0.05


POLICY = DropPolicy()
NORMAL_MEDIAN = 0.6745  # of |z|, z a normal variable
TILT = 1e-12  # per sample: find_peaks would return every one of several equal maxima


@dataclass(frozen=True)
class Fall:
    """A drop: steps at which it begins, is half-way down in the loss, and ends; False if the record ends in it."""

    begin: float
    middle: float
    end: float
    finished: bool


@dataclass(frozen=True)
class Bins:
    """Medians of a record.

    Attributes:
        steps: (n,), the mean step of each bin.
        losses: (n,), the median loss of each bin.
        log: True if the losses are positive and extend over more than a decade.
    """

    steps: Series
    losses: Series
    log: bool


@dataclass(frozen=True)
class View:
    """The losses on one axis (n,), their fit (n,), their noise (n,), its fast part (n,), and the range of the fit."""

    heights: Series
    fit: Series
    noise: Series
    jitter: Series
    range: float


def binned(t: Series, loss: Series) -> tuple[Bins, View]:
    """Return a record in bins, as few as make the noise small beside the range, and its view on the fitting axis."""
    bins = view = None
    for late in POLICY.resolutions:
        bins = _bins(t, loss, late)
        view = view_of(bins, log=bins.log)
        if 60 * np.median(view.noise) <= view.range:
            break
    assert bins is not None
    assert view is not None
    return bins, view


def _bins(t: Series, loss: Series, late: int) -> Bins:
    n, edges = len(t), [0]
    while edges[-1] < n:
        edges.append(min(n, edges[-1] + max(1, int(min(8 * edges[-1] / late, n / late)))))
    if len(edges) <= n:
        starts = np.array(edges[:-1])
        t = np.add.reduceat(t, starts) / np.diff(edges)
        loss = np.array([np.median(loss[a:b]) for a, b in itertools.pairwise(edges)])
    low, high = float(np.min(loss)), float(np.max(loss))
    return Bins(t, loss, low > 0 and high > POLICY.decades * low)


def view_of(bins: Bins, *, log: bool) -> View:
    """Return the bins on an axis of the loss or of its logarithm, with the fit and the noise around each bin.

    The noise is the larger of the median distance from the fit, which has slow fluctuations too, and the upper quartile
    of rises from one bin to the next, both over an eighth of the record.
    """
    z = np.log(bins.losses) if log else bins.losses
    fit = _nearest_decreasing(z)
    size = min(len(z), max(15, len(z) // 8)) | 1
    rises = np.maximum(np.diff(z, prepend=z[:1]), 0.0)
    away = scipy.ndimage.median_filter(np.abs(z - fit), size, mode="nearest") / NORMAL_MEDIAN
    jitter = scipy.ndimage.percentile_filter(rises, 75, size, mode="nearest") / (np.sqrt(2) * NORMAL_MEDIAN)
    return View(z, fit, np.maximum(away, jitter), jitter, float(fit[0] - fit[-1]))


def _nearest_decreasing(z: Series) -> Series:
    """Return the decreasing function with the least sum of |distances|: neighbours that rise share their median."""
    levels: list[float] = []
    blocks: list[list[float]] = []  # sorted
    for one in z.tolist():
        level, block = one, [one]
        while levels and levels[-1] <= level:
            block = sorted(blocks.pop() + block)
            levels.pop()
            level = (block[(len(block) - 1) // 2] + block[len(block) // 2]) / 2
        levels.append(level)
        blocks.append(block)
    return np.repeat(levels, [len(block) for block in blocks])


def find_falls(t: Series, loss: Series) -> list[Fall]:
    """Return the drops of a record in their order; no two overlap.

    Where a lower loss lasts for a tenth of the record and is lost again, the record is cut.
    """
    bins, view = binned(t, loss)
    if not np.ptp(bins.losses) > 0:
        return []
    k = int(np.searchsorted(t, _loss_of_progress(bins, view)))
    if FEWEST <= k <= len(t) - FEWEST:
        typical = scipy.ndimage.median_filter(bins.losses, 3, mode="nearest")
        level = np.min(typical[bins.steps < t[k]])  # to fall back to it is a recovery, no drop
        later = find_falls(t[k:], loss[k:])
        return find_falls(t[:k], loss[:k]) + [
            fall for fall in later if typical[np.searchsorted(bins.steps, fall.end)] < level
        ]
    linear = view_of(bins, log=False) if bins.log else view
    floors = [float(np.median(linear.noise)) * np.ones_like(bins.losses)]
    if bins.losses.min() > 0:  # noise in proportion to the loss is largest early, where too few bins show it
        relative = view if bins.log else view_of(bins, log=True)
        floors.append(float(np.median(relative.noise)) * bins.losses)
    found = _falls_in_view(bins, linear, np.max([linear.noise, *floors], axis=0), linear)
    if bins.log:
        floor = np.full_like(bins.losses, np.median(view.noise))
        found += _falls_in_view(bins, view, np.maximum(view.noise, floor), linear)
    kept: list[Fall] = []
    for _, fall in sorted(found, key=lambda one: one[0]):  # smaller falls first: they resolve neighbouring drops
        if not any(fall.begin < other.end and other.begin < fall.end for other in kept):
            kept.append(fall)
    return sorted(kept, key=lambda fall: fall.middle)


def overlap(one: Fall, other: Fall) -> bool:
    """Return True if the middle of one drop is within the other."""
    return one.begin <= other.middle <= one.end or other.begin <= one.middle <= other.end


def _loss_of_progress(bins: Bins, view: View) -> float:
    """Return the step at which losses, long below the fit, rise back to it; infinity if there is none."""
    depth = scipy.ndimage.median_filter(view.fit - view.heights, 5, mode="nearest")
    runs, count = scipy.ndimage.label(depth > np.maximum(0.1 * np.ptp(view.heights), 5 * view.jitter))
    t = bins.steps
    for run in range(1, count + 1):
        inside = np.flatnonzero(runs == run)
        first, last = inside[0], inside[-1]
        if last - first >= 3 and last < len(t) - 1 and t[last] - t[first] > POLICY.brief * (t[-1] - t[0]):
            return float(t[last] + t[last + 1]) / 2
    return np.inf


def _falls_in_view(bins: Bins, view: View, noise: Series, linear: View) -> list[tuple[float, Fall]]:
    """Return the drops seen on one axis, each with the fall at which it was found; they may overlap."""
    if not view.range > 0:
        return []
    typical = scipy.ndimage.median_filter(view.fit, 3, mode="nearest")
    t, fit, sigma = (with_midpoints(x) for x in (bins.steps, typical, noise))  # a drop may be between two bins
    loss = with_midpoints(scipy.ndimage.median_filter(linear.fit, 3, mode="nearest"))
    heights = with_midpoints(view.heights)
    speed = -np.diff(loss) / np.diff(t)
    found = []
    finer = 0 if view is linear else math.ceil(math.log(POLICY.fall * view.range / POLICY.log_fall, POLICY.finer))
    for part in POLICY.fall * POLICY.finer ** np.arange(-max(finer, 0), POLICY.falls):
        d = part * view.range
        enter, leave = enter_and_leave(t, fit, d)
        height = np.log(np.maximum(leave - enter, np.finfo(float).tiny)) - TILT * np.arange(len(t))
        ending = float(np.log(max(2 * (t[-1] - enter[-1]), np.finfo(float).tiny)))  # only half a fall fits before it
        plateaus = longest_dwells(height, POLICY.contrast)
        if height[plateaus[-1]] - ending >= np.log(POLICY.contrast):
            plateaus.append(len(t) - 1)
        low = 0
        for a, b in itertools.pairwise(plateaus):
            since, low = low, a + int(np.argmin(height[a : b + 1]))
            finished = b < len(t) - 1 or (height[b] >= ending and height[b] - height[low] >= np.log(POLICY.contrast))
            bottom = float(height[low]) if finished else ending
            before = height[a : low + 1] >= (height[a] + bottom) / 2
            first = a + int(np.flatnonzero(before)[-1])
            last = low + int(np.argmax(height[low : b + 1] >= (height[b] + bottom) / 2)) if finished else b
            size, taken = fit[first] - fit[last], loss[first] - loss[last]
            # lumps of noise lengthen the dwell on slopes
            clear = max(float(np.median(sigma[a : first + 1])), sigma[low])
            quiet = view is linear and size >= 3 * np.max(np.diff(heights[a : b + 1]), initial=0.0)
            visible = (
                size >= (POLICY.clear if quiet else POLICY.visible) * view.range
                or taken >= POLICY.visible * linear.range
                or loss[first] >= 2 * loss[last] > 0
            )
            prominence = np.exp((min(height[a], height[b]) if finished else height[a]) - bottom)
            if not (
                visible
                and last > first
                and POLICY.sizes[0] * d <= max(size, fit[a] - fit[b])
                and size <= POLICY.sizes[1] * d
                and d >= POLICY.noises * clear
                and prominence >= POLICY.contrast * (1 + 2.5 * clear / d)
            ):
                continue
            level = (loss[first] + loss[last]) / 2
            below = first + int(np.argmax(loss[first : last + 1] <= level))
            half = float(crossing(t, loss, np.array([max(below - 1, first)]), np.array([level]))[0])
            slowest = float(np.min(speed[since:first])) if first else 0.0
            if loss[first] - level >= math.sqrt(POLICY.contrast) * slowest * (half - t[first]):
                found.append((part, Fall(float(t[first]), half, float(t[last]), bool(finished))))
    return found


def with_midpoints(x: Series) -> Float[np.ndarray, " 2*n-1"]:
    """Return the numbers with the mean of every two neighbours between them."""
    finer = np.empty(2 * len(x) - 1)
    finer[::2], finer[1::2] = x, x[1:] / 2 + x[:-1] / 2
    return finer


def longest_dwells(height: Series, contrast: float) -> list[int]:
    """Return the samples of longest dwell on each plateau, in order, given the logarithm of the dwell."""
    ends = np.full(1, np.min(height) - 2 * np.log(contrast))  # so that a plateau may be at an end of the record
    peaks, _ = scipy.signal.find_peaks(np.concatenate([ends, height, ends]), prominence=np.log(contrast))
    return [int(i) for i in peaks - 1]


def enter_and_leave(t: Series, fit: Series, fall: float) -> tuple[Series, Series]:
    """Return the last time at which the fit was `fall` / 2 above its value at each sample, and the first as far below.

    The fit is linear between samples. Where it never was so high or low, return the end of the record.
    """
    above, below = fit + fall / 2, fit - fall / 2
    last = np.searchsorted(-fit, -above, side="right") - 1  # the last sample at least so high; -1: none
    first = np.searchsorted(-fit, -below, side="left")  # the first one at most so high; n: none
    enter = crossing(t, fit, np.clip(last, 0, len(t) - 2), above)
    leave = crossing(t, fit, np.clip(first - 1, 0, len(t) - 2), below)
    return np.where(last < 0, t[0], enter), np.where(first == len(t), t[-1], leave)


def crossing(
    t: Series, fit: Series, before: Int[np.ndarray, "k"], level: Float[np.ndarray, "k"]
) -> Float[np.ndarray, "k"]:
    """Return the time at which the fit passes a level between a sample and the next."""
    drop = fit[before] - fit[before + 1]
    part = np.clip((fit[before] - level) / np.where(drop > 0, drop, 1.0), 0.0, 1.0)
    return t[before] + part * (t[before + 1] - t[before])
