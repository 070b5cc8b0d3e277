"""Staircases: the stages in which a network learns, predicted by a theory or found by a measurement.

A stage is a plateau together with the short drop that leads to the next one; during a stage the rank (or the
support, or the number of active concepts) of the weights is constant.
"""

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy  # loads `scipy.optimize` where it is first used

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin, Table
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import Panel
from saddlescope.figures.stage_steps import stages_panel
from saddlescope.measure.arrays import as_numpy
from saddlescope.measure.records import Series, extreme_exponent, recorded_losses, recorded_rows, recorded_times
from saddlescope.measure.singular_values import Spectrum


@validate_arguments
@dataclass(frozen=True, repr=False)
class Stage(ReprMixin):
    """One stage of learning.

    Attributes:
        start: start of the stage, in the time unit of its `Staircase`; finite.
        end: start of the next stage; for the last stage, the end of the record, or infinity if a theory predicts that
            no other follows.
        loss: the level of the plateau.
        rank: number of active components (coordinates, singular values, concepts); at least 0.
        support: the active components, ascending, so that `rank` is their number; None if components have no
            identity, as with singular values.
        layer_ranks: the rank of every layer's weights, from the input on, if `rank` is the rank of the bottleneck
            that they form (see `bottleneck_rank`); None if the layers are not known separately.

    Raises:
        InputError: an attribute out of range, or a support that does not agree with the rank.
    """

    start: float
    end: float
    loss: float
    rank: int
    support: tuple[int, ...] | None = None
    layer_ranks: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.start):
            raise InputError(f"start must be finite; got {self.start!r}.")
        if not self.end >= self.start:
            raise InputError(f"end must be at least start={self.start!r}; got {self.end!r}.")
        if math.isnan(self.loss):
            raise InputError(f"loss must be a number; got {self.loss!r}.")
        if self.rank < 0:
            raise InputError(f"rank must be at least 0; got {self.rank!r}.")
        if self.layer_ranks is not None and min(self.layer_ranks, default=-1) < 0:
            raise InputError(f"layer_ranks must be one or more ranks of at least 0; got {self.layer_ranks!r}.")
        if self.support is None:
            return
        if any(i >= j for i, j in itertools.pairwise(self.support)) or any(i < 0 for i in self.support):
            raise InputError(f"support must be ascending indices, each once, from 0; got {self.support!r}.")
        if len(self.support) != self.rank:
            raise InputError(f"rank must be the size of the support, {len(self.support)}; got {self.rank!r}.")


