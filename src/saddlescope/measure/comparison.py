"""Comparison of a found staircase with a predicted one, arrival by arrival.

An arrival is a component becoming active at the start of a stage. Components are coordinates if both staircases have
supports, otherwise singular values: the r-th (counted from 0) arrives when the rank rises above r.
"""

import itertools
import math
from collections import Counter
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin, Table
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import AnyMark, Axis, Line, Mark, Panel
from saddlescope.figures.time_axes import TimeAxis, time_label
from saddlescope.measure.loss_stages import LossStages
from saddlescope.measure.singular_values import Spectrum
from saddlescope.measure.stages import Run, Stage, Staircase, find_stages, run_or_staircase, staircase_of


@dataclass(frozen=True, repr=False)
class Arrival(ReprMixin):
    """Component becoming active.

    Attributes:
        component: index of the coordinate, or of the singular value if components have no identity.
        occurrence: 0 for its first arrival, 1 for the first return after it left, and so on.
        stage: the stage that it starts.
    """

    component: int
    occurrence: int
    stage: Stage

    @property
    def time(self) -> float:
        """Time of the arrival, in the staircase's unit."""
        return self.stage.start


@dataclass(frozen=True, repr=False)
class Match(ReprMixin):
    """Arrival that occurs in both staircases.

    Attributes:
        predicted, found: the arrival in each.
        found_loss: level of the longest found stage with the predicted stage's support (or rank, without supports); NaN
            if the run was never in that state.
    """

    predicted: Arrival
    found: Arrival
    found_loss: float

    @property
    def time_error(self) -> float:
        """Relative time error (found - predicted) / predicted; NaN for a prediction at time 0."""
        predicted = self.predicted.time
        return (self.found.time - predicted) / predicted if predicted != 0 else math.nan

    @property
    def loss_error(self) -> float:
        """Level error of the plateau that follows, found minus predicted, in the unit of the loss."""
        return self.found_loss - self.predicted.stage.loss


@dataclass(frozen=True, repr=False)
class Comparison(TableMixin, PlotMixin):
    """Agreement of a found staircase with a predicted one.

    Attributes:
        matches: arrivals in both, in predicted order.
        missed: arrivals predicted but not found, although the record extends beyond the predicted time.
        extra: arrivals found but not predicted.
        exact_order_prefix: number of arrivals, from the first, in the predicted order; simultaneous ones in any.
        time_unit: unit of the times.
    """

    matches: tuple[Match, ...]
    missed: tuple[Arrival, ...]
    extra: tuple[Arrival, ...]
    exact_order_prefix: int
    time_unit: str

    @property
    def time_errors(self) -> tuple[float, ...]:
        """Relative time error of each match."""
        return tuple(match.time_error for match in self.matches)

    @property
    def loss_errors(self) -> tuple[float, ...]:
        """Level error of each match, in the unit of the loss."""
        return tuple(match.loss_error for match in self.matches)

    def __repr__(self) -> str:
        worst = max((abs(error) for error in self.time_errors if not math.isnan(error)), default=math.nan)
        return (
            f"Comparison({len(self.matches)} matched, {len(self.missed)} missed, {len(self.extra)} extra, "
            f"the first {self.exact_order_prefix} in exact order, largest relative time error {worst:.2g})"
        )

    def _table(self) -> Table:
        rows = [
            (one.predicted.component, "matched", one.predicted.time, one.found.time, one.time_error, one.loss_error)
            for one in self.matches
        ]
        nan = math.nan
        rows += [(one.component, "missed", one.time, nan, nan, nan) for one in self.missed]
        rows += [(one.component, "not predicted", nan, one.time, nan, nan) for one in self.extra]
        return ("component", "arrival", "predicted", "found", "time error", "loss error"), rows

    def panel(self) -> Panel:
        """Return the relative time error of each match over its predicted time, and the arrivals without a match."""
        marks: list[AnyMark] = [Mark(at=0.0, axis="y")]
        for match in self.matches:
            if not math.isnan(match.time_error):
                x, y = np.array([match.predicted.time]), np.array([100 * match.time_error])
                marks.append(Line(x=x, y=y, label=f"{match.predicted.component}", style="points", width=3.0, color=0))
        marks += [Mark(at=one.time, label=f"missed {one.component}", color=1) for one in self.missed]
        marks += [Mark(at=one.time, label=f"not predicted {one.component}", color=3) for one in self.extra]
        times = [one.predicted.time for one in self.matches] + [one.time for one in (*self.missed, *self.extra)]
        log = min(times, default=0.0) > 0 and TimeAxis.of(self.time_unit, times, 0.0, max(times), max(times)).log
        x = Axis(f"predicted time, {time_label(self.time_unit)}", scale="log" if log else "linear")
        return Panel(x=x, y=Axis("found later than predicted", "%"), marks=tuple(marks))


