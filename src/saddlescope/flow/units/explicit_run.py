"""Flow of units by explicit steps in one compiled loop, beside a twin that differs from it in small errors alone.

    y      state of the flow: log norms and directions, as in `unit_model`
    rate   estimate of the largest |eigenvalue| of the Jacobian, by a power iteration along the flow
    R(z)   what a step multiplies a mode by that grows by exp(z) in it: DOP853 (Hairer, Norsett and Wanner 1993)

A direction that has come to rest keeps deviations far below the tolerance, which may decide what follows: a second mode
of a linear network in the same units grows from a power of alpha. The error test does not see them. Explicit steps keep
them: each mode is multiplied by its own factor, whose errors add up to less than the tolerance over the whole flow if

    |R(z) / exp(z) - 1| < tolerance h / until   for |z| = h rate

so that steps are about an e-fold long. Deviations below 1e-16 of a direction are lost to rounding. The twin takes the
same steps, and the last bit of its directions is changed in each, of units that have moved; where both come apart by
more than the tolerance, rounding decides, and the flow ends when such a unit adds as much to the outputs in one of
them, by the square of its norm. A direction that rests from the start does so by a symmetry, exactly; its twin is left
there. A twin that is late on the same path, by less than the tolerance in units of 1 / rate, is put beside the flow
again, unless this adds up to more than the tolerance in units of the time: in a jump after a long plateau, or in a
blow-up, the same delay would be ever larger in units of 1 / rate, which decides nothing.

Where a slope jumps, as at a kink of ReLU neurons, the error test, a thousand times as strict, cuts steps until the jump
is passed; or the neuron is held there (`held_units`). The twin takes the estimated errors, too: all of those at kinks,
and a thousandth of others, since the steps are of order 8 and the estimate is not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from scipy.integrate import DOP853

from saddlescope._shared.compiled_functions import quickly_compiled
from saddlescope._shared.progress import Report
from saddlescope.flow.status import LOCAL_SHARE, REACHED, Status, diverged, exhausted
from saddlescope.flow.units.held_units import SEARCH, HeldUnits
from saddlescope.flow.units.unit_model import UnitModel
from saddlescope.flow.units.unit_records import LARGEST_LOG_NORM, NORM_BOUND, UnitRecords
from saddlescope.numerics.dop853 import SHRINK, SLOPES, STAGES, WEIGHTS, error_of, growth, interpolation

_RUNNING, _REACHED, _EXHAUSTED, _APART, _DIVERGED, _SLOW = range(6)

_SIDES = SLOPES  # number of the last evaluation, on both sides of kinks at the end of the step
_WEIGHTS = np.pad(WEIGHTS, (0, 1))  # of earlier slopes in each
_WEIGHTS[_SIDES] = _WEIGHTS[STAGES]
_COSTS = 2 * len(_WEIGHTS) + 1  # evaluations of an attempt: of both twins, and one derivative
_STEPS = np.linspace(0.05, 2.0, 118)  # sizes h rate


@dataclass(frozen=True)
class ExplicitPolicy:
    """Policy of the explicit steps.

    Attributes:
        first_step: of the whole time: the error test and the power iteration need a few steps.
        settled: attempts after which the rate is taken for a forecast of the evaluations.
        forgets: of the estimated rate in a step.
        moved: change of a direction beyond rounding.
        at_jump: least factor of a step that was refused twice.
        safety: of its proportion to the error.
        short: part of the longest step below which a kink is near.
        strict: part of the error that is allowed there.
        returns: part of its delay that is taken from a twin in a step; without the rest, it would round alike.
        rows: patterns of rounding errors.
        chunk: steps per call, at most.
        numbers: numbers that a call returns, at most.
    """

    first_step: float = 1e-6
    settled: int = 20
    forgets: float = 0.95
    moved: float = 1e-12
    at_jump: float = 0.01
    safety: float = 0.9
    short: float = 0.03
    strict: float = 1e-3
    returns: float = 0.9
    rows: int = 64
    chunk: int = 512
    numbers: int = 2**21


_POLICY = ExplicitPolicy()


_EPS = float(np.finfo(float).eps)

Given = Any  # array of NumPy, or of JAX in compiled code
Scalar = Float[Given, ""]


class _Position(NamedTuple):
    """State between two attempts.

    Attributes:
        time, h: of the next attempt.
        y, slope: of the flow and of its twin.
        fresh: True where the slope has to be evaluated again.
        held: units that are held at a kink.
        mode, rate: of the power iteration.
        moved: units whose direction has moved.
        late: time by which the twin was late, in sum.
        undecided: units whose twins have come apart.
        refused: True if the last attempt was refused.
        attempts: taken.
        evaluations: of the right-hand side.
        code: `_RUNNING` or how it ended.
    """

    time: Scalar
    h: Scalar
    y: Float[Given, "2 s"]
    slope: Float[Given, "2 s"]
    fresh: Bool[Given, ""]
    held: HeldUnits
    mode: Float[Given, "s"]
    rate: Scalar
    moved: Bool[Given, "m"]
    late: Scalar
    undecided: Bool[Given, "m"]
    refused: Bool[Given, ""]
    attempts: Scalar
    evaluations: Scalar
    code: Int[Given, ""]


class _Steps(NamedTuple):
    """Accepted steps of a call, of which the first `count` are set; `terms` are those of DOP853's interpolation."""

    count: Int[Given, ""]
    ends: Float[Given, "n"]
    sizes: Float[Given, "n"]
    before: Float[Given, "n s"]
    after: Float[Given, "n s"]
    terms: Float[Given, "n 7 s"]


