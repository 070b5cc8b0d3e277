"""Plateaus and drops of a recorded loss, with the ranks of a deep network on them where its singular values are given.

Use `find_plateaus` where the loss shows the stages; use `find_stages` where components are identified, or where stages
are defined by the components that become active. `saddlescope.measure.loss_drops` has the method.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy  # its submodules, a second together, are loaded where first used

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.measure.arrays import as_numpy, real_array
from saddlescope.measure.loss_drops import FEWEST, POLICY, Bins, Fall, View, binned, find_falls, overlap, view_of
from saddlescope.measure.loss_levels import find_levels, part_of
from saddlescope.measure.loss_stages import Drop, LossStages, Plateau, Rise
from saddlescope.measure.plateau_ranks import checked_spectra, plateau_ranks
from saddlescope.measure.records import Series, extreme_exponent

Finder = Callable[[Series, Series], list[Fall]]


@validate_arguments
def find_plateaus(losses: Any, *, steps: Any = None, singular_values: Sequence[Any] | None = None) -> LossStages:
    """Find the plateaus and drops of a recorded loss.

    A drop falls at least three times as fast as the plateaus before and after it, by a tenth of the range (of the loss,
    or of its logarithm where it extends over more than a decade), by half of the loss, or in a quiet record by 3.5 % of
    the range. It must exceed the noise nearby, and be found again in a third of ten random halves of the records. Falls
    that only slow down, spikes, oscillations, and what is lost within a tenth of the record are no drops.
    `saddlescope.measure.loss_drops` has the method.

    Args:
        losses: (n,), of any library; a list; a pandas Series, whose index gives the steps; or an xarray DataArray,
            whose coordinate does. At least 5 must be finite; others are left out.
        steps: (n,), not decreasing; losses of one step are averaged. None: those of `losses`, else 0 to n - 1.
        singular_values: of every layer of a deep network at each record, from the input on: (n, r) each, in any order.
            Then the losses must be those of the full data set, with one level of noise: a drop is one of 2 % of the
            range, eight times as fast as its plateaus (`saddlescope.measure.loss_levels`), and plateaus have the rank
            of every layer (`saddlescope.measure.plateau_ranks`).

    Raises:
        InputError: arrays whose shapes do not match, fewer than 5 finite losses, or steps that decrease.

    >>> import numpy as np
    >>> t = np.linspace(0.0, 10.0, 201)
    >>> learned = 1 / (1 + np.exp(-20 * (t[:, None] - [3.0, 6.0])))
    >>> found = find_plateaus(2 - learned.sum(axis=1), steps=t, singular_values=[learned, learned, learned])
    >>> [round(drop.step, 3) for drop in found.drops], found.staircase.ranks
    ([3.0, 6.0], (0, 1, 2))
    """
    t, loss = _series(losses, steps)
    spectra = None if singular_values is None else checked_spectra(singular_values, t)
    remarks = []
    finite = np.isfinite(loss)
    if np.sum(finite) < FEWEST:
        raise InputError(
            f"losses must have at least {FEWEST} finite records; got {int(np.sum(finite))} of {len(loss)}. "
            "Log the loss more often, or name another column."
        )
    if not np.all(finite):
        ends = not np.any(finite[-2:])
        where = f" from step {t[np.flatnonzero(finite)[-1] + 1]:.6g} to the end: the run diverged" if ends else ""
        remarks.append(f"{int(np.sum(~finite))} records are not finite{where}; they are left out.")
    t, loss = t[finite], loss[finite]
    spectra = None if spectra is None else [s[finite] for s in spectra]
    if np.any(repeated := np.diff(t) == 0):
        starts = np.concatenate([[0], np.flatnonzero(~repeated) + 1])
        loss = np.add.reduceat(loss, starts) / np.diff(np.append(starts, len(t)))
        t = t[starts]
        spectra = None if spectra is None else [s[starts] for s in spectra]
        remarks.append(f"Losses of one step are averaged ({int(np.sum(repeated))} repeated records).")
    if len(t) < FEWEST:
        raise InputError(
            f"losses must be at {FEWEST} or more steps that differ in float64; got {len(t)}. Log more often, or "
            "subtract the first step from all."
        )
    return _stages(t, loss, spectra, remarks)


def _series(losses: Any, steps: Any) -> tuple[Series, Series]:
    """Return the steps and the losses of a record, NaN included, in float64."""
    if hasattr(losses, "coords") and hasattr(losses, "dims"):  # xarray
        if steps is None and len(losses.dims) == 1 and losses.dims[0] in losses.coords:
            steps = losses.coords[losses.dims[0]].values
        losses = losses.values
    elif hasattr(losses, "to_numpy") and hasattr(losses, "index"):  # pandas
        steps = losses.index.to_numpy() if steps is None else steps
        losses = losses.to_numpy()
    if hasattr(losses, "detach"):
        losses = losses.detach().cpu()
    loss = real_array("losses", losses)
    if loss.ndim != 1:
        raise InputError(f"losses must be one series of shape (n,); got {loss.shape!r}.")
    t = np.arange(float(len(loss))) if steps is None else as_numpy("steps", steps)
    if t.shape != loss.shape:
        raise InputError(f"steps must have the shape of losses, {loss.shape!r}; got {t.shape!r}.")
    if np.any(np.diff(t) < 0):
        raise InputError("steps must not decrease; got a step back. Pass the parts of a restarted run one by one.")
    return t, loss


def _stages(t: Series, loss: Series, spectra: list[np.ndarray] | None, remarks: list[str]) -> LossStages:
    time_exponent, loss_exponent = extreme_exponent(t), extreme_exponent(loss)
    x, y = np.ldexp(t, -time_exponent), np.ldexp(loss, -loss_exponent)
    bins, view = binned(x, y)
    levels = [] if spectra is None else find_levels(x, y)
    find = find_falls if spectra is None else _falls_between_levels
    falls = find(x, y)
    middles = _middles_in_halves(x, y, falls, find)
    least = 0.0 if levels else POLICY.certain * POLICY.halves
    certain = [(fall, found) for fall, found in zip(falls, middles, strict=True) if len(found) >= least]

    def loss_near(step: float) -> float:
        return math.ldexp(float(np.interp(step, bins.steps, bins.losses)), loss_exponent)

    drops = []
    for fall, found in certain:
        before, after = loss_near(fall.begin), loss_near(fall.end)
        begin, middle, end, earliest, latest = (
            math.ldexp(step, time_exponent)
            for step in (
                fall.begin,
                fall.middle,
                fall.end,
                min(found, default=fall.middle),
                max(found, default=fall.middle),
            )
        )
        drops.append(
            Drop(
                begin=begin,
                step=middle,
                end=end,
                size=before - after,
                before=before,
                after=after,
                certainty=len(found) / POLICY.halves,
                earliest=earliest,
                latest=latest,
                finished=fall.finished,
            )
        )
    until = drops[0].begin if drops else float(t[-1])
    begins = math.ldexp(levels[0].begin, time_exponent) if levels else _first_plateau(bins, view, until, time_exponent)
    ends = math.ldexp(levels[-1].end, time_exponent) if levels else float(t[-1])
    edges = [begins, *itertools.chain.from_iterable((drop.begin, drop.end) for drop in drops), ends]
    parts = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    layers = None if spectra is None else list(zip(*(plateau_ranks(s, t, parts) for s in spectra), strict=True))
    certainties = [1.0, *(drop.certainty for drop in drops), 1.0]
    plateaus = []
    for k, (begin, end) in enumerate(parts):
        if end > begin:
            middle = float(np.median(loss[part_of(t, begin, end, 0.25, 0.75)]))
            level = math.ldexp(levels[k].height, loss_exponent) if levels else middle
            first, last = (loss_near(math.ldexp(step, -time_exponent)) for step in (begin, end))
            certainty = min(certainties[k : k + 2])
            ranks = None if layers is None else layers[k]
            plateaus.append(Plateau(begin, (begin + end) / 2, end, level, first - last, certainty, ranks))
    rises = _rises(bins, view, time_exponent, loss_exponent)
    if begins > t[0]:
        remarks.append(f"The loss falls from {loss[0]:.4g} until step {begins:.6g}, before its first plateau.")
    if drops and not drops[-1].finished:
        remarks.append("The record ends in a drop: where it leads is not known.")
    if not drops:
        remarks.append("No drop stands out from the noise and from a fall that only slows down.")
    spikes = [rise for rise in rises if rise.kind == "spike"]
    if spikes:
        highest = max(spikes, key=lambda rise: rise.high)
        remarks.append(f"{len(spikes)} spikes, the highest to {highest.high:.4g} at step {highest.step:.6g}.")
    remarks += [
        f"{rise.kind.capitalize()} from {rise.low:.4g} at step {rise.begin:.6g} to {rise.high:.4g} at {rise.step:.6g}."
        for rise in rises
        if rise.kind != "spike"
    ]
    first = min([drop.step for drop in drops] or [begins if begins > t[0] else math.inf])
    return LossStages(
        steps=t,
        losses=loss,
        plateaus=tuple(plateaus),
        drops=tuple(drops),
        rises=tuple(rises),
        remarks=tuple(remarks),
        smooth_steps=np.ldexp(bins.steps, time_exponent),
        smooth_losses=np.ldexp(bins.losses, loss_exponent),
        log_loss=bins.log,
        log_steps=bool(t[0] >= 0 and first - t[0] < POLICY.early * (t[-1] - t[0])),
    )


def _falls_between_levels(t: Series, loss: Series) -> list[Fall]:
    pairs = itertools.pairwise(find_levels(t, loss))
    return [Fall(one.end, following.start, following.begin, finished=True) for one, following in pairs]


def _middles_in_halves(t: Series, loss: Series, falls: list[Fall], find: Finder) -> list[list[float]]:
    """Return the middles of each drop in the random halves of the records in which it is found again."""
    draw = np.random.default_rng(0)
    middles: list[list[float]] = [[] for _ in falls]
    for _ in range(POLICY.halves if falls else 0):
        half = draw.random(len(t)) < 0.5
        again = find(t[half], loss[half]) if np.sum(half) >= FEWEST else []
        for fall, found in zip(falls, middles, strict=True):
            found += [other.middle for other in again if overlap(fall, other)][:1]
    return middles


def _first_plateau(bins: Bins, view: View, until: float, exponent: int) -> float:
    """Return the step of the elbow of a fall before the first drop, farthest below the chord; else the first step."""
    t = np.ldexp(bins.steps, exponent)
    fit = view_of(bins, log=False).fit if bins.log else view.fit
    last = max(int(np.searchsorted(t, until, side="right")) - 1, 0)
    fall = float(fit[0] - fit[last])
    if last < 2 or not fall > POLICY.initial * float(fit[0] - fit[-1]):
        return float(t[0])
    below = fit[0] - fall * (t[: last + 1] - t[0]) / (t[last] - t[0]) - fit[: last + 1]
    elbow = int(np.argmax(below))
    return float(t[elbow]) if below[elbow] > 0.3 * fall else float(t[0])


def _rises(bins: Bins, view: View, time_exponent: int, loss_exponent: int) -> list[Rise]:
    t = bins.steps
    lowest = np.minimum.accumulate(view.heights)
    least = np.maximum(0.1 * (view.range if view.range > 0 else np.ptp(view.heights)), 8 * view.jitter)
    runs, count = scipy.ndimage.label(view.heights - lowest > least)
    rises = []
    for run in range(1, count + 1):
        inside = np.flatnonzero(runs == run)
        before = int(np.flatnonzero(view.heights[: inside[0]] == lowest[inside[0] - 1])[-1])
        top = int(inside[np.argmax(view.heights[inside])])
        end = min(int(inside[-1]) + 1, len(t) - 1)
        if before == 0 and not rises:
            kind = "initial rise"
        elif inside[-1] == len(t) - 1 and bins.losses[-1] > bins.losses[0]:
            kind = "divergence"
        elif t[end] - t[before] <= POLICY.brief * (t[-1] - t[0]):
            kind = "spike"
        else:
            kind = "lost progress"
        begin, step, back = (math.ldexp(float(t[k]), time_exponent) for k in (before, top, end))
        low, high = (math.ldexp(float(bins.losses[k]), loss_exponent) for k in (before, top))
        rises.append(Rise(kind, begin, step, back, low, high))
    return rises