@validate_arguments
def compare(predicted: Any, found: Any, *, until: float = math.inf, level: float | None = None) -> Comparison:
    """Match the stages of two staircases by the component that arrives at the start of each.

    If both have supports, the n-th arrival of a coordinate in one is matched with its n-th arrival in the other, in any
    order of coordinates; otherwise the n-th rise of the rank above r with the same rise in the other. A stage that
    several components start counts once for each; a stage that begins because a component leaves does not count.

    Args:
        predicted: a `Staircase`, or a prediction with one, such as that of `incremental_learning`.
        found: the staircase found in a run, in the same unit of time; or the run itself, a trajectory of
            `saddlescope.flow`, or the loss of a training, from `find_plateaus`.
        until: later predictions, or those after the end of the found record, do not count as missed, and later
            arrivals do not count as extra.
        level: for a run: the magnitude above which a component is active, for `find_stages`; None: the level that the
            run was given. In a run without one, and in a sum of units, of which several may learn the same, stage k
            begins where the loss is half-way between the predicted levels k - 1 and k: its order is the predicted one,
            and a plateau between two predicted ones shows in the errors. One after the last is an extra arrival. In a
            noisy training only falls that last count: for 1 % of the record, and longer under more noise.

    Returns:
        The matches with their errors, and the arrivals without a match.

    Raises:
        InputError: something is no staircase and no run, the units of time differ, `until` is NaN, or `level` is
            given for a staircase or for a sum of units.

    >>> one, two = (Staircase((Stage(0.0, t, 1.0, 0, ()), Stage(t, 9.0, 0.5, 1, (3,))), "t") for t in (4.0, 4.1))
    >>> compare(one, two)
    Comparison(1 matched, 0 missed, 0 extra, the first 1 in exact order, largest relative time error 0.025)
    """
    if math.isnan(until):
        raise InputError(f"until must be a time, or infinite; got {until!r}.")
    predicted = staircase_of("predicted", predicted)
    found = _found(found, predicted, level)
    identified = None not in (*predicted.supports, *found.supports)
    expected, seen = _arrivals(predicted, identified), _arrivals(found, identified)
    last = min(until, found.stages[-1].end)
    matches = tuple(
        Match(arrival, seen[key], _loss_in_same_state(arrival.stage, found, identified))
        for key, arrival in expected.items()
        if key in seen
    )
    return Comparison(
        matches=matches,
        missed=tuple(arrival for key, arrival in expected.items() if key not in seen and arrival.time <= last),
        extra=tuple(arrival for key, arrival in seen.items() if key not in expected and arrival.time <= last),
        exact_order_prefix=_exact_order_prefix(expected, seen),
        time_unit=predicted.time_unit,
    )


def _found(given: Any, predicted: Staircase, level: float | None) -> Staircase:
    """Return the staircase of a run."""
    run = run_or_staircase("found", given, predicted.time_unit)
    activity = None if isinstance(run, Staircase) else run.activity
    if activity is None and level is not None:
        what = "is a staircase, whose level is fixed" if isinstance(run, Staircase) else "is a sum of units"
        raise InputError(f"level must be None where found {what}; got {level!r}.")
    if isinstance(run, Staircase):
        return run
    at = getattr(run, "level", None) if level is None else level
    if activity is None or at is None:
        return _by_losses(run, predicted)
    activity = activity if run.identified else Spectrum(activity, np.zeros(len(run.times)))
    return find_stages(run.times, run.losses, activity, level=at, time_unit=run.time_unit)