class _Numbers(NamedTuple):
    """Numbers of a run: the unit of time as a logarithm, its end, its tolerance, and its evaluations."""

    log_unit: Scalar
    until: Scalar
    tolerance: Scalar
    max_evaluations: Scalar


def follow_explicitly(
    model: UnitModel, records: UnitRecords, log_unit: float, until: float, tolerance: float, most: int, report: Report
) -> tuple[Status | None, int]:
    """Follow the flow from time 0, as long as the evaluations suffice for explicit steps.

    Args:
        model: of the units.
        records: of the flow, at time 0.
        log_unit: logarithm of the unit of time.
        until: last time.
        tolerance: error of log norms and directions.
        most: evaluations of the right-hand side.
        report: called with the finished fraction and a note.

    Returns:
        The status, None where implicit steps have to go on, which may be longer; and the evaluations.
    """
    directions = records.state[model.count :]
    patterns = np.random.default_rng(0).choice([-1.0, 1.0], len(directions) + _POLICY.rows)
    size = max(8, min(_POLICY.chunk, _POLICY.numbers // (9 * len(records.state))))
    numbers = _Numbers(*map(np.asarray, map(float, (log_unit, until, tolerance, most))))
    position = _at_start(records.state, model.count, until)
    code = _RUNNING
    while code == _RUNNING:
        position, steps = _advance(model, position, directions, patterns, numbers, size)
        code, count = int(position.code), int(steps.count)
        if count:
            kept = _Steps(steps.count, *(np.asarray(each)[:count] for each in steps[1:]))
            records.add(kept.ends, kept.after, lambda times, kept=kept: _states(kept, times))
        report(min(records.time / until, 1.0), f"T = {records.time:.4g} of {until:.4g}")
    evaluations = int(position.evaluations)
    if code == _EXHAUSTED:
        return exhausted(most, records.time, "T"), evaluations
    if code == _DIVERGED:
        return diverged(records.time, "T", NORM_BOUND), evaluations
    if code == _APART:
        log_norms = np.asarray(position.y)[:, : model.count].max(axis=0)
        return _apart(log_norms, np.asarray(position.undecided), records.time), evaluations
    return (REACHED if code == _REACHED else None), evaluations


def _apart(log_norms: Float[np.ndarray, "m"], undecided: Bool[np.ndarray, "m"], time: float) -> Status:
    unit = int(np.argmax(np.where(undecided, log_norms, -np.inf)))
    return Status(
        False,
        "undecided",
        f"Errors below the tolerance decide how unit {unit} moves at T = {time:.6g}: runs that differ by them alone "
        "come apart.",
        "Lower tolerance, start from a larger scale, or use gradient_flow or factored_flow.",
    )


def _states(steps: _Steps, times: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k s"]:
    at = np.minimum(np.searchsorted(steps.ends, times), len(steps.ends) - 1)
    x = 1 + ((times - steps.ends[at]) / steps.sizes[at])[:, None]
    y = np.zeros((len(times), steps.before.shape[1]))
    for k in reversed(range(steps.terms.shape[1])):
        y = (y + steps.terms[at, k]) * (x if k % 2 == 0 else 1 - x)
    return steps.before[at] + y


def _errors_of_growth() -> Float[np.ndarray, "z"]:
    """Return |R(z) / exp(z) - 1| / |z|, of z and -z the larger one."""

    def error(z: float) -> float:
        stages = np.zeros(STAGES)
        for k in range(STAGES):
            stages[k] = 1 + z * DOP853.A[k] @ stages
        return abs((1 + z * DOP853.B @ stages) * np.exp(-z) - 1) / abs(z)

    return np.maximum.accumulate([max(error(z), error(-z), _EPS) for z in _STEPS])


_LOG_ERRORS = np.log(_errors_of_growth())


def _longest(rate: Scalar, numbers: _Numbers) -> Scalar:
    """Return the longest step in which all modes grow right."""
    rate = jnp.maximum(rate, 1 / numbers.until)
    allowed = jnp.log(numbers.tolerance / (numbers.until * rate))
    return jnp.interp(allowed, jnp.asarray(_LOG_ERRORS), jnp.asarray(_STEPS)) / rate


def _at_start(state: Float[np.ndarray, "s"], count: int, until: float) -> _Position:
    mode = np.random.default_rng(0).standard_normal(len(state))
    zero = np.zeros(())
    return _Position(
        time=zero, h=np.asarray(_POLICY.first_step * until), y=np.stack([state] * 2), slope=np.zeros((2, len(state))),
        fresh=np.asarray(True), held=HeldUnits.none(count, len(state) // count - 1), mode=mode / np.linalg.norm(mode),
        rate=zero, moved=np.zeros(count, bool), late=zero, undecided=np.zeros(count, bool), refused=np.asarray(False),
        attempts=zero, evaluations=zero, code=np.asarray(_RUNNING),
    )  # fmt: skip


def _iterate(turn: Any, state: Float[Array, "s"], mode: Float[Array, "s"], rate: Scalar) -> tuple[Any, Any]:
    """Return the mode after one power iteration, and the rate, which falls slowly."""
    moved = jax.jvp(turn, (state,), (mode,))[1]
    size = jnp.linalg.norm(moved)
    sound = jnp.isfinite(size) & (size > 0)
    return jnp.where(sound, moved / size, mode), jnp.maximum(jnp.where(sound, size, 0.0), _POLICY.forgets * rate)


def _by_unit(state: Float[Array, "s"], count: int) -> Float[Array, "m"]:
    """Return the largest entry of each unit."""
    return jnp.maximum(state[:count], jnp.max(state[count:].reshape(count, -1), axis=1))


def _by_weight(of_units: Bool[Array, "m"], size: int) -> Bool[Array, "s"]:
    """Return an array of units as one of the state."""
    return jnp.concatenate([of_units, jnp.repeat(of_units, size // len(of_units) - 1)])


def _stages(both: Callable[[Array], Array], now: _Position, h: Scalar) -> Float[Array, "17 2 s"]:
    """Return the slopes in all stages of a step, and last those on both sides of kinks at its end."""
    weights = jnp.asarray(_WEIGHTS)

    def stage(k: Int[Array, ""], K: Float[Array, "17 2 s"]) -> Float[Array, "17 2 s"]:
        at = now.y + h * jnp.tensordot(weights[k], K, 1)
        on_sides = k == _SIDES
        slopes = both(jnp.where(on_sides, now.held.sides(at[0]), at))
        return K.at[k].set(jnp.where(on_sides, slopes, jax.vmap(now.held.along)(slopes)))

    K = jnp.zeros((len(_WEIGHTS), *now.y.shape)).at[0].set(now.slope)
    return lax.fori_loop(jnp.where(now.fresh, 0, 1), len(_WEIGHTS), stage, K)


def _factor(error: Scalar, refused: Bool[Array, ""], accepted: Bool[Array, ""]) -> Scalar:
    """Return the factor of the next step: after two refused steps, the slope is expected to jump at a kink."""
    return jnp.where(refused & ~accepted, jnp.clip(_POLICY.safety / error, _POLICY.at_jump, 0.5), growth(error))


@quickly_compiled
def _advance(
    model: UnitModel,
    position: _Position,
    start: Float[Given, "d"],
    patterns: Float[Given, "r"],
    numbers: _Numbers,
    size: int,
) -> tuple[_Position, _Steps]:
    """Take up to `size` steps."""
    m, s = model.count, position.mode.shape[0]
    turn = lambda y: model.slope(y, numbers.log_unit)  # noqa: E731
    both = jax.vmap(turn)
    slack = LOCAL_SHARE * numbers.tolerance

    def attempt(carried: tuple[_Position, _Steps]) -> tuple[_Position, _Steps]:
        now, steps = carried
        left = numbers.until - now.time
        h = jnp.minimum(now.h, left)
        h = jnp.where(left - h < 1e-12 * numbers.until, left, h)

        K = _stages(both, now, h)
        change = h * jnp.tensordot(jnp.asarray(_WEIGHTS)[STAGES], K, 1)
        y, slope = now.y + change, K[STAGES]
        decided = jnp.stack([jnp.ones(s, bool), ~_by_weight(now.undecided, s)])
        slopes = jnp.where(decided[None], K[: STAGES + 1], 0.0)
        (errors, _), sizes = jax.vmap(partial(error_of, h=h, scale=slack), 1)(slopes)
        error = jnp.max(sizes)
        finite = jnp.isfinite(error) & jnp.all(jnp.isfinite(slope))
        at_kink = h < _POLICY.short * _longest(now.rate, numbers)
        error = jnp.where(at_kink, error / _POLICY.strict, error)
        smooth = jnp.where(at_kink, h * now.rate, jnp.inf)
        held, taken, released = now.held.after(K[: STAGES + 1, 0], h, K[_SIDES], smooth)
        late = jnp.any(released) & ((h * now.rate) ** 2 > slack)  # the unit has left its kink within a long step
        accepted = finite & (error <= 1) & ~late
        factor = jnp.where(finite & ~late, _factor(error, now.refused, accepted), SHRINK)
        moved = now.moved | (jnp.max(jnp.abs(y[0, m:] - start).reshape(m, -1), axis=1) > _POLICY.moved)
        row = now.attempts.astype(int) % _POLICY.rows
        rounding = jnp.where(_by_weight(moved, s)[m:], lax.dynamic_slice(patterns, (row,), (s - m,)), 0.0)
        twin = y[1].at[m:].multiply(1 + _EPS / 2 * rounding) + jnp.where(at_kink, 1.0, _POLICY.strict) * errors
        time = jnp.where(h == left, numbers.until, now.time + h)
        speed = slopes[STAGES, 1]
        late = (y[0] - twin) @ speed / jnp.maximum(speed @ speed, jnp.finfo(float).tiny)
        same = jnp.maximum(jnp.abs(late) * now.rate, jnp.abs(now.late + late) / time) <= numbers.tolerance
        late = jnp.where(same, _POLICY.returns * late, 0.0)
        twin += late * speed
        undecided = now.undecided | (_by_unit(jnp.abs(y[0] - twin), m) > numbers.tolerance)
        mode, rate = _iterate(turn, y[0], now.mode, now.rate)
        begins = accepted & jnp.any(taken)
        held, to_kinks = lax.cond(begins, lambda: held.at_kinks(turn, y[0], taken, rate), lambda: (held, jnp.zeros(s)))
        twins = jnp.stack([y[0] + to_kinks, y[0] + to_kinks + held.along(twin - y[0])])  # both are at the kinks

        evaluations = now.evaluations + _COSTS + jnp.where(begins, SEARCH, 0.0)
        attempts = now.attempts + 1
        longest = _longest(rate, numbers)
        many = (attempts >= _POLICY.settled) & (_COSTS * left / longest > numbers.max_evaluations)
        apart = jnp.any(undecided & (jnp.maximum(y[0, :m], twin[:m]) > jnp.log(numbers.tolerance) / 2))
        slow = many | (h <= 4 * _EPS * now.time)  # implicit steps are longer, or say why there are none
        large = jnp.max(y[0, :m]) > LARGEST_LOG_NORM
        code = jnp.where(evaluations >= numbers.max_evaluations, _EXHAUSTED, jnp.where(slow, _SLOW, _RUNNING))
        ended = jnp.where(apart, _APART, jnp.where(time >= numbers.until, _REACHED, jnp.where(large, _DIVERGED, code)))
        after = _Position(
            time=time, h=jnp.minimum(h * factor, longest), y=twins, slope=slope, fresh=jnp.any(taken | released),
            held=held, mode=mode, rate=rate, moved=moved, late=now.late + late, undecided=undecided, refused=~accepted,
            attempts=attempts, evaluations=evaluations, code=ended.astype(int),
        )  # fmt: skip
        again = now._replace(
            h=h * factor, slope=K[0], fresh=jnp.asarray(False), refused=~accepted, attempts=attempts,
            evaluations=evaluations, code=code.astype(int),
        )  # fmt: skip
        position = jax.tree.map(lambda one, two: jnp.where(accepted, one, two), after, again)
        at = steps.count
        done = _Steps(
            at + accepted.astype(int),
            steps.ends.at[at].set(time),
            steps.sizes.at[at].set(h),
            steps.before.at[at].set(now.y[0]),
            steps.after.at[at].set(y[0]),
            steps.terms.at[at].set(interpolation(K[:_SIDES, 0], h, change[0])),
        )
        return position, done

    empty = _Steps(
        jnp.zeros((), int), jnp.zeros(size), jnp.zeros(size), jnp.zeros((size, s)), jnp.zeros((size, s)),
        jnp.zeros((size, 7, s)),
    )  # fmt: skip
    going = lambda now: (now[0].code == _RUNNING) & (now[1].count < size)  # noqa: E731
    return lax.while_loop(going, attempt, (position, empty))
