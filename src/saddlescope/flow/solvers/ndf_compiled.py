"""The stiff solver of `saddlescope.flow.solvers.ndf` as one compiled loop, for systems written in JAX.

Formulas, step sizes, tests and refusals are those of `Stepper`, which is the specification; names are too. Two loops:

    outer   changes the step size and factorises the Newton matrix
    inner   takes steps with these factors, as long as they serve

so that the factors are constant in the inner loop, and are never copied. They serve for one step size where the state
is small: then all steps are those of `Stepper`. Large systems keep them for step sizes nearby and iterate more.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from saddlescope.flow.solvers.ndf_coefficients import (
    ADVANCE,
    ALPHA,
    ERROR,
    GROW,
    MAX_ORDER,
    NEARLY,
    NEWTON_ITERATIONS,
    NEWTON_SLOWEST,
    NEWTON_TOLERANCE,
    PREDICT_AND_PAST,
    ROWS,
    SHRINK,
    SMALLEST_STEP,
    UNCHANGED,
)

RUNNING, REACHED, EXHAUSTED, STUCK = range(4)
"""Codes of a run: under way, at its last time, out of evaluations, no step short enough."""

_SMALL = 64  # states up to which a factorisation costs about as much as a step: it is formed for every step size
_STALE = 3.0  # of others: part by which h / alpha may differ from that of the factors in use

_EPS = float(np.finfo(float).eps)
_J = np.arange(1.0, MAX_ORDER + 1)

Scalar = Float[Array, ""]
Count = Int[Array, ""]
Flag = Bool[Array, ""]


@runtime_checkable
class CompiledSystem(Protocol):
    """Right-hand side f(y) of a stiff system in JAX, a pytree, with the solution of its Newton equations."""

    def slope(self, y: Float[Array, "n"]) -> Float[Array, "n"]:
        """Return the right-hand side f(y); NaN where a trial state overflows."""
        ...

    def newton(self, y: Float[Array, "n"], c: Scalar) -> Any:
        """Return what `solve` needs of 1 - c df/dy at y, a pytree."""
        ...

    def solve(self, factors: Any, right: Float[Array, "n"]) -> Float[Array, "n"]:
        """Return the solution x of (1 - c df/dy) x = right."""
        ...


class Plan(NamedTuple):
    """Recorded times, tolerances and limits of a run.

    Attributes:
        recorded: times to record, ascending; those after `until` are never reached.
        until: the last time.
        rtol: relative error of a step.
        atol: absolute errors of a step.
        max_evaluations: of the right-hand side.
    """

    recorded: Float[Array, "K"]
    until: Scalar
    rtol: Scalar
    atol: Float[Array, "n"]
    max_evaluations: Count

    @property
    def wanted(self) -> Count:
        """Number of the times to record that can be reached."""
        return jnp.sum(self.recorded <= self.until)


class Records(NamedTuple):
    """Interpolated states at the recorded times, of which the first `reached` are set.

    Attributes:
        states: (K, n).
        slopes: derivatives of the interpolation there, (K, n).
        spacings: h / alpha of the steps they are in, (K,).
        reached: recorded times that were reached.
    """

    states: Float[Array, "K n"]
    slopes: Float[Array, "K n"]
    spacings: Float[Array, "K"]
    reached: Count


class Position(NamedTuple):
    """State of a run between two steps.

    Attributes:
        time: of the last step's end.
        differences: backward differences of the state then, the state itself first, (rows, n).
        steps, evaluations: of the run.
        code: `RUNNING`, `REACHED`, `EXHAUSTED` or `STUCK`.
        finite: False if the last right-hand side was NaN or infinite.
        h, order, equal_steps: of the next step, and how many had the same size.
        factor: by what the step size has to change first.
        resized: True if it has to.
    """

    time: Scalar
    differences: Float[Array, "rows n"]
    steps: Count
    evaluations: Count
    code: Count
    finite: Flag
    h: Scalar
    order: Count
    equal_steps: Count
    factor: Scalar
    resized: Flag


class _Correction(NamedTuple):
    """State of Newton's iteration; its outcome is 0 while it runs, 1 if it has converged, and -1 if it has failed."""

    correction: Float[Array, "n"]
    last: Scalar
    rate: Scalar
    iterations: Count
    outcome: Count
    finite: Flag


