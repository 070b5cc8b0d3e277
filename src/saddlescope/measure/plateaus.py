"""Stages of a run whose components have no identity: plateaus of the loss, and the rank of every layer on them.

    y        the decreasing function nearest to the recorded losses (isotonic regression)
    range    y at the start minus y at the end
    fall     d, a small part of the range, above the noise
    dwell    tau(t), the time y takes to fall from y(t) + d/2 to y(t) - d/2

A plateau is a maximum of the dwell time, a drop a minimum. As d is fixed, tau needs no floor and no smoothing: where
the loss is flat to within the noise, tau is the length of the plateau.

Use `find_plateaus` where the loss shows the stages, as for the layers of a deep network; use `find_stages` where
components are identified, or where stages are defined by the components that become active.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy  # its submodules, a second together, are loaded where first used
from jaxtyping import Float, Int

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.measure.bottleneck import bottleneck_rank
from saddlescope.measure.records import Series, extreme_exponent, recorded_losses, recorded_rows, recorded_times
from saddlescope.measure.stages import Stage, Staircase

LEAST_RECORDS = 5  # fewer cannot show two plateaus
_NOISES = 3.0  # the fall in standard deviations of the noise: flat parts of y stray by about one from end to end
_PART = 0.1  # the fall without noise, as a part of the smallest drop
_NORMAL_MEDIAN = 0.6745  # of |z|, z a normal variable
_TILT = 1e-12  # per sample: above rounding, below everything else
_PARTS, _FEWEST = 8, 15  # parts of the record in which noise is estimated; fewest samples in one


@validate_arguments
def find_plateaus(
    times: Any,
    losses: Any,
    singular_values: Sequence[Any],
    *,
    time_unit: str,
    contrast: float = 8.0,
    min_drop: float = 0.02,
    share: float = 0.1,
    margin: float = 1.5,
    settled: float = 0.8,
) -> Staircase:
    """Find the staircase in a recorded run of a deep network, from its loss and the singular values of its layers.

    Two plateaus are distinguished if between them the loss falls at least `contrast` times as fast as on either, and by
    at least `min_drop` of its range. The first stage begins with the record, and the last ends with it, even during a
    drop: a plateau outside the record has no stage. A stage begins when the fitted loss is half-way from the previous
    plateau to its own.

    Noise is estimated from differences of neighbours, and from the residuals of the decreasing fit, where these are
    largest; single outliers are ignored. Drops below three standard deviations of the noise do not count.

    The rank of a layer on a plateau is the number of its singular values that, as the plateau begins, are greater than

    - `share` of the layer's largest until the next plateau begins, and
    - `margin` times the largest at the first sample, so that the initial bulk does not count, and
    - `settled` times their values as it ends, both relative to the largest.

    The last condition excludes the direction that will leave the plateau. It grows long before the loss shows it: at
    depth 3, from a tenth of its final size on, for a large part of the plateau. Values as a plateau begins or ends are
    medians over its first or last quarter. Start the record with the initial weights, and record densely (geometric)
    near escapes: a plateau between two samples is not found.

    A stage's loss is the mean over the middle half of its plateau.

    Args:
        times: (n,), strictly increasing, in `time_unit`; at least 5.
        losses: (n,), of the full data set, so that they decrease up to noise.
        singular_values: for each layer, from the input on, (n, r) in any order.
        time_unit: unit of `times`.
        contrast: least ratio of the speed of a drop to that of the plateaus beside it; greater than 1.
        min_drop: the smallest drop, as a part of the range of the loss; between 0 and 1.
        share: between 0 and 1.
        margin: at least 1.
        settled: between 0 and 1.

    Returns:
        Stages from the first sample to the last, with `layer_ranks`; `rank` is the `bottleneck_rank` of these.

    Raises:
        InputError: arrays whose shapes do not match, or that are not finite or not increasing; a policy out of range.

    >>> import numpy as np
    >>> t = np.linspace(0.0, 10.0, 201)
    >>> learned = 1 / (1 + np.exp(-20 * (t[:, None] - [3.0, 6.0])))
    >>> staircase = find_plateaus(t, 2 - learned.sum(axis=1), [learned, learned, learned], time_unit="t")
    >>> staircase.ranks, [round(time, 3) for time in staircase.times]
    ((0, 1, 2), [3.0, 6.0])
    """
    if not 1 < contrast < math.inf:
        raise InputError(f"contrast must be greater than 1 and finite; got {contrast!r}.")
    for name, value in (("min_drop", min_drop), ("share", share), ("settled", settled)):
        if not 0 < value < 1:
            raise InputError(f"{name} must be between 0 and 1; got {value!r}.")
    if not 1 <= margin < math.inf:
        raise InputError(f"margin must be at least 1 and finite; got {margin!r}.")
    t = recorded_times(times, least=LEAST_RECORDS)
    loss, spectra = recorded_losses(losses, t), _spectra(singular_values, t)
    time_exponent, loss_exponent = extreme_exponent(t), extreme_exponent(loss)
    t, loss = np.ldexp(t, -time_exponent), np.ldexp(loss, -loss_exponent)

    typical = scipy.ndimage.median_filter(loss, size=3, mode="nearest")
    fit = scipy.optimize.isotonic_regression(typical, increasing=False).x
    least = min_drop * float(fit[0] - fit[-1])
    fall = max(_PART * least, _NOISES * _noise(loss, fit))
    finer, finer_fit = _with_midpoints(t), _with_midpoints(fit)  # a drop may be between two samples
    enter, leave = _enter_and_leave(finer, finer_fit, fall)
    plateaus = _plateaus(finer_fit, leave - enter, contrast, max(least, fall))
    levels = [float(np.mean(typical[_between(t, enter[i], leave[i], 0.25, 0.75)])) for i in plateaus]
    edges = [float(t[0]), *_half_way(finer, finer_fit, plateaus, levels), float(t[-1])]
    onsets = [_between(t, enter[i], leave[i], 0.0, 0.25) for i in plateaus]
    ends = [_between(t, enter[i], leave[i], 0.75, 1.0) for i in plateaus]
    layers = [_ranks(s, onsets, ends, share, margin, settled) for s in spectra]
    stages = []
    for ranks, level, (start, end) in zip(zip(*layers, strict=True), levels, itertools.pairwise(edges), strict=True):
        first, last = math.ldexp(start, time_exponent), math.ldexp(end, time_exponent)
        height = math.ldexp(level, loss_exponent)
        stages.append(Stage(first, last, height, bottleneck_rank(ranks), layer_ranks=ranks))
    return Staircase(tuple(stages), time_unit)


def _spectra(singular_values: Sequence[Any], times: Series) -> list[np.ndarray]:
    """Return the singular values of each layer, checked, ascending."""
    spectra = [recorded_rows(f"singular_values[{layer}]", s, times) for layer, s in enumerate(singular_values)]
    if not spectra:
        raise InputError("singular_values must have one array per layer; got none.")
    for layer, s in enumerate(spectra):
        if np.any(s < 0):
            raise InputError(f"singular_values[{layer}] must be at least 0; got {float(np.min(s))!r}.")
    return [np.sort(np.ldexp(s, -extreme_exponent(s)), axis=1) for s in spectra]  # ranks do not depend on the scale


def _noise(loss: Series, fit: Series) -> float:
    """Estimate the standard deviation of the losses about a decreasing function, where it is largest.

    Medians of second differences, which do not depend on the slope, over the full record; and of the residuals of the
    fit, which include slow fluctuations, over parts of it: training is often quiet on the first plateau, noisy later.
    """
    size = max(_FEWEST, len(loss) // _PARTS)
    starts = range(0, max(len(loss) - size, 0) + 1, max(size // 2, 1))
    second, away = np.abs(np.diff(loss, 2)) / math.sqrt(6), np.abs(loss - fit)
    parts = [second, *(away[start : start + size] for start in starts)]
    return max(float(np.median(part)) for part in parts) / _NORMAL_MEDIAN


def _with_midpoints(x: Series) -> Float[np.ndarray, " 2*n-1"]:
    """Return the numbers with the mean of every two neighbours between them."""
    finer = np.empty(2 * len(x) - 1)
    finer[::2], finer[1::2] = x, (x[1:] + x[:-1]) / 2
    return finer


def _enter_and_leave(t: Series, fit: Series, fall: float) -> tuple[Series, Series]:
    """Return the last time at which the fit was `fall` / 2 above its value at each sample, and the first as far below.

    The fit is linear between samples. Where it never was so high or low, return the end of the record.
    """
    if not fall > 0:
        return np.full_like(t, t[0]), np.full_like(t, t[-1])
    above, below = fit + fall / 2, fit - fall / 2
    last = np.searchsorted(-fit, -above, side="right") - 1  # the last sample at least so high; -1: none
    first = np.searchsorted(-fit, -below, side="left")  # the first one at most so high; n: none
    enter = _crossing(t, fit, np.clip(last, 0, len(t) - 2), above)
    leave = _crossing(t, fit, np.clip(first - 1, 0, len(t) - 2), below)
    return np.where(last < 0, t[0], enter), np.where(first == len(t), t[-1], leave)


def _crossing(
    t: Series, fit: Series, before: Int[np.ndarray, "k"], level: Float[np.ndarray, "k"]
) -> Float[np.ndarray, "k"]:
    """Return the time at which the fit passes a level between a sample and the next."""
    drop = fit[before] - fit[before + 1]
    part = np.clip((fit[before] - level) / np.where(drop > 0, drop, 1.0), 0.0, 1.0)
    return t[before] + part * (t[before + 1] - t[before])


def _plateaus(fit: Series, dwell: Series, contrast: float, least: float) -> list[int]:
    """Return the sample of longest dwell on each plateau, in order."""
    height = np.log(dwell) - _TILT * np.arange(len(dwell))  # breaks ties: find_peaks would return every equal maximum
    ends = np.full(1, np.min(height) - 2 * math.log(contrast))  # so that a plateau may be at an end of the record
    peaks, _ = scipy.signal.find_peaks(np.concatenate([ends, height, ends]), prominence=math.log(contrast))
    found = [int(i) for i in peaks - 1]
    while len(found) > 1:
        drops = [fit[one] - fit[following] for one, following in itertools.pairwise(found)]
        k = int(np.argmin(drops))
        if drops[k] >= least:
            break
        del found[k if dwell[found[k]] < dwell[found[k + 1]] else k + 1]
    return found


def _between(t: Series, enter: float, leave: float, first: float, last: float) -> np.ndarray:
    """Return the samples in a part of the time from enter to leave, or the one nearest to its middle."""
    start, stop = enter + first * (leave - enter), enter + last * (leave - enter)
    inside = np.flatnonzero((t >= start) & (t <= stop))
    return inside if len(inside) else np.argmin(np.abs(t - (start + stop) / 2), keepdims=True)


def _half_way(t: Series, fit: Series, plateaus: list[int], levels: list[float]) -> list[float]:
    """Return the times at which the fit is half-way between the levels of consecutive plateaus."""
    found = []
    for (one, following), (high, low) in zip(itertools.pairwise(plateaus), itertools.pairwise(levels), strict=True):
        level = (high + low) / 2
        below = one + 1 + int(np.argmax(fit[one + 1 : following + 1] <= level))
        before = np.array([below - 1])
        found.append(float(_crossing(t, fit, before, np.array([level]))[0]))
    return found


def _ranks(
    s: Float[np.ndarray, "n r"],
    onsets: list[np.ndarray],
    ends: list[np.ndarray],
    share: float,
    margin: float,
    settled: float,
) -> list[int]:
    """Return the rank of a layer on each plateau, given the samples with which they begin and end."""
    ranks = []
    untils = [int(onset[-1]) for onset in onsets[1:]] + [len(s) - 1]
    for onset, end, until in zip(onsets, ends, untils, strict=True):
        first, last = np.median(s[onset], axis=0), np.median(s[end], axis=0)
        level = max(share * float(np.max(s[: until + 1])), margin * float(np.max(s[0])))
        ranks.append(int(np.sum((first > level) & (first * last[-1] > settled * last * first[-1]))))
    return ranks
