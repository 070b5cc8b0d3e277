"""Many gradient flows in mirror coordinates by stabilised explicit steps, in compiled code.

The compiled code marks steps in which a coordinate crosses the level. Of all others, only those that hold a time to
record are looked at again.

y' = -rate dL/dbeta(beta(y)) has the Jacobian -rate H diag(metric), whose spectrum is that of a symmetric matrix: it is
real, and its radius is at most rate ||H|| max(metric). ||H|| comes from power iterations that continue between runs of
the compiled code.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from saddlescope._shared.compiled_functions import quickly_compiled
from saddlescope._shared.progress import Report
from saddlescope.flow.diagonal.batched_records import BatchRecords, part
from saddlescope.flow.diagonal.coordinates import LARGEST_EXPONENT
from saddlescope.loss.abstract_loss import AbstractLoss
from saddlescope.loss.batched import gradients, with_fewest_products
from saddlescope.loss.stacked import StackedRuns
from saddlescope.numerics import chebyshev
from saddlescope.numerics.chebyshev import Slopes, Steps
from saddlescope.numerics.interpolants import CubicInterpolants


@dataclass(frozen=True)
class _Policy:
    """Policy of a batch.

    Attributes:
        steps: of a flow at a tolerance of 1e-4; measured on regressions with 16 to 64 coordinates at alpha = 1e-32.
        worth: evaluations, per coordinate and for four coordinates more, that cost as much as `gradient_flow` for the
            same flow, if a loss has few data.
        data: numbers in the arrays of a loss that double the cost of an evaluation, and halve what is worth it. Both
            are measured on the same regressions, on one core.
        rounds: power iterations at the beginning, and before each further run of the compiled code.
        margin: factor of the estimate of ||H||, which power iterations approach from below.
        buffer: numbers that one run of the compiled code records.
        fewest, most: bounds on its rounds.
        shrink: the compiled code is for at most so many times the flows that are running.
        recompiled: numbers in the states from which that saves more than another compilation takes.
    """

    steps: int = 600
    worth: float = 12_000
    data: float = 1000
    rounds: tuple[int, int] = (30, 3)
    margin: float = 1.1
    buffer: int = 1_000_000
    fewest: int = 16
    most: int = 64
    shrink: int = 4
    recompiled: int = 4096


_POLICY = _Policy()


class _Mirror(NamedTuple):
    """Coordinates p and q of some flows, with e^(p + q) and the states at the level, their rates, ||H||, its vector."""

    p: Float[Array, "n p"]
    q: Float[Array, "n p"]
    product: Float[Array, "n p"]
    low: Float[Array, "n p"]
    high: Float[Array, "n p"]
    rate: Float[Array, "n"]
    curvature: Float[Array, "n"]
    direction: Float[Array, "n p"]


class _Taken(NamedTuple):
    """For each round, which flows completed a step and crossed the level in it, and where they are.

    The first row is the state before all rounds, as if a step had been completed there.
    """

    completed: Bool[Any, "room+1 n"]
    crosses: Bool[Any, "room+1 n"]
    t: Float[Any, "room+1 n"]
    y: Float[Any, "room+1 n p"]
    slope: Float[Any, "room+1 n p"]


class ChebyshevFlows:
    """Flows that are followed together; each takes the steps it would take alone.

    Attributes:
        evaluations: of each flow's gradient.
        products: of each flow's Hessian with a vector.
        stuck: flows that could take no step however short; True where the gradient was finite at the last trial.
        left: flows that have not reached the end, because implicit steps are faster, or because `max_evaluations` is
            used up.
    """

    def __init__(
        self,
        losses: StackedRuns,
        records: BatchRecords,
        rates: Float[np.ndarray, "flows"],
        until: float,
        tolerance: float,
    ) -> None:
        losses = self._losses = with_fewest_products(losses)
        self._records, self._until = records, until
        self._local = tolerance**1.5  # the error of a step is of third order, that of the flow of second
        flows, size = records.last_state.shape
        self.evaluations, self.products = np.zeros(flows, int), np.full(flows, _POLICY.rounds[0])
        self.stuck: dict[int, bool] = {}
        start = np.ones(size) + 1e-3 * np.cos(np.arange(size))  # orthogonal to no eigenvector but by accident
        p, q = records.coordinates.p, records.coordinates.q
        none = np.full((flows, size), np.inf)
        low, high = (-none, none) if records.level is None else records.coordinates.band(records.level)
        self._mirror = _Mirror(
            p=jnp.asarray(p),
            q=jnp.asarray(q),
            product=jnp.exp(p + q),
            low=jnp.asarray(low),
            high=jnp.asarray(high),
            rate=jnp.asarray(rates),
            curvature=jnp.zeros(flows),
            direction=jnp.tile(start / np.linalg.norm(start), (flows, 1)),
        )
        self._bound_curvature(records.coordinates.point(records.last_state), losses, _POLICY.rounds[0])
        arrays = jax.tree.leaves(eqx.filter(losses, eqx.is_array))
        numbers = sum(array.size for array in arrays) / (flows if losses.stacked else 1)
        self._most = int(_POLICY.worth * (size + 4) / (1 + numbers / _POLICY.data))
        steps = _POLICY.steps * math.sqrt(1e-4 / tolerance)
        # a step has 1.24 sqrt(h radius) evaluations, two at least, and metric is about 2 at products of order 1
        radius = 2 * rates * np.asarray(self._mirror.curvature)
        expected = np.maximum(2 * steps, np.sqrt(1.54 * steps * until * radius))
        rounds = self._local < 1000 * np.finfo(float).eps  # so small an error of a step is rounding
        self.left = np.flatnonzero((expected > self._most) | rounds)

    def run(self, max_evaluations: int, report: Report) -> None:
        """Follow all flows that are not left, to the end or until they are."""
        flows, size = self._records.last_state.shape
        rows = np.arange(flows)
        losses = self._losses
        steps = self._begin()
        room = int(np.clip(_POLICY.buffer // (flows * size), _POLICY.fewest, _POLICY.most))
        most = min(max_evaluations, self._most)
        begun = False
        while np.any(running := np.asarray(steps.h) > 0):
            if np.count_nonzero(running) <= len(rows) // _POLICY.shrink and len(rows) * size >= _POLICY.recompiled:
                kept = np.sort(np.argsort(np.asarray(steps.h) <= 0, kind="stable")[: len(rows) // _POLICY.shrink])
                rows, steps, losses = rows[kept], _part(steps, kept), self._losses.part(rows[kept])
                self._mirror = _part(self._mirror, kept)
            if begun:
                points = part(self._records.coordinates, rows).point(np.asarray(steps.y))
                self._bound_curvature(points, losses, _POLICY.rounds[1])
                self.products[rows[np.asarray(steps.h) > 0]] += _POLICY.rounds[1]
            begun = True
            limits = map(jnp.asarray, (self._until, self._local, most))
            steps, taken = _rounds(room, losses, self._mirror, steps, *limits)
            self._records.reach(rows, np.asarray(steps.t), np.asarray(steps.y))
            self._records.add(self._notable(rows, _Taken(*map(np.asarray, taken))))
            self.evaluations[rows] = 1 + np.asarray(steps.evaluations)
            steps = self._stop(rows, steps, most)
            ended = flows - np.count_nonzero(np.asarray(steps.h) > 0)
            report(float(np.mean(self._records.last_time)) / self._until, f"{ended} of {flows} flows finished")

    def _begin(self) -> Steps:
        """Return the beginnings of the first steps; flows that are left rest."""
        coordinates, y = self._records.coordinates, self._records.last_state
        slope = -self._mirror.rate[:, None] * gradients(self._losses, coordinates.point(y))
        self.evaluations += 1
        now = _slopes_of(self._mirror, slope, jnp.asarray(coordinates.metric(y)))
        return _rest(chebyshev.begin(jnp.asarray(y), now, self._until, self._local), self.left)

    def _stop(self, rows: np.ndarray, steps: Steps, most: int) -> Steps:
        """Stop flows that have diverged or are left, and note those that are stuck."""
        for row in np.flatnonzero(np.asarray(steps.stuck)):
            self.stuck[int(rows[row])] = bool(steps.finite[row])
        diverged = part(self._records.coordinates, rows).diverged(np.asarray(steps.y))
        spent = (np.asarray(steps.h) > 0) & (np.asarray(steps.evaluations) >= most) & ~diverged
        self.left = np.append(self.left, rows[spent])
        return _rest(steps, np.flatnonzero(diverged | spent))

    def _notable(self, rows: np.ndarray, taken: _Taken) -> CubicInterpolants:
        """Return the steps that cross the level or hold a time to record, flow by flow."""
        times, completed = self._records.times, taken.completed
        turns = np.where(completed, np.arange(len(completed))[:, None], 0)
        begun = np.maximum.accumulate(turns)[:-1]  # the turn in which the step that is taken in the next one began
        held = np.searchsorted(times, taken.t, "right")
        held = held[1:] > np.take_along_axis(held, begun, 0)
        flow, turn = np.nonzero((completed[1:] & (taken.crosses[1:] | held)).T)
        ends = (begun[turn, flow], flow), (turn + 1, flow)
        start, end = (taken.t[at] for at in ends)
        states, slopes = (taken.y[at] for at in ends), (taken.slope[at] for at in ends)
        return CubicInterpolants(rows[flow], start, end, *states, *slopes)

    def _bound_curvature(self, points: np.ndarray, losses: StackedRuns, rounds: int) -> None:
        size, direction = _largest_curvature(losses, jnp.asarray(points), self._mirror.direction, jnp.asarray(rounds))
        self._mirror = self._mirror._replace(curvature=size, direction=direction)


def _part(of: Any, rows: Int[np.ndarray, "r"]) -> Any:
    return jax.tree.map(lambda array: array[rows], of)


def _rest(steps: Steps, rows: Int[np.ndarray, "r"]) -> Steps:
    return steps._replace(h=steps.h.at[rows].set(0.0)) if len(rows) else steps


def _products(mirror: _Mirror, y: Array) -> tuple[Float[Array, "n p"], Float[Array, "n p"]]:
    """Return e^(p + 2y) and e^(q - 2y), continued by their tangents, from one exponential.

    Their product is a constant. Where it underflows, so does the smaller one: it is less than 1e-154 there.
    """
    rising, falling = mirror.p + 2 * y, mirror.q - 2 * y
    exponent = jnp.maximum(rising, falling)
    capped = jnp.exp(jnp.minimum(exponent, LARGEST_EXPONENT))
    smaller = mirror.product / jnp.maximum(capped, np.finfo(float).tiny)
    larger = capped * (1 + jnp.maximum(exponent - LARGEST_EXPONENT, 0))
    rises = rising >= falling
    return jnp.where(rises, larger, smaller), jnp.where(rises, smaller, larger)


def _slope(losses: StackedRuns, mirror: _Mirror, y: Array) -> Float[Array, "n p"]:
    positive, negative = _products(mirror, y)
    beta = positive - negative
    gradient = losses.map(lambda loss, point: loss.value_and_gradient(point)[1], beta)
    return -mirror.rate[:, None] * gradient


def _metric(mirror: _Mirror, y: Array) -> Float[Array, "n p"]:
    positive, negative = _products(mirror, y)
    return 2 * jnp.minimum(positive + negative, math.exp(LARGEST_EXPONENT))


def _beside(mirror: _Mirror, y: Array) -> Int[Array, "n p"]:
    """Return 1 where beta is at the level or above it, -1 at or below its negative, and 0 between."""
    return (y >= mirror.high).astype(int) - (y <= mirror.low).astype(int)


def _slopes_of(mirror: _Mirror, slope: Array, metric: Array) -> Slopes:
    scale = mirror.rate * mirror.curvature
    return Slopes(slope, scale * jnp.max(metric, 1), 2 * scale * jnp.max(metric * jnp.abs(slope), 1))


@quickly_compiled
def _rounds(
    room: int,
    losses: StackedRuns,
    mirror: _Mirror,
    steps: Steps,
    until: Float[Array, ""],
    tolerance: Float[Array, ""],
    most: Int[Array, ""],
) -> tuple[Steps, _Taken]:
    """Advance and complete, `room` times or until all flows rest or have used up their evaluations."""
    n = len(steps.y)

    def going(carry: Any) -> Array:
        i, steps, _ = carry
        return (i <= room) & jnp.any((steps.h > 0) & (steps.evaluations < most))

    def again(carry: Any) -> Any:
        i, before, taken = carry
        before, slope = chebyshev.advance(before, partial(_slope, losses, mirror), most)
        at_stage = _slopes_of(mirror, slope, _metric(mirror, before.y + before.stage))
        after, completed = chebyshev.complete(before, at_stage, until, tolerance)
        crosses = jnp.any(_beside(mirror, before.y) != _beside(mirror, after.y), axis=1)
        now = _Taken(completed, crosses, after.t, after.y, after.now.slope)
        return i + 1, after, _Taken(*(old.at[i].set(new) for old, new in zip(taken, now, strict=True)))

    begun = _Taken(jnp.ones(n, bool), jnp.zeros(n, bool), steps.t, steps.y, steps.now.slope)
    taken = _Taken(*(jnp.zeros((room + 1, *row.shape), row.dtype).at[0].set(row) for row in begun))
    return jax.lax.while_loop(going, again, (1, steps, taken))[1:]


@quickly_compiled
def _largest_curvature(
    losses: StackedRuns, points: Float[Array, "n p"], directions: Float[Array, "n p"], rounds: Int[Array, ""]
) -> tuple[Array, Array]:
    """Return estimates of the Hessians' norms by so many power iterations, with a margin, and their eigenvectors."""

    def one(loss: AbstractLoss, point: Array, start: Array) -> tuple[Array, Array]:
        def again(_: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            _, direction = carry
            product = jax.jvp(lambda point: loss.value_and_gradient(point)[1], (point,), (direction,))[1]
            size = jnp.linalg.norm(product)
            usable = jnp.isfinite(size) & (size > 0)
            following = jnp.where(usable, product / jnp.where(usable, size, 1.0), direction)
            return jnp.where(usable, _POLICY.margin * size, 0.0), following

        return jax.lax.fori_loop(0, rounds, again, (jnp.zeros(()), start))

    return losses.map(one, points, directions)