def at_start(system: CompiledSystem, start: Float[Array, "n"], plan: Plan) -> tuple[Records, Position]:
    """Return empty records, and the position of a run at time 0, in the state `start`."""
    n, size = start.shape[0], plan.recorded.shape[0]
    slope = system.slope(start)
    speed = norm(slope / (plan.atol + plan.rtol * jnp.abs(start)))
    h = jnp.where(speed > 0, jnp.minimum(plan.until, 0.01 / speed), plan.until)
    at_zero = plan.recorded <= 0
    records = Records(
        states=jnp.where(at_zero[:, None], start[None], jnp.zeros((size, n))),
        slopes=jnp.zeros((size, n)),
        spacings=jnp.zeros(size),
        reached=jnp.sum(at_zero),
    )
    ended = jnp.where(plan.max_evaluations <= 1, EXHAUSTED, RUNNING)
    position = Position(
        time=jnp.zeros(()),
        differences=jnp.zeros((ROWS, n)).at[0].set(start).at[1].set(h * slope),
        steps=jnp.zeros((), int),
        evaluations=jnp.ones((), int),
        code=jnp.where(records.reached == plan.wanted, REACHED, ended),
        finite=jnp.asarray(True),
        h=h,
        order=jnp.ones((), int),
        equal_steps=jnp.zeros((), int),
        factor=jnp.ones(()),
        resized=jnp.asarray(False),
    )
    return records, position


def integrate(system: CompiledSystem, records: Records, position: Position, plan: Plan) -> tuple[Records, Position]:
    """Integrate y' = f(y) through the times to record; to be traced by `jax.jit` or `jax.vmap`.

    Args:
        system: the right-hand side.
        records: so far, from `at_start`.
        position: where the run is.
        plan: of the run.

    Returns:
        The recorded states, and the end of the run.
    """
    recorded, until, rtol, atol, max_evaluations = plan
    stale, wanted = _STALE if position.differences.shape[1] > _SMALL else 0.0, plan.wanted

    def attempt(carried: _Attempt, factors: Any, c: Scalar) -> _Attempt:
        before = carried.position
        predicted, psi = jnp.asarray(PREDICT_AND_PAST)[before.order] @ before.differences
        now = before.h / jnp.asarray(ALPHA)[before.order]
        found = _newton(system, factors, predicted, psi, now, 2 / (1 + now / c), rtol, atol, carried.rate)
        after, accepted = _judge(before, predicted, found, rtol, atol, until, carried.fresh)
        records = _record(carried.records, after, before, recorded, wanted, accepted)
        ended = jnp.where(after.evaluations >= max_evaluations, EXHAUSTED, RUNNING)
        code = jnp.where(accepted, jnp.where(records.reached == wanted, REACHED, ended), RUNNING)
        after = after._replace(code=code)
        if not stale:
            serves = accepted & ~after.resized & ~_passes(after.time, after.h, until)
            return _Attempt(records, after, jnp.asarray(False), found.rate, serves)
        resized = _resize(after, until)
        near = jnp.abs(resized.h / jnp.asarray(ALPHA)[resized.order] / c - 1) < stale
        serves = (found.outcome == 1) & near & (resized.code == RUNNING)
        rate = jnp.where(resized.h == after.h, found.rate, jnp.nan)
        after = jax.tree.map(lambda one, two: jnp.where(serves, one, two), resized, after)
        return _Attempt(records, after, jnp.asarray(False), rate, serves)

    def epoch(carried: tuple[Records, Position]) -> tuple[Records, Position]:
        records, position = carried
        position = _resize(position, until)
        predicted = jnp.asarray(PREDICT_AND_PAST)[position.order, 0] @ position.differences
        c = position.h / jnp.asarray(ALPHA)[position.order]
        factors = system.newton(predicted, c)
        begin = _Attempt(records, position, jnp.asarray(True), jnp.asarray(jnp.nan), jnp.asarray(True))
        ended = lax.while_loop(
            lambda now: now.serves & (now.position.code == RUNNING), lambda now: attempt(now, factors, c), begin
        )
        return ended.records, ended.position

    return lax.while_loop(lambda now: now[1].code == RUNNING, epoch, (records, position))


