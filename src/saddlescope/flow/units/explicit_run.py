"""Flow of units by explicit steps in one compiled loop, beside a twin that differs from it in rounding errors alone.

    y      state of the flow: log norms and directions, as in `unit_model`
    rate   estimate of the largest |eigenvalue| of the Jacobian, by a power iteration along the flow
    R(z)   what a step multiplies a mode by that grows by exp(z) in it: DOP853 (Hairer, Norsett and Wanner 1993)

A direction that has come to rest keeps deviations far below the tolerance, which may decide what follows: a second mode
of a linear network in the same units grows from a power of alpha. The error test does not see them. Explicit steps keep
them: each mode is multiplied by its own factor, whose errors add up to less than the tolerance over the whole flow if

    |R(z) / exp(z) - 1| < tolerance h / until   for |z| = h rate

so that steps are about an e-fold long. Deviations below 1e-16 of a direction are lost to rounding. The twin takes the
same steps, and the last bit of its directions is changed in each, of units that have moved; where both come apart by
more than the tolerance, rounding decides, and the flow ends. A direction that rests from the start does so by a
symmetry, exactly; its twin is left there.
"""

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
from saddlescope.flow.units.unit_model import UnitModel
from saddlescope.flow.units.unit_records import LARGEST_LOG_NORM, NORM_BOUND, UnitRecords

_RUNNING, _REACHED, _EXHAUSTED, _APART, _DIVERGED, _SLOW = range(6)

_STAGES, _MORE = DOP853.n_stages, len(DOP853.A_EXTRA)  # of a step, and of its interpolation
_WEIGHTS = np.zeros((_STAGES + 1 + _MORE, _STAGES + 1 + _MORE))  # of earlier stages in each
_WEIGHTS[:_STAGES, :_STAGES], _WEIGHTS[_STAGES, :_STAGES], _WEIGHTS[_STAGES + 1 :] = DOP853.A, DOP853.B, DOP853.A_EXTRA
_COSTS = 2 * len(_WEIGHTS) + 1  # evaluations of an attempt: of both twins, and one derivative
_STEPS = np.linspace(0.05, 2.0, 118)  # sizes h rate
_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 10.0
_FIRST_STEP = 1e-6  # of the whole time: the error test and the power iteration need a few steps
_FORGETS = 0.95  # of the estimated rate in a step
_MOVED = 1e-12  # in a direction: beyond rounding
_AT_JUMP = 0.02  # least factor of a step that was refused twice
_SLACK, _PATIENCE = 20.0, 0.25  # attempts per step that the rate asks for, and part of the evaluations for others
_ROWS = 64  # patterns of rounding errors
_CHUNK, _NUMBERS = 512, 2**21  # steps per call, and numbers that it returns

_EPS, _TINY = float(np.finfo(float).eps), 1e-30

Scalar = Float[Array, ""]


class _Position(NamedTuple):
    """State between two attempts.

    Attributes:
        time, h: of the next attempt.
        y, slope: of the flow and of its twin.
        mode, rate: of the power iteration.
        moved: units whose direction has moved.
        refused: True if the last attempt was refused.
        attempts, ideal: taken, and how many steps the rate asked for.
        evaluations: of the right-hand side.
        code: `_RUNNING` or how it ended.
    """

    time: Scalar
    h: Scalar
    y: Float[Array, "2 s"]
    slope: Float[Array, "2 s"]
    mode: Float[Array, "s"]
    rate: Scalar
    moved: Bool[Array, "m"]
    refused: Bool[Array, ""]
    attempts: Scalar
    ideal: Scalar
    evaluations: Scalar
    code: Int[Array, ""]


class _Steps(NamedTuple):
    """Accepted steps of a call, of which the first `count` are set; `terms` are those of DOP853's interpolation."""

    count: Int[Array, ""]
    ends: Float[Array, "n"]
    sizes: Float[Array, "n"]
    before: Float[Array, "n s"]
    after: Float[Array, "n s"]
    terms: Float[Array, "n 7 s"]


class _Numbers(NamedTuple):
    """Numbers of a run: the unit of time as a logarithm, its end, its tolerance, and its evaluations."""

    log_unit: Scalar
    until: Scalar
    tolerance: Scalar
    max_evaluations: Scalar