@validate_arguments
@dataclass(frozen=True, repr=False)
class Staircase(TableMixin, PlotMixin):
    """Ordered tuple of stages: each begins when the previous one ends.

    Attributes:
        stages: at least one.
        time_unit: unit of the times, such as "t / log(1/alpha)", "steps" or "epochs".

    Raises:
        InputError: no stages, or a stage that does not begin where the previous one ends.
    """

    stages: tuple[Stage, ...]
    time_unit: str

    def __post_init__(self) -> None:
        if not self.stages:
            raise InputError("stages must hold at least one Stage; got none.")
        for k, (one, following) in enumerate(itertools.pairwise(self.stages)):
            if following.start != one.end:
                raise InputError(
                    f"stages must be contiguous: stage {k + 1} must start at {one.end!r}, where stage {k} ends; "
                    f"got {following.start!r}."
                )

    @property
    def times(self) -> tuple[float, ...]:
        """Activation times: the starts of all stages but the first, in `time_unit`."""
        return tuple(stage.start for stage in self.stages[1:])

    @property
    def losses(self) -> tuple[float, ...]:
        """Level of each plateau, including the first."""
        return tuple(stage.loss for stage in self.stages)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Rank of each stage, including the first."""
        return tuple(stage.rank for stage in self.stages)

    @property
    def supports(self) -> tuple[tuple[int, ...] | None, ...]:
        """Support of each stage, including the first."""
        return tuple(stage.support for stage in self.stages)

    @property
    def layer_ranks(self) -> tuple[tuple[int, ...] | None, ...]:
        """Rank of every layer in each stage, including the first."""
        return tuple(stage.layer_ranks for stage in self.stages)

    def __len__(self) -> int:
        return len(self.stages)

    def rescaled(self, factor: float, time_unit: str) -> "Staircase":
        """Return the staircase in another unit of time, in which times are `factor` times as large.

        Steps of gradient descent with rate lr are lr / log(1/alpha) in "t / log(1/alpha)".

        Raises:
            InputError: factor is not positive and finite.
        """
        if not 0 < factor < math.inf:
            raise InputError(f"factor must be positive and finite; got {factor!r}.")
        stages = (replace(one, start=factor * one.start, end=factor * one.end) for one in self.stages)
        return Staircase(tuple(stages), time_unit)

    def __repr__(self) -> str:
        first, last = self.stages[0], self.stages[-1]
        return (
            f"Staircase({len(self.stages)} stages, rank {first.rank} to {last.rank}, "
            f"loss {first.loss:.3g} to {last.loss:.3g}, time {first.start:.4g} to {last.end:.4g} in {self.time_unit!r})"
        )

    def _table(self) -> Table:
        extra = [name for name in ("support", "layer_ranks") if getattr(self.stages[0], name) is not None]
        rows = (
            (k, one.start, one.end, one.loss, one.rank, *(getattr(one, name) for name in extra))
            for k, one in enumerate(self.stages)
        )
        return ("stage", "start", "end", "loss", "rank", *(name.replace("_", " ") for name in extra)), rows

    def panel(self) -> Panel:
        """Return the loss over time with the components that become active, until 99 % of its fall is learned."""
        return stages_panel(self.stages, self.time_unit)


@runtime_checkable
class Run(Protocol):
    """Attributes of a run that `compare` and `plot_staircase` use, as trajectories of `saddlescope.flow` have them."""

    @property
    def times(self) -> np.ndarray:
        """Times of the records, (n,)."""
        ...

    @property
    def losses(self) -> np.ndarray:
        """Losses, (n,)."""
        ...

    @property
    def time_unit(self) -> str:
        """Unit of the times."""
        ...

    @property
    def activity(self) -> np.ndarray | None:
        """Magnitudes of the components, (n, r); None if several may learn the same."""
        ...

    @property
    def identified(self) -> bool:
        """True if components have an identity, as coordinates do and singular values do not."""
        ...


def staircase_of(name: str, given: Any) -> Staircase:
    """Return a staircase, or that of a prediction.

    Raises:
        InputError: it is neither.
    """
    stairs = given if isinstance(given, Staircase) else getattr(given, "staircase", None)
    if not isinstance(stairs, Staircase):
        raise InputError(
            f"{name} must be a Staircase, or a prediction with one; got {type(given).__name__!r}. "
            "Pass the result of incremental_learning, or of find_stages."
        )
    return stairs


def run_or_staircase(name: str, given: Any, time_unit: str) -> Run | Staircase:
    """Return a run, or the staircase found in one.

    Raises:
        InputError: it is neither, or in another unit of time.
    """
    found = given if isinstance(given, Run) else getattr(given, "staircase", given)
    if not isinstance(found, Run | Staircase):
        raise InputError(
            f"{name} must be trajectories or staircases found in them; got {type(given).__name__!r}. "
            "Pass each result of gradient_flow, or of find_stages, by itself."
        )
    if found.time_unit != time_unit:
        raise InputError(
            f"{name} must be in the time unit of predicted, {time_unit!r}; got {found.time_unit!r}. Rescale one "
            "of them by Staircase.rescaled."
        )
    return found


@validate_arguments
def find_stages(
    times: Any, losses: Any, activity: Any, *, level: float, time_unit: str, min_duration: float = 0.0
) -> Staircase:
    """Find the staircase in a recorded run: a new stage begins where a component becomes active or inactive.

    A component is active while its magnitude exceeds `level`. Between two samples the magnitude is assumed to grow or
    decay exponentially, as it does near a saddle, so the crossing is exact there for any sampling. Where the four
    samples on its low side agree on growth by a higher power of the magnitude, as of units of degree above 2, the
    crossing is that of this law. A magnitude of exactly 0 is assumed to extend to the neighbouring sample. Components
    that cross between the same two samples are ordered by their crossings.

    With noise a component flickers about the level. A state counts if it lasts `min_duration` without interruption. If
    the states before and after a flicker are equal, the flicker is ignored; if they differ, the change is placed at the
    crossing that leaves the least time on the wrong side. The time before the first and after the last such state is
    assigned to it, so a change needs `min_duration` to the end of the record.

    A stage's loss is the level of its plateau: the mean over the interval, of at least two samples and `min_duration`,
    over which the loss changes slowest (least |slope| of the line through the interval by least squares). Intervals
    before the one in the first half of the stage over which it changes fastest do not count, since the drop may follow
    them. A stage without samples has the loss interpolated at its middle.

    For the layers of a deep network, whose stages the loss shows, use `find_plateaus`, which needs no level.

    Args:
        times: (n,), strictly increasing, in `time_unit`.
        losses: (n,).
        activity: (n, r), the weight of each of r components at each time, such as entries of W_K W_Q^T of a diagonal
            head (only magnitudes count); supports are column indices. Or a `Spectrum` with values (n, r): singular
            values have no identity, so supports are None, and below the noise floor nothing counts as active.
        level: magnitude above which a component is active; greater than 0. Choose it well above the initial scale and
            well below the final values: between them the result hardly depends on it.
        time_unit: unit of `times`.
        min_duration: time for which a component must stay active, or inactive, to count; 0 counts every crossing.

    Returns:
        Stages from the first sample to the last.

    Raises:
        InputError: arrays whose shapes do not match, or that are not finite or not increasing; level or min_duration
            out of range.

    >>> import numpy as np
    >>> t = np.linspace(0.0, 10.0, 101)
    >>> growth = 1e-8 * np.exp(np.stack([4 * t, 2 * t], axis=1))
    >>> find_stages(t, np.exp(-t), np.minimum(growth, 1.0), level=1e-4, time_unit="t").times
    (2.302585092994046, 4.605170185988092)
    """
    identified = not isinstance(activity, Spectrum)
    values = activity if identified else activity.values
    t = recorded_times(times, least=2)
    loss, weight = recorded_losses(losses, t), recorded_rows("activity", values, t)
    if not 0 < level < math.inf:
        raise InputError(f"level must be greater than 0 and finite; got {level!r}.")
    if not 0 <= min_duration < math.inf:
        raise InputError(f"min_duration must be at least 0 and finite; got {min_duration!r}.")
    levels = np.full(len(t), float(level))
    if not identified:
        levels = np.maximum(levels, as_numpy("activity.noise_floor", activity.noise_floor))
    time_exponent, loss_exponent = extreme_exponent(t), extreme_exponent(loss)
    longest = min(min_duration, 4 * float(np.max(np.abs(t))))  # beyond the record all durations are alike
    min_duration = math.ldexp(longest, -time_exponent)
    t, loss = np.ldexp(t, -time_exponent), np.ldexp(loss, -loss_exponent)
    periods = [_active_periods(t, magnitude, levels, min_duration) for magnitude in np.abs(weight).T]
    changes = {edge for of_component in periods for period in of_component for edge in period}
    starts = [float(t[0]), *sorted(edge for edge in changes if t[0] < edge < t[-1])]
    stages = []
    for start, end in itertools.pairwise([*starts, float(t[-1])]):
        support = tuple(i for i, of_component in enumerate(periods) if any(a <= start < b for a, b in of_component))
        plateau = _plateau(t, loss, start, end, min_duration)
        first, last = math.ldexp(start, time_exponent), math.ldexp(end, time_exponent)
        height = math.ldexp(plateau, loss_exponent)
        stages.append(Stage(first, last, height, len(support), support if identified else None))
    return Staircase(tuple(stages), time_unit)


def _active_periods(t: Series, magnitude: Series, levels: Series, min_duration: float) -> list[tuple[float, float]]:
    """Return the periods above the levels: from the first sample or a change, to a change or infinity."""
    with np.errstate(divide="ignore"):
        height = np.log(magnitude) - np.log(levels)
    active = height > 0
    before = np.flatnonzero(active[1:] != active[:-1])
    crossings = np.array([_crossing(t, height, k) for k in before.tolist()])
    bounds = np.concatenate([t[:1], crossings, t[-1:]])
    first, changes = _settled(bounds, min_duration)
    edges = [*([float(t[0])] if active[0] == (first % 2 == 0) else []), *changes]
    return list(itertools.zip_longest(edges[::2], edges[1::2], fillvalue=math.inf))


def _crossing(t: Series, height: Series, before: int) -> float:
    """Return the time at which a logarithmic height passes 0 between a sample and the next.

    Exponential growth is a line, on which the time is found. Growth by a higher power of the magnitude, as of units of
    degree above 2, is a curve that the samples on the low side tell: h' = c e^(q h) with q > 0, or

        t(h) = t_1 + (t_1 - t_2) (1 - e^(-q (h - h_1))) / (e^(q (h_1 - h_2)) - 1),

    with the samples 1 and 2 next to the passage, so that the high sample may be saturated.
    """
    side = -1 if height[before + 1] > 0 else 1  # the samples on the low side are before, or after
    near = np.arange(before, before + 5 * side, side) + (side < 0)  # the high one first
    known = near[(near >= 0) & (near < len(t))]
    times, h = t[known], height[known]
    if math.isinf(h[1]):
        return float(times[0])
    share = float(h[1] / (h[1] - h[0]))
    if len(known) == 5 and np.isfinite(h).all():
        durations, rises = np.abs(np.diff(times)), -np.diff(h)
        q, other = (_power(rises[k], rises[k + 1], durations[k + 1] / durations[k]) for k in (1, 2))
        if abs(q - other) < 0.1 * q:  # rates that change between stages make another curve
            ahead = math.exp(-q * rises[1]) * math.expm1(q * h[1]) / math.expm1(-q * rises[1])
            ahead *= durations[1] / durations[0]
            share = ahead if ahead <= 1 else share
    return float(times[1] + share * (times[0] - times[1]))


def _power(rise: float, last: float, ratio: float) -> float:
    """Return the q of growth as e^(q h) over an interval, and one before that took `ratio` times as long; at least 0.

    It solves (e^(q last) - 1) / (1 - e^(-q rise)) = ratio, whose left side increases with q from last / rise.
    """
    if not (min(rise, last) > 0 and ratio > last / rise):
        return 0.0

    def excess(q: float) -> float:
        return math.expm1(min(q * last, 700.0)) + ratio * math.expm1(-q * rise)

    low = high = _STRAIGHT / rise
    while excess(high) < 0:
        low, high = high, 2 * high
    return float(scipy.optimize.brentq(excess, low, high)) if high > low else 0.0


_STRAIGHT = 1e-4  # of a rise: the power times it below which growth is exponential but for rounding


def _settled(bounds: np.ndarray, min_duration: float) -> tuple[int, list[float]]:
    """Return the first piece that counts and the changes that count, of pieces that alternate between two states."""
    lengths = np.diff(bounds)
    counting = np.flatnonzero(lengths >= min_duration)
    if len(counting) == 0:
        return int(np.sum(lengths[1::2]) > np.sum(lengths[::2])), []
    changes = []
    for one, following in itertools.pairwise(counting.tolist()):
        if (following - one) % 2 == 0:
            continue
        crossings = range(one + 1, following + 1, 2)  # from the old state to the new one
        wrong = [np.sum(lengths[one + 1 : k : 2]) + np.sum(lengths[k + 1 : following : 2]) for k in crossings]
        changes.append(float(bounds[crossings[int(np.argmin(wrong))]]))
    return int(counting[0]), changes


def _plateau(t: Series, loss: Series, start: float, end: float, min_duration: float) -> float:
    """Return the loss where it changes slowest between start and end, from the fastest change in the first half on."""
    inside = (t >= start) & ((t < end) | (t == t[-1]) & (end == t[-1]))
    if not np.any(inside):
        return float(np.interp((start + end) / 2, t, loss))
    t, loss = t[inside], loss[inside]
    if len(t) == 1:
        return float(loss[0])
    first = np.arange(len(t) - 1)
    last = np.maximum(np.searchsorted(t, t[:-1] + min_duration), first + 1)
    pieces = [slice(a, b + 1) for a, b in zip(first, last, strict=True) if b < len(t)] or [slice(None)]
    slopes = np.array([_steepness(t[piece], loss[piece]) for piece in pieces])
    early = [k for k, piece in enumerate(pieces) if t[piece][-1] <= (start + end) / 2]
    drop = max(early, key=lambda k: slopes[k], default=0)
    flattest = min(range(drop, len(pieces)), key=lambda k: slopes[k])
    return float(np.mean(loss[pieces[flattest]]))


def _steepness(t: Series, loss: Series) -> float:
    """Return |slope| of the line by least squares."""
    x = t - np.mean(t)
    return abs(float(x @ loss) / float(x @ x))