class _Attempt(NamedTuple):
    """State between two attempts with the same factors; `serves` is False once these are of no more use."""

    records: Records
    position: Position
    fresh: Flag
    rate: Scalar
    serves: Flag


def _passes(time: Scalar, h: Scalar, until: Scalar) -> Flag:
    return time + h > until * (1 - NEARLY)


def _resize(position: Position, until: Scalar) -> Position:
    """Change the step size as was asked for, and so that the last step ends at the last time."""
    wanted = position.h * position.factor
    stuck = wanted <= SMALLEST_STEP * jnp.maximum(position.time, _EPS * until)
    passes = _passes(position.time, wanted, until)
    h = jnp.where(passes, until - position.time, wanted)
    changed = position.resized | passes
    head = position.differences[: MAX_ORDER + 1]
    spaced = jnp.where(changed, _respacing(h / position.h, position.order) @ head, head)
    return position._replace(
        code=jnp.where(stuck, STUCK, position.code),
        h=jnp.where(changed, h, position.h),
        differences=position.differences.at[: MAX_ORDER + 1].set(spaced),
        equal_steps=jnp.where(changed, 0, position.equal_steps),
        factor=jnp.ones(()),
        resized=jnp.asarray(False),
    )


def _newton(
    system: CompiledSystem,
    factors: Any,
    predicted: Float[Array, "n"],
    psi: Float[Array, "n"],
    c: Scalar,
    damping: Scalar,
    rtol: Scalar,
    atol: Float[Array, "n"],
    rate: Scalar,
) -> _Correction:
    """Solve for the correction to the prediction; a rate of NaN is not known yet.

    Factors of another c change the fast parts by too much or too little, and leave the slow ones: `damping` is between.
    """
    scale = atol + rtol * jnp.abs(predicted)

    def iterate(now: _Correction) -> _Correction:
        slope = system.slope(predicted + now.correction)
        finite = jnp.all(jnp.isfinite(slope))
        change = damping * system.solve(factors, c * slope - psi - now.correction)
        size = norm(change / scale)
        sound = finite & jnp.isfinite(size)
        seen = (now.iterations > 0) & (size > NEWTON_TOLERANCE / 100)
        measured = size / now.last
        slow = seen & (measured > NEWTON_SLOWEST)
        updated = jnp.where(jnp.isnan(now.rate), measured, jnp.maximum(0.3 * now.rate, measured))
        rate = jnp.where(seen & ~slow & sound, updated, now.rate)
        known = jnp.where(jnp.isnan(rate), 0.99, rate)  # a change of the size of rounding needs no known rate
        done = known / (1 - known) * size < NEWTON_TOLERANCE
        iterations = now.iterations + 1
        failed = ~sound | slow | (~done & (iterations == NEWTON_ITERATIONS))
        return _Correction(
            correction=jnp.where(sound & ~slow, now.correction + change, now.correction),
            last=size,
            rate=rate,
            iterations=iterations,
            outcome=jnp.where(failed, -1, jnp.where(done, 1, 0)),
            finite=finite,
        )

    begin = _Correction(
        jnp.zeros_like(predicted), jnp.zeros(()), rate, jnp.zeros((), int), jnp.zeros((), int), jnp.asarray(True)
    )
    return lax.while_loop(lambda now: now.outcome == 0, iterate, begin)


