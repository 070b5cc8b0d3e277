"""Staircase of one matrix from its singular values over training: its rank rises by steps.

    step      a singular value leaves one plateau and settles on a higher one, above everything that does not count
    abrupt    the step is short compared with these plateaus
    alone     during the step, the singular values that have made no step yet hardly grow
    ramp      growth without plateaus; or neither abrupt nor alone

The last two conditions, of which one must hold, exclude effects of learning-rate schedules. Warm-up and decay flatten
every curve at its two ends, so that all growth seems to be a step in between. But they do so gently, and to all
singular values at once: no rescaling of time makes them rise one after the other.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # loads `scipy.optimize`, a third of a second, where first used
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import require, validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope.measure.arrays import as_numpy
from saddlescope.measure.loss_drops import FEWEST
from saddlescope.measure.loss_levels import POLICY, find_levels
from saddlescope.measure.records import Series, extreme_exponent, recorded_rows, recorded_times
from saddlescope.measure.singular_values import Spectrum
from saddlescope.measure.stages import Stage, Staircase

_ABRUPT = 2.0  # least ratio of either plateau to the middle half of the step, in time; half a cosine has 1


@dataclass(frozen=True)
class _Step:
    """Step of one singular value: its index, the time at which it is half-way up, and the plateaus before and after."""

    index: int
    time: float
    low: float  # level of the lower plateau
    high: float  # level of the higher plateau
    since: float  # start of the lower plateau
    until: float  # end of the higher plateau


@validate_arguments
def rank_stairs(
    times: Any,
    spectrum: Spectrum,
    *,
    time_unit: str,
    share: float = 0.1,
    contrast: float = POLICY.contrast,
    lead: float = 2.0,
) -> Staircase:
    """Find the stages of one matrix: its rank rises where a singular value makes a step, abruptly or alone.

    A singular value makes a step where it leaves a plateau for a higher one, as a loss leaves one for a lower one in
    `find_plateaus`, and the higher one is the first above the level that counts. The middle half of the step decides if
    the step counts: it is abrupt if this takes at most half of either plateau's time; it is alone if the singular value
    outgrows those without a step, by at least `lead` times its share of growth in proportion.

    A single growing singular value is always alone: then, if the rate has a schedule, pass the cumulative learning rate
    as `times`, not steps.

    Singular values above the level from the first record on are part of the rank from the start, and ramps are never
    part of it: without steps, the result is one stage. A rank does not go down again.

    Args:
        times: (n,), strictly increasing, in `time_unit`; at least 5.
        spectrum: of the matrix at each time: values (n, r), descending, and noise floors (n,).
        time_unit: unit of `times`.
        share: part of the largest singular value of the record; the larger of it and the noise floor is the level that
            counts; between 0 and 1.
        contrast: least ratio of the speed of a step to that of the plateaus beside it; greater than 1.
        lead: greater than 1.

    Returns:
        Stages from the first record to the last. A stage's loss is the part of the matrix's greatest energy |W|_F^2
        that it has not reached at the middle of the stage.

    Raises:
        InputError: arrays whose shapes do not match or that are not finite, times that do not increase, or a policy out
            of range.

    >>> import numpy as np
    >>> t = np.linspace(0.0, 10.0, 201)
    >>> s = 1 / (1 + np.exp(-20 * (t[:, None] - [3.0, 6.0])))
    >>> stairs = rank_stairs(t, Spectrum(s, np.zeros(201)), time_unit="t")
    >>> stairs.ranks, [round(time, 3) for time in stairs.times]
    ((0, 1, 2), [3.0, 6.0])
    """
    t = recorded_times(times, least=FEWEST)
    s = recorded_rows("spectrum.values", spectrum.values, t)
    floor = as_numpy("spectrum.noise_floor", spectrum.noise_floor)
    if np.any(s < 0) or np.any(np.diff(s, axis=1) > 0):
        raise InputError("spectrum.values must be singular values, descending and at least 0 at each time.")
    if not 0 < share < 1:
        raise InputError(f"share must be between 0 and 1; got {share!r}.")
    if not 1 < contrast < math.inf:
        raise InputError(f"contrast must be greater than 1 and finite; got {contrast!r}.")
    if not 1 < lead < math.inf:
        raise InputError(f"lead must be greater than 1 and finite; got {lead!r}.")
    level = max(share * float(np.max(s)), float(np.max(floor)))
    rising = np.flatnonzero(np.max(s, axis=0) > level)
    first = int(np.sum(s[0] > level))
    steps = [step for k in rising[first:].tolist() if (step := _step(t, s[:, k], k, level, contrast)) is not None]
    counted = [step.time for step in _counted(t, s[:, first:], first, steps, lead)]
    edges = [float(t[0]), *sorted(set(counted)), float(t[-1])]
    energy = np.sum(np.ldexp(s, -extreme_exponent(s)) ** 2, axis=1)
    missing = 1.0 - energy / np.max(energy) if np.max(energy) > 0 else np.zeros_like(energy)
    stages = []
    for start, end in itertools.pairwise(edges):
        rank = first + sum(time <= start for time in counted)
        stages.append(Stage(start, end, float(np.interp((start + end) / 2, t, missing)), rank))
    return Staircase(tuple(stages), time_unit)


@validate_arguments
def rank_staircases(
    times: Any,
    values: Any,
    noise_floors: Any,
    *,
    time_unit: str,
    share: float = 0.1,
    contrast: float = POLICY.contrast,
    lead: float = 2.0,
    report: Report = silent,
) -> np.ndarray:
    """Find the staircase of each of many matrices, such as the updates of all heads; see `rank_stairs`.

    Args:
        times: (n,), as in `rank_stairs`.
        values: singular values (n, ..., r).
        noise_floors: (n, ...).
        time_unit: unit of `times`.
        share: as in `rank_stairs`.
        contrast: as in `rank_stairs`.
        lead: as in `rank_stairs`.
        report: called after each matrix with the fraction done and a note.

    Returns:
        (...), of `Staircase`; None for a matrix with values that are not finite, as for a head that a layer lacks.

    Raises:
        InputError: as `rank_stairs`.
    """
    for name, given in (("values", values), ("noise_floors", noise_floors)):
        require(name, given, ArrayLike)
    values, floors = np.asarray(values, dtype=float), np.asarray(noise_floors, dtype=float)
    if floors.shape != values.shape[:-1]:
        raise InputError(f"noise_floors must have shape {values.shape[:-1]!r}, one per spectrum; got {floors.shape!r}.")
    found = np.full(values.shape[1:-1], None, dtype=object)
    for k, place in enumerate(np.ndindex(found.shape), start=1):
        at = (slice(None), *place)
        if np.all(np.isfinite(values[at])) and np.all(np.isfinite(floors[at])):
            one = Spectrum(values[at], floors[at])
            found[place] = rank_stairs(times, one, time_unit=time_unit, share=share, contrast=contrast, lead=lead)
        report(k / found.size, f"matrix {k} of {found.size}")
    return found


def _step(t: Series, values: Series, index: int, level: float, contrast: float) -> _Step | None:
    """Return the step that takes a singular value above the level, or None if it gets there without one."""
    levels = find_levels(t, -values, contrast=contrast)
    ends = [*(one.start for one in levels[1:]), float(t[-1])]
    for (below, above), end in zip(itertools.pairwise(levels), ends[1:], strict=True):
        if -below.height <= level < -above.height:
            return _Step(index, above.start, -below.height, -above.height, below.start, end)
    return None


def _counted(t: Series, s: Float[np.ndarray, "n r"], first: int, steps: list[_Step], lead: float) -> list[_Step]:
    """Return the steps that are abrupt, or during which the others grow little; `s` begins at index `first`."""
    risen = np.stack([scipy.optimize.isotonic_regression(values).x for values in s.T], axis=1) if s.shape[1] else s
    heights = risen[-1] - risen[0] if len(risen) else np.zeros(0)
    waiting = np.full(s.shape[1], True)
    found = []
    for step in sorted(steps, key=lambda step: step.time):
        k = step.index - first
        waiting[k] = False
        quarter, three = (step.low + part * (step.high - step.low) for part in (0.25, 0.75))
        start, stop = np.interp([quarter, three], risen[:, k], t)
        abrupt = _ABRUPT * (stop - start) <= min(start - step.since, step.until - stop)
        others = sum(float(np.diff(np.interp([start, stop], t, one))[0]) for one in risen.T[waiting])
        if abrupt or (three - quarter) * np.sum(heights[waiting]) >= lead * others * heights[k]:
            found.append(step)
        else:
            waiting[k] = True
    return found
