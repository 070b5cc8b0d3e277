"""The staircase of one matrix, found from its singular values over training: where its rank goes up by steps.

    step      a singular value leaves one plateau and settles on a higher one, above everything that does not count
    abrupt    it does so in a short time beside these plateaus
    alone     while it does, those that have made no step yet hardly grow
    ramp      growth without plateaus; or neither abrupt nor alone

The last two conditions, of which one must hold, are there for schedules of the learning rate. Warm-up and decay flatten
every curve at its two ends, so that whatever grows seems to make a step in between. They do so gently, though, and to
all singular values at once: no change of the clock makes them rise one after the other.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from saddlescope._shared.arguments import require, validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.measure.arrays import as_numpy
from saddlescope.measure.plateaus import find_plateaus
from saddlescope.measure.spectrum import Spectrum
from saddlescope.measure.stages import Stage, Staircase

_LEAST = 5  # records: fewer show no two plateaus
_ABRUPT = 2.0  # either plateau over the middle half of the step, in time; half a cosine has 1


@dataclass(frozen=True)
class _Step:
    """A step of one singular value: which, when it is half-way up, from where and to where."""

    index: int
    time: float
    low: float  # the plateaus: their levels,
    high: float
    since: float  # when the lower one begins,
    until: float  # and the higher one ends


@validate_arguments
def rank_stairs(
    times: Any, spectrum: Spectrum, *, time_unit: str, share: float = 0.1, contrast: float = 8.0, lead: float = 2.0
) -> Staircase:
    """The stages of one matrix: its rank goes up where a singular value makes a step, abruptly or alone.

    A singular value makes a step where `find_plateaus` tells a higher plateau of it from one before, and the higher one
    is the first above the level that counts. What it does in the middle half of the step decides if that counts: it is
    abrupt if this takes at most half of either plateau's time; it is alone if it outgrows those that have not made a
    step before, `lead` times at least over what would be its part if all grew in proportion.

    Where a single singular value grows, it is always alone: there `times` should count learning rate, not steps, if the
    rate has a schedule.

    Singular values above the level that counts from the first record on are part of the rank from the start, and ramps
    are never part of it: where there are no steps, there is one stage. A rank does not go down again.

    Args:
        times: (n,), strictly increasing, in `time_unit`; at least 5.
        spectrum: of the matrix at each time: values (n, r), descending, and noise floors (n,).
        time_unit: what `times` are told in.
        share: of the largest singular value of the whole record; with the noise floor the level that counts; between 0
            and 1.
        contrast: of a step and its plateaus, as in `find_plateaus`.
        lead: greater than 1.

    Returns:
        Stages from the first record to the last. A stage's loss is the part of the matrix's greatest energy |W|_F^2
        that it has not reached at the middle of the stage.

    Raises:
        InputError: arrays that do not fit each other or are not finite, times that do not increase, or a policy out of
            range.

    >>> import numpy as np
    >>> t = np.linspace(0.0, 10.0, 201)
    >>> s = 1 / (1 + np.exp(-20 * (t[:, None] - [3.0, 6.0])))
    >>> stairs = rank_stairs(t, Spectrum(s, np.zeros(201)), time_unit="t")
    >>> stairs.ranks, [round(time, 3) for time in stairs.times]
    ((0, 1, 2), [3.0, 6.0])
    """
    t, s = as_numpy("times", times), as_numpy("spectrum.values", spectrum.values)
    floor = as_numpy("spectrum.noise_floor", spectrum.noise_floor)
    if t.ndim != 1 or len(t) < _LEAST or not np.all(np.diff(t) > 0):
        raise InputError(f"times must be at least {_LEAST} strictly increasing numbers; got shape {t.shape!r}.")
    if s.ndim != 2 or len(s) != len(t):
        raise InputError(f"spectrum.values must have shape ({len(t)}, r), a row for each time; got {s.shape!r}.")
    if np.any(s < 0) or np.any(np.diff(s, axis=1) > 0):
        raise InputError("spectrum.values must be singular values, descending and at least 0 at each time.")
    if not 0 < share < 1:
        raise InputError(f"share must be between 0 and 1; got {share!r}.")
    if not 1 < lead < math.inf:
        raise InputError(f"lead must be greater than 1 and finite; got {lead!r}.")
    level = max(share * float(np.max(s)), float(np.max(floor)))
    rising = np.flatnonzero(np.max(s, axis=0) > level)
    first = int(np.sum(s[0] > level))
    steps = [step for k in rising[first:].tolist() if (step := _step(t, s[:, k], k, level, contrast)) is not None]
    counted = [step.time for step in _counted(t, s[:, first:], first, steps, lead)]
    edges = [float(t[0]), *sorted(set(counted)), float(t[-1])]
    energy = np.sum(s**2, axis=1)
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
    contrast: float = 8.0,
    lead: float = 2.0,
) -> np.ndarray:
    """The staircase of each of many matrices, such as the updates of all heads; see `rank_stairs`.

    Args:
        times: (n,), as in `rank_stairs`.
        values: singular values (n, ..., r).
        noise_floors: (n, ...).
        time_unit: what `times` are told in.
        share: as in `rank_stairs`.
        contrast: as in `rank_stairs`.
        lead: as in `rank_stairs`.

    Returns:
        (...), of `Staircase`; None for a matrix with values that are not finite, as of a head that a layer lacks.

    Raises:
        InputError: as `rank_stairs`.
    """
    for name, given in (("values", values), ("noise_floors", noise_floors)):
        require(name, given, ArrayLike)
    values, floors = np.asarray(values, dtype=float), np.asarray(noise_floors, dtype=float)
    if floors.shape != values.shape[:-1]:
        raise InputError(f"noise_floors must have shape {values.shape[:-1]!r}, one a spectrum; got {floors.shape!r}.")
    found = np.full(values.shape[1:-1], None, dtype=object)
    for place in np.ndindex(found.shape):
        at = (slice(None), *place)
        if np.all(np.isfinite(values[at])) and np.all(np.isfinite(floors[at])):
            one = Spectrum(values[at], floors[at])
            found[place] = rank_stairs(times, one, time_unit=time_unit, share=share, contrast=contrast, lead=lead)
    return found


def _step(
    t: Float[np.ndarray, "n"], values: Float[np.ndarray, "n"], index: int, level: float, contrast: float
) -> _Step | None:
    """The step that takes a singular value above the level, or None where it gets there without."""
    plateaus = find_plateaus(t, -values, [values[:, None]], time_unit="", contrast=contrast)
    for below, above in itertools.pairwise(plateaus.stages):
        if -below.loss <= level < -above.loss:
            return _Step(index, above.start, -below.loss, -above.loss, below.start, above.end)
    return None


def _counted(
    t: Float[np.ndarray, "n"], s: Float[np.ndarray, "n r"], first: int, steps: list[_Step], lead: float
) -> list[_Step]:
    """The steps that are abrupt, or during which what has made none yet grows little; `s` begins at index `first`."""
    risen = np.stack([isotonic_regression(values).x for values in s.T], axis=1) if s.shape[1] else s
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
