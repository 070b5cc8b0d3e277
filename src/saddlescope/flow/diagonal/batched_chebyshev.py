"""Many gradient flows in mirror coordinates by stabilised explicit steps, in compiled code.

y' = -rate dL/dbeta(beta(y)) has the Jacobian -rate H diag(metric), whose spectrum is that of a symmetric matrix: it is
real, and its radius is at most rate ||H|| max(metric). ||H|| comes from power iterations that continue between runs of
the compiled code.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from saddlescope._shared.compiled_functions import compiled_for_constants
from saddlescope._shared.progress import Report
from saddlescope.flow.diagonal.batched_records import BatchRecords
from saddlescope.flow.diagonal.batched_system import part
from saddlescope.flow.diagonal.coordinates import LARGEST_EXPONENT
from saddlescope.flow.losses.batched import LossBatch, map_losses
from saddlescope.flow.losses.compiled import loss_and_gradient
from saddlescope.flow.solvers import chebyshev
from saddlescope.flow.solvers.chebyshev import Slopes, Steps
from saddlescope.flow.solvers.interpolants import CubicInterpolants

LEAST_TOLERANCE = 1e-6
"""Below it, steps of second order are too many: those of order 5 are faster."""

_ENOUGH = 15_000  # evaluations of one flow: about what implicit steps to the end cost
_USUAL_STEPS = 600  # of a flow
_ROUNDS = 30, 3  # power iterations at the beginning, and before each further run of the compiled code
_MARGIN = 1.1  # of the estimate of ||H||, which power iterations approach from below
_BUFFER, _FEWEST, _MOST = 1_000_000, 16, 128  # numbers, and ticks, that one run of the compiled code records
_SHRINK = 4  # the compiled code is for so many flows at most as are running,
_WORTH = 4096  # but only if the states have so many numbers: otherwise, another compilation takes longer than it saves


class _Mirror(NamedTuple):
    """Coordinates p and q of some flows, their rates, and ||H|| with its eigenvector."""

    p: Float[Array, "n p"]
    q: Float[Array, "n p"]
    rate: Float[Array, "n"]
    curvature: Float[Array, "n"]
    direction: Float[Array, "n p"]


class ChebyshevFlows:
    """Flows that are followed together; each takes the steps it would take alone.

    Attributes:
        evaluations: of each flow's gradient.
        products: of each flow's Hessian with a vector.
        stuck: flows that could take no step however short; True where the gradient was finite at the last trial.
        left: flows that have not reached the end, because implicit steps are faster from where they are, or because
            `max_evaluations` is used up.
    """

    def __init__(
        self, losses: LossBatch, records: BatchRecords, rates: Float[np.ndarray, "flows"], until: float
    ) -> None:
        self._losses, self._records, self._until = losses, records, until
        flows, size = records.last_state.shape
        self.evaluations, self.products = np.zeros(flows, int), np.full(flows, _ROUNDS[0])
        self.stuck: dict[int, bool] = {}
        start = np.ones(size) + 1e-3 * np.cos(np.arange(size))  # orthogonal to no eigenvector but by accident
        self._mirror = _Mirror(
            jnp.asarray(records.coordinates.p),
            jnp.asarray(records.coordinates.q),
            jnp.asarray(rates),
            jnp.zeros(flows),
            jnp.tile(start / np.linalg.norm(start), (flows, 1)),
        )
        self._bound_curvature(records.coordinates.point(records.last_state), losses.form(None), _ROUNDS[0])
        # a step has 1.24 sqrt(h radius) evaluations, and metric is about 2 at products of order 1
        expected = np.sqrt(1.54 * _USUAL_STEPS * until * 2 * rates * np.asarray(self._mirror.curvature))
        self.left = np.flatnonzero(expected > _ENOUGH)

    def run(self, tolerance: float, max_evaluations: int, report: Report) -> None:
        """Follow all flows that are not left, to the end or until they are."""
        flows, size = self._records.last_state.shape
        local = tolerance**1.5  # the error of a step is of third order, that of the flow of second
        rows = np.arange(flows)
        form = self._losses.form(None)
        steps, power = self._begin(local)
        room = int(np.clip(_BUFFER // (flows * size), _FEWEST, _MOST))
        most = min(max_evaluations, _ENOUGH)
        for done in range(0, most, room):
            running = np.flatnonzero(np.asarray(steps.h) > 0)
            if len(running) == 0:
                break
            if len(running) <= len(rows) // _SHRINK and len(rows) * size >= _WORTH:
                kept = np.sort(np.argsort(np.asarray(steps.h) <= 0, kind="stable")[: len(rows) // _SHRINK])
                rows, steps, power = rows[kept], _part(steps, kept), power[kept]
                self._mirror = _part(self._mirror, kept)
                form = self._losses.form(rows)
            if done:
                points = part(self._records.coordinates, rows).point(np.asarray(steps.y))
                self._bound_curvature(points, form, _ROUNDS[1])
                self.products[rows[np.asarray(steps.h) > 0]] += _ROUNDS[1]
            before = steps
            steps, power, taken = _ticks(
                *form[:2], room, form[2], self._mirror, steps, power, self._until, local, min(room, most - done)
            )
            self._records.add(_interpolants(rows, before, *map(np.asarray, taken)))
            self.evaluations[rows] = 1 + np.asarray(steps.evaluations)
            steps = self._stop(rows, steps)
            ended = flows - np.count_nonzero(np.asarray(steps.h) > 0)
            report(float(np.mean(self._records.last_time)) / self._until, f"{ended} of {flows} flows finished")
        self.left = np.append(self.left, rows[np.asarray(steps.h) > 0])

    def _begin(self, tolerance: float) -> tuple[Steps, Array]:
        """Return the beginnings of the first steps, and sum_i metric_i (y_i')^2; flows that are left rest."""
        coordinates, y = self._records.coordinates, self._records.last_state
        slope = -self._mirror.rate[:, None] * self._losses.gradients(coordinates.point(y))
        self.evaluations += 1
        now, power = _slopes_of(self._mirror, slope, jnp.asarray(coordinates.metric(y)))
        return _rest(chebyshev.begin(jnp.asarray(y), now, self._until, tolerance), self.left), power

    def _stop(self, rows: np.ndarray, steps: Steps) -> Steps:
        """Stop flows that have diverged, and note those that are stuck."""
        for row in np.flatnonzero(np.asarray(steps.stuck)):
            self.stuck[int(rows[row])] = bool(steps.finite[row])
        diverged = part(self._records.coordinates, rows).diverged(np.asarray(steps.y))
        return _rest(steps, np.flatnonzero(diverged)) if np.any(diverged) else steps

    def _bound_curvature(self, points: np.ndarray, form: Any, rounds: int) -> None:
        size, direction = _largest_curvature(*form, jnp.asarray(points), self._mirror.direction, rounds)
        self._mirror = self._mirror._replace(curvature=_MARGIN * size, direction=direction)


def _part(of: Any, rows: Int[np.ndarray, "r"]) -> Any:
    return jax.tree.map(lambda array: array[rows], of)


def _rest(steps: Steps, rows: Int[np.ndarray, "r"]) -> Steps:
    return steps._replace(h=steps.h.at[rows].set(0.0)) if len(rows) else steps


def _interpolants(
    rows: Int[np.ndarray, "n"],
    before: Steps,
    completed: np.ndarray,
    t: np.ndarray,
    y: np.ndarray,
    slope: np.ndarray,
    loss: np.ndarray,
) -> CubicInterpolants:
    """Return the completed steps of the ticks, flow by flow, each from where the one before it ended."""
    flow, tick = np.nonzero(completed.T)
    first = np.append(True, flow[1:] != flow[:-1])[: len(flow)]
    first_rows = flow[first]

    def with_starts(values: np.ndarray, start: Array) -> tuple[np.ndarray, np.ndarray]:
        after = values[tick, flow]
        start_of = np.roll(after, 1, axis=0)
        start_of[first] = np.asarray(start)[first_rows]
        return start_of, after

    start, end = with_starts(t, before.t)
    states, slopes = with_starts(y, before.y), with_starts(slope, before.now.slope)
    return CubicInterpolants(rows[flow], start, end, end - start, *states, *slopes, loss[tick, flow])


def _slopes(kind: Any, each: bool, arrays: list[Array], mirror: _Mirror, y: Array) -> tuple[Slopes, Array]:
    """Return slopes, and sum_i metric_i (y_i')^2."""
    rising, falling = mirror.p + 2 * y, mirror.q - 2 * y
    growth = jnp.exp(jnp.minimum(rising, LARGEST_EXPONENT)), jnp.exp(jnp.minimum(falling, LARGEST_EXPONENT))
    excess = jnp.maximum(rising - LARGEST_EXPONENT, 0), jnp.maximum(falling - LARGEST_EXPONENT, 0)
    beta = growth[0] * (1 + excess[0]) - growth[1] * (1 + excess[1])
    gradient = map_losses(lambda loss, point: loss_and_gradient(loss, point)[1], kind, each, arrays, beta)
    return _slopes_of(mirror, -mirror.rate[:, None] * gradient, 2 * (growth[0] + growth[1]))


def _slopes_of(mirror: _Mirror, slope: Array, metric: Array) -> tuple[Slopes, Array]:
    scale = mirror.rate * mirror.curvature
    slopes = Slopes(slope, scale * jnp.max(metric, 1), 2 * scale * jnp.max(metric * jnp.abs(slope), 1))
    return slopes, jnp.sum(metric * slope**2, 1)


def _dissipated(
    mirror: _Mirror, steps: Steps, end: Slopes, power_before: Array, power_after: Array
) -> Float[Array, "n"]:
    """Return the integral of sum_i metric_i (y_i')^2 over a finished step, by Simpson's rule and its cubic."""
    h, start, stop = steps.h[:, None], steps.now.slope, end.slope
    middle = (steps.y + steps.stage) / 2 + h / 8 * (start - stop)
    slope = 1.5 * (steps.stage - steps.y) / jnp.where(h > 0, h, 1.0) - (start + stop) / 4
    rising, falling = (
        jnp.exp(jnp.minimum(each, LARGEST_EXPONENT)) for each in (mirror.p + 2 * middle, mirror.q - 2 * middle)
    )
    return steps.h / 6 * (power_before + 4 * jnp.sum(2 * (rising + falling) * slope**2, 1) + power_after)


@compiled_for_constants(3)
def _ticks(
    kind: Any,
    each: bool,
    room: int,
    arrays: list[Array],
    mirror: _Mirror,
    steps: Steps,
    power: Float[Array, "n"],
    until: float | Array,
    tolerance: float | Array,
    count: int | Array,
) -> tuple[Steps, Float[Array, "n"], tuple[Array, ...]]:
    """Take ticks until `count` or all flows rest.

    Returns:
        The systems; `power`, sum_i metric_i (y_i')^2 at their last states; for each tick, which completed a step, and
        t, y, y' and what it dissipated at its end.
    """
    n, p = steps.y.shape

    def going(carry: Any) -> Array:
        i, steps, *_ = carry
        return (i < count) & jnp.any(steps.h > 0)

    def advance(carry: Any) -> Any:
        i, steps, power, taken = carry
        at_stage, new_power = _slopes(kind, each, arrays, mirror, steps.stage)
        loss = _dissipated(mirror, steps, at_stage, power, new_power)
        steps, completed = chebyshev.tick(steps, at_stage, until, tolerance)
        now = completed, steps.t, steps.y, steps.now.slope, loss
        taken = tuple(old.at[i].set(new) for old, new in zip(taken, now, strict=True))
        return i + 1, steps, jnp.where(completed, new_power, power), taken

    shapes = (n,), (n, p), (n, p), (n,)
    taken = jnp.zeros((room, n), bool), *(jnp.zeros((room, *shape)) for shape in shapes)
    _, steps, power, taken = jax.lax.while_loop(going, advance, (0, steps, power, taken))
    return steps, power, taken


@compiled_for_constants(2)
def _largest_curvature(
    kind: Any, each: bool, arrays: list[Array], points: Array, directions: Array, rounds: int | Array
) -> tuple[Array, Array]:
    """Return estimates of the Hessians' norms by so many power iterations, and their eigenvectors."""

    def one(loss: Any, at: tuple[Array, Array]) -> tuple[Array, Array]:
        point, start = at

        def again(_: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            _, direction = carry
            product = jax.jvp(lambda point: loss_and_gradient(loss, point)[1], (point,), (direction,))[1]
            size = jnp.linalg.norm(product)
            usable = jnp.isfinite(size) & (size > 0)
            return jnp.where(usable, size, 0.0), jnp.where(usable, product / jnp.where(usable, size, 1.0), direction)

        return jax.lax.fori_loop(0, rounds, again, (jnp.zeros(()), start))

    return map_losses(one, kind, each, arrays, (points, directions))