def follow_explicitly(
    model: UnitModel, records: UnitRecords, log_unit: float, until: float, tolerance: float, most: int, report: Report
) -> tuple[Status | None, int]:
    """Follow the flow from time 0, as long as explicit steps are short enough in number.

    Args:
        model: of the units.
        records: of the flow, at time 0.
        log_unit: logarithm of the unit of time.
        until: last time.
        tolerance: error of log norms and directions.
        most: evaluations of the right-hand side.
        report: called with the finished fraction and a note.

    Returns:
        The status, None if implicit steps have to go on, and the evaluations.
    """
    directions = records.state[model.count :]
    patterns = np.random.default_rng(0).choice([-1.0, 1.0], len(directions) + _ROWS)
    size = max(8, min(_CHUNK, _NUMBERS // (9 * len(records.state))))
    numbers = _Numbers(*map(np.asarray, map(float, (log_unit, until, tolerance, most))))
    position = _at_start(records.state, model.count, until)
    code = _RUNNING
    while code == _RUNNING:
        position, steps = _advance(model, position, directions, patterns, numbers, size)
        code, count, rate = int(position.code), int(steps.count), float(position.rate)
        if count:
            kept = jax.tree.map(lambda each: np.asarray(each)[:count] if np.ndim(each) else count, steps)
            records.add(kept.ends, kept.after, lambda times, kept=kept: _states(kept, times))
        report(min(records.time / until, 1.0), f"T = {records.time:.4g} of {until:.4g}")
        left = (until - records.time) / float(_longest(np.asarray(rate), numbers, np))
        if code == _RUNNING and left * _COSTS > most - int(position.evaluations):
            code = _SLOW
    evaluations = int(position.evaluations)
    if code == _EXHAUSTED:
        return exhausted(most, records.time, "T"), evaluations
    if code == _DIVERGED:
        return diverged(records.time, "T", NORM_BOUND), evaluations
    if code == _APART:
        return _apart(model, np.asarray(position.y), records.time), evaluations
    return (REACHED if code == _REACHED else None), evaluations


def _apart(model: UnitModel, y: Float[np.ndarray, "2 s"], time: float) -> Status:
    distances = np.abs(y[0] - y[1])
    m = model.count
    unit = int(np.argmax(np.maximum(distances[:m], distances[m:].reshape(m, -1).max(axis=1))))
    return Status(
        False,
        f"Rounding decides how unit {unit} moves at T = {time:.6g}: it grows from a deviation of about 1e-16.",
        "Start from a larger scale, or use gradient_flow or factored_flow.",
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
        stages = np.zeros(_STAGES)
        for k in range(_STAGES):
            stages[k] = 1 + z * DOP853.A[k] @ stages
        return abs((1 + z * DOP853.B @ stages) * np.exp(-z) - 1) / abs(z)

    return np.maximum.accumulate([max(error(z), error(-z), _EPS) for z in _STEPS])


_LOG_ERRORS = np.log(_errors_of_growth())


def _longest(rate: Any, numbers: _Numbers, xp: Any) -> Any:
    """Return the longest step in which all modes grow right."""
    rate = xp.maximum(rate, 1 / numbers.until)
    return xp.interp(xp.log(numbers.tolerance / (numbers.until * rate)), _LOG_ERRORS, _STEPS) / rate


def _at_start(state: Float[np.ndarray, "s"], count: int, until: float) -> _Position:
    mode = np.random.default_rng(0).standard_normal(len(state))
    zero, none = np.zeros(()), np.asarray(False)
    return _Position(
        time=zero, h=np.asarray(_FIRST_STEP * until), y=np.stack([state] * 2), slope=np.zeros((2, len(state))),
        mode=mode / np.linalg.norm(mode), rate=zero, moved=np.zeros(count, bool), refused=none, attempts=zero,
        ideal=zero, evaluations=zero, code=np.asarray(_RUNNING),
    )  # fmt: skip


def _iterate(turn: Any, state: Float[Array, "s"], mode: Float[Array, "s"], rate: Scalar) -> tuple[Any, Any]:
    """Return the mode after one power iteration, and the rate, which falls slowly."""
    moved = jax.jvp(turn, (state,), (mode,))[1]
    size = jnp.linalg.norm(moved)
    sound = jnp.isfinite(size) & (size > 0)
    return jnp.where(sound, moved / size, mode), jnp.maximum(jnp.where(sound, size, 0.0), _FORGETS * rate)


def _norm(x: Float[Array, "s"]) -> Scalar:
    return jnp.sqrt(jnp.mean(x**2))


@quickly_compiled
def _advance(
    model: UnitModel,
    position: _Position,
    start: Float[Array, "d"],
    patterns: Float[Array, "r"],
    numbers: _Numbers,
    size: int,
) -> tuple[_Position, _Steps]:
    """Take up to `size` steps."""
    m, s = model.count, position.mode.shape[0]
    turn = lambda y: model.slope(y, numbers.log_unit)  # noqa: E731
    both = jax.vmap(turn)
    slack = LOCAL_SHARE * numbers.tolerance
    weights, E3, E5, D = map(jnp.asarray, (_WEIGHTS, DOP853.E3, DOP853.E5, DOP853.D))

    def attempt(carried: tuple[_Position, _Steps]) -> tuple[_Position, _Steps]:
        now, steps = carried
        left = numbers.until - now.time
        longest = _longest(now.rate, numbers, jnp)
        h = jnp.minimum(now.h, left)
        h = jnp.where(left - h < 1e-12 * numbers.until, left, h)

        def stage(k: Int[Array, ""], K: Float[Array, "16 2 s"]) -> Float[Array, "16 2 s"]:
            return K.at[k].set(both(now.y + h * jnp.tensordot(weights[k], K, 1)))

        K = jnp.zeros((len(_WEIGHTS), 2, s)).at[0].set(now.slope)
        K = lax.fori_loop(jnp.where(now.attempts > 0, 1, 0), len(_WEIGHTS), stage, K)
        change = h * jnp.tensordot(weights[_STAGES], K, 1)
        y, slope, own = now.y + change, K[_STAGES], K[: _STAGES + 1, 0]
        fifth, third = h / slack * (E5 @ own), h / slack * (E3 @ own)
        error = _norm(fifth) ** 2 / jnp.sqrt(_norm(fifth) ** 2 + 0.01 * _norm(third) ** 2 + _TINY)
        finite = jnp.isfinite(error) & jnp.all(jnp.isfinite(slope))
        accepted = finite & (error <= 1)
        grown = jnp.clip(_SAFETY * jnp.maximum(error, _TINY) ** (-1 / 8), _SHRINK, _GROW)
        shrunk = jnp.where(now.refused, jnp.clip(_SAFETY / error, _AT_JUMP, 0.5), grown)  # the slope jumps at a kink
        factor = jnp.where(finite, jnp.where(accepted, grown, shrunk), _SHRINK)
        first = [change[0], h * K[0, 0] - change[0], 2 * change[0] - h * (K[0, 0] + slope[0])]
        terms = jnp.concatenate([jnp.stack(first), h * D @ K[:, 0]])

        moved = now.moved | (jnp.max(jnp.abs(y[0, m:] - start).reshape(m, -1), axis=1) > _MOVED)
        row = now.attempts.astype(int) % _ROWS
        pattern = lax.dynamic_slice(patterns, (row,), (s - m,)).reshape(m, -1)
        rounding = jnp.where(moved[:, None], pattern, 0.0)
        twin = y[1].at[m:].multiply(1 + _EPS / 2 * rounding.ravel())
        mode, rate = _iterate(turn, y[0], now.mode, now.rate)

        time = jnp.where(h == left, numbers.until, now.time + h)
        evaluations = now.evaluations + _COSTS
        attempts, ideal = now.attempts + 1, now.ideal + jnp.where(accepted, h / longest, 0.0)
        apart = jnp.max(jnp.abs(y[0] - twin)) > numbers.tolerance
        slow = ((attempts - _SLACK * ideal) * _COSTS > _PATIENCE * numbers.max_evaluations) | (h <= 4 * _EPS * now.time)
        large = jnp.max(y[0, :m]) > LARGEST_LOG_NORM
        code = jnp.where(evaluations >= numbers.max_evaluations, _EXHAUSTED, jnp.where(slow, _SLOW, _RUNNING))
        ended = jnp.where(apart, _APART, jnp.where(time >= numbers.until, _REACHED, jnp.where(large, _DIVERGED, code)))
        after = _Position(
            time=time, h=jnp.minimum(h * factor, _longest(rate, numbers, jnp)), y=y.at[1].set(twin), slope=slope,
            mode=mode, rate=rate, moved=moved, refused=~accepted, attempts=attempts, ideal=ideal, evaluations=evaluations,
            code=ended.astype(int),
        )  # fmt: skip
        again = now._replace(h=h * factor, slope=K[0], refused=~accepted, attempts=attempts, evaluations=evaluations, code=code.astype(int))
        position = jax.tree.map(lambda one, two: jnp.where(accepted, one, two), after, again)
        at = steps.count
        taken = _Steps(
            at + accepted.astype(int),
            steps.ends.at[at].set(time),
            steps.sizes.at[at].set(h),
            steps.before.at[at].set(now.y[0]),
            steps.after.at[at].set(y[0]),
            steps.terms.at[at].set(terms),
        )
        return position, taken

    empty = _Steps(
        jnp.zeros((), int), jnp.zeros(size), jnp.zeros(size), jnp.zeros((size, s)), jnp.zeros((size, s)),
        jnp.zeros((size, 7, s)),
    )  # fmt: skip
    going = lambda now: (now[0].code == _RUNNING) & (now[1].count < size)  # noqa: E731
    return lax.while_loop(going, attempt, (position, empty))