def _judge(
    before: Position,
    predicted: Float[Array, "n"],
    found: _Correction,
    rtol: Scalar,
    atol: Float[Array, "n"],
    until: Scalar,
    fresh: Flag,
) -> tuple[Position, Flag]:
    """Return the position after an attempt, with the next order and step size, and True if the step was taken."""
    k = before.order
    scale = atol + rtol * jnp.abs(predicted + found.correction)
    d = jnp.asarray(ADVANCE)[k] @ jnp.concatenate([before.differences, found.correction[None]])
    error, lower, higher = (
        jnp.asarray(ERROR)[jnp.clip(k + shift, 1, MAX_ORDER)] * norm(difference / scale)
        for shift, difference in ((0, found.correction), (-1, d[k]), (1, d[k + 2]))
    )
    safe = 0.9 * (2 * NEWTON_ITERATIONS + 1) / (2 * NEWTON_ITERATIONS + found.iterations).astype(float)
    converged = found.outcome == 1
    accepted = converged & ~(error > 1)
    bounded = jnp.stack([jnp.where(k > 1, lower, jnp.inf), error, jnp.where(k < MAX_ORDER, higher, jnp.inf)])
    factors = bounded ** (-1 / (k + jnp.arange(3)).astype(float))
    change, factor = jnp.argmax(factors) - 1, jnp.minimum(GROW, safe * jnp.max(factors))
    resized = (before.equal_steps >= k) & ((change != 0) | ~((UNCHANGED[0] < factor) & (factor < UNCHANGED[1])))
    shrunk = jnp.where(converged, jnp.maximum(SHRINK, safe * factors[1]), jnp.where(fresh, 0.5, 1.0))
    time = jnp.minimum(before.time + before.h, until)
    time = jnp.where(until - time <= NEARLY * until, until, time)
    after = Position(
        time=jnp.where(accepted, time, before.time),
        differences=jnp.where(accepted, d, before.differences),
        steps=before.steps + accepted.astype(int),
        evaluations=before.evaluations + found.iterations,
        code=before.code,
        finite=found.finite,
        h=before.h,
        order=jnp.where(accepted & resized, k + change, k),
        equal_steps=before.equal_steps + accepted.astype(int),
        factor=jnp.where(accepted, jnp.where(resized, factor, 1.0), shrunk),
        resized=jnp.where(accepted, resized, converged | fresh),
    )
    return after, accepted


def _record(
    records: Records, after: Position, before: Position, recorded: Float[Array, "K"], wanted: Count, accepted: Flag
) -> Records:
    """Record the interpolated states within a step."""
    k, h, d = before.order, before.h, after.differences
    c = h / jnp.asarray(ALPHA)[k]

    def due(now: Records) -> Flag:
        return accepted & (now.reached < wanted) & (recorded[now.reached] <= after.time)

    def write(now: Records) -> Records:
        at = now.reached
        values, slopes = _bases((recorded[at] - after.time) / h, k)
        rows = d[1 : MAX_ORDER + 1]
        return Records(
            now.states.at[at].set(d[0] + values @ rows),
            now.slopes.at[at].set(slopes @ rows / h),
            now.spacings.at[at].set(c),
            at + 1,
        )

    return lax.while_loop(due, write, records)


def _bases(s: Scalar, order: Count) -> tuple[Float[Array, "5"], Float[Array, "5"]]:
    """Return the polynomials by which D[1], ..., D[5] count at time s, and their derivatives; 0 beyond the order."""
    value, slope, values, slopes = jnp.ones(()), jnp.zeros(()), [], []
    for j in range(MAX_ORDER):
        factor = (s + j) / (1 + j)
        value, slope = value * factor, slope * factor + value / (1 + j)
        values.append(value)
        slopes.append(slope)
    within = jnp.arange(1, MAX_ORDER + 1) <= order
    return jnp.where(within, jnp.stack(values), 0.0), jnp.where(within, jnp.stack(slopes), 0.0)


def _respacing(factor: Scalar, order: Count) -> Float[Array, "6 6"]:
    """Return the matrix that turns D[0], ..., D[5] into those of a step size `factor` times as large."""
    rows = (_J[:, None] - 1 - factor * _J[None, :]) / _J[:, None]
    spacing = jnp.cumprod(jnp.ones((MAX_ORDER + 1, MAX_ORDER + 1)).at[1:, 0].set(0.0).at[1:, 1:].set(rows), axis=0)
    ones = (_J[:, None] - 1 - _J[None, :]) / _J[:, None]
    of_one = np.ones((MAX_ORDER + 1, MAX_ORDER + 1))
    of_one[1:, 0], of_one[1:, 1:] = 0, ones
    matrix = (spacing @ jnp.asarray(np.cumprod(of_one, axis=0))).T
    within = jnp.arange(MAX_ORDER + 1) <= order
    return jnp.where(within[:, None] & within[None, :], matrix, jnp.eye(MAX_ORDER + 1))


def norm(x: Float[Array, "n"]) -> Scalar:
    """Return the root mean square, of squares that neither over- nor underflow."""
    largest = jnp.max(jnp.abs(x))
    usual = (largest > 0) & jnp.isfinite(largest)
    unit = jnp.where(usual, largest, 1.0)
    return jnp.where(usual, unit * jnp.sqrt(jnp.mean((x / unit) ** 2)), largest)