def _by_losses(run: Run, predicted: Staircase) -> Staircase:
    """Return the stages of a run, a new one where its loss passes the middle between two predicted levels.

    One more, which is not predicted, begins where it is below the last level by a tenth of the last drop, or half of
    that level, but by more than rounding.
    """
    levels, ranks = np.array(predicted.losses), (*predicted.ranks, predicted.ranks[-1] + 1)
    drop = levels[-2] - levels[-1] if len(levels) > 1 else abs(levels[-1])
    more = max(min(drop / 10, abs(levels[-1]) / 2), _ROUNDING * (levels[0] - levels[-1]))
    levels = np.append(levels, levels[-1] - 2 * more)
    crossings = [_crossing(run, (high + low) / 2, (high - low) / 2) for high, low in itertools.pairwise(levels)]
    times, losses, shortest = run.times, run.losses, 0.0
    if isinstance(run, LossStages):
        times, losses = run.smooth_steps, run.smooth_losses
        shortest = _SHORTEST * float(times[-1] - times[0])
    passed = (times[:, None] - crossings) / (times[-1] - times[0])
    activity = Spectrum(np.exp(np.clip(passed, -_LARGEST, _LARGEST)), np.zeros(len(times)))
    found = find_stages(times, losses, activity, level=1.0, time_unit=run.time_unit, min_duration=shortest)
    return Staircase(tuple(replace(one, rank=ranks[one.rank]) for one in found.stages), run.time_unit)


def _crossing(run: Run, middle: float, distance: float) -> float:
    """Return the time at which the loss falls below the middle between two levels, each at a distance; inf if never.

    It is the time with the fewest records on the wrong side, up to the first at which so many more were below the
    middle than above that neither noise nor a dip explains it, so that no later spike or rise moves it.
    """
    times, losses, enough = run.times, run.losses, 1.0
    if isinstance(run, LossStages):
        noise = float(np.median(np.abs(np.diff(losses, 2)))) / _OF_NOISE if len(losses) > 2 else 0.0
        wrong = NormalDist().cdf(-distance / (2 * noise)) if noise else 0.0  # the level may be off by half the distance
        odds = math.log((1 - wrong) / wrong) if wrong else math.inf
        # A walk with these odds to go the right way at each step falls so far below its height once in 100 records.
        enough = max(_SHORTEST * len(losses), 1.0 + math.log(100 * len(losses)) / odds if odds else math.inf)
    lead = np.append(0, np.cumsum(np.where(losses < middle, -1, 1)))
    behind = np.flatnonzero(np.maximum.accumulate(lead) - lead >= enough)
    if len(behind) == 0:
        return math.inf
    until = int(behind[0]) + 1
    first = until - 1 - int(np.argmax(lead[:until][::-1]))  # the first record below; the last if there are several
    if first == 0:
        return -math.inf
    (t, u), (above, below) = times[first - 1 : first + 1], losses[first - 1 : first + 1]
    return float(t + (u - t) * max((above - middle) / (above - below), _ROUNDING))  # after the record above the middle


_ROUNDING = 1e-6  # of the whole fall of a loss
_SHORTEST = 0.01  # of a noisy record: a stage that is shorter is none, and a level is a mean over so much
_OF_NOISE = 0.6745 * math.sqrt(6.0)  # median second difference of records with independent noise of size 1
_LARGEST = 700.0  # logarithm of a number of float64

_Key = tuple[int, int]


def _arrivals(staircase: Staircase, identified: bool) -> dict[_Key, Arrival]:
    """Return the arrivals in order of time, by component and occurrence."""
    arrivals: dict[_Key, Arrival] = {}
    counts: Counter[int] = Counter()
    before = _active(staircase.stages[0], identified)
    for stage in staircase.stages[1:]:
        active = _active(stage, identified)
        for component in sorted(active - before):
            arrivals[component, counts[component]] = Arrival(component, counts[component], stage)
            counts[component] += 1
        before = active
    return arrivals


def _active(stage: Stage, identified: bool) -> set[int]:
    return set(stage.support or ()) if identified else set(range(stage.rank))


def _loss_in_same_state(stage: Stage, found: Staircase, identified: bool) -> float:
    same = [one for one in found.stages if _active(one, identified) == _active(stage, identified)]
    return max(same, key=lambda one: one.end - one.start).loss if same else math.nan


def _exact_order_prefix(expected: dict[_Key, Arrival], seen: dict[_Key, Arrival]) -> int:
    """Count the arrivals in the same order; simultaneous ones first take the order of the other staircase."""

    def ordered(one: dict[_Key, Arrival], other: dict[_Key, Arrival]) -> list[_Key]:
        return sorted(one, key=lambda key: (one[key].time, other[key].time if key in other else math.inf))

    pairs = zip(ordered(expected, seen), ordered(seen, expected), strict=False)
    return next((k for k, (a, b) in enumerate(pairs) if a != b), min(len(expected), len(seen)))
