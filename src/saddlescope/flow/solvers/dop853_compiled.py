"""Explicit steps at the start of a compiled run; implicit ones of `ndf_compiled` go on once the system is stiff.

Steps and error test are those of SciPy's DOP853. Where accuracy limits the steps, they are several times longer than
implicit ones of order 5, and need no factorisation. With y_12 the state of the last stage, which is at the end of a
step, as y is,

    |h lambda| ~ h |f(y) - f(y_12)| / |y - y_12|

(Hairer and Wanner 1996, "Solving ordinary differential equations II", section IV.2). DOP853 bears about 6 on the
negative axis; below, implicit steps go on, and where they would be longer since they watch less. Their backward
differences are of states within the last step. Those, and states at recorded times, are ends of shorter steps from its
start: the interpolation of DOP853 is a thousand times less accurate where h lambda is not small.
"""

from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from scipy.integrate import DOP853
from scipy.linalg import pascal

from saddlescope.flow.solvers.dop853 import SHRINK, STAGES, WEIGHTS, error_of, growth
from saddlescope.flow.solvers.ndf_coefficients import MAX_ORDER, NEARLY, SMALLEST_STEP
from saddlescope.flow.solvers.ndf_compiled import (
    EXHAUSTED,
    REACHED,
    RUNNING,
    CompiledSystem,
    Plan,
    Position,
    Records,
    norm,
)

_STIFF, _LONGER = 3.0, 0.05  # h lambda, and error of order 5, beyond which implicit steps are cheaper, as measured
_HITS = 6  # steps in a row after which they go on

_EPS, _TINY = float(np.finfo(float).eps), 1e-300
_NABLA = pascal(MAX_ORDER + 1, kind="lower") * (-1.0) ** np.arange(MAX_ORDER + 1)  # backward differences of states

Scalar = Float[Array, ""]


class ExplicitSystem(CompiledSystem, Protocol):
    """System some of whose entries influence no other: their slopes in all stages are evaluated together.

    A wide state or slope has entries behind it that are linear in it, from which the right-hand side follows sooner.
    """

    def widened(self, y: Float[Array, "n"]) -> Float[Array, "m"]:
        """Return the wide state of a state, or the wide slope of a slope."""
        ...

    def driven(self, wide: Float[Array, "m"]) -> tuple[Float[Array, "m"], Any]:
        """Return the wide right-hand side with 0 for those entries, and what theirs needs, a pytree."""
        ...

    def completed(self, slope: Float[Array, "m"], seen: Any) -> Float[Array, "m"]:
        """Return the wide right-hand side with theirs."""
        ...

    def watched(self, wide: Float[Array, "m"], error: Float[Array, "m"], seen: Any) -> Float[Array, "w"]:
        """Return the errors that an error of a wide state makes in what matters, in parts of their sizes."""
        ...


class _Run(NamedTuple):
    """State between two attempts.

    Attributes:
        records: so far.
        time, y, slope: of the last step's end; state and slope are wide.
        h: size of the next step.
        steps, evaluations, code, finite: as in `Position`.
        refused: True if the last attempt was.
        hits: steps in a row for which implicit ones would be cheaper.
        goes_on: False where implicit steps have to.
        last, states: size of the last step, and states in its fifths, the last one first, if implicit steps go on.
    """

    records: Records
    time: Scalar
    y: Float[Array, "m"]
    slope: Float[Array, "m"]
    h: Scalar
    steps: Int[Array, ""]
    evaluations: Int[Array, ""]
    code: Int[Array, ""]
    finite: Bool[Array, ""]
    refused: Bool[Array, ""]
    hits: Int[Array, ""]
    goes_on: Bool[Array, ""]
    last: Scalar
    states: Float[Array, "6 n"]


def explicit_steps(
    system: ExplicitSystem, records: Records, position: Position, plan: Plan
) -> tuple[Records, Position]:
    """Take explicit steps from the start of a run, until it ends or is stiff; arguments are those of `integrate`.

    Returns:
        The records, and the position for `integrate`.
    """
    recorded, until, rtol, atol, max_evaluations = plan
    n, wanted = position.differences.shape[1], plan.wanted

    def attempt(now: _Run) -> _Run:
        left = until - now.time
        h = jnp.where(now.h > left * (1 - NEARLY), left, now.h)
        slopes, y, seen = _step(system, now.y, now.slope, h, STAGES + 1)
        slope, own = slopes[STAGES], slopes[:, :n]
        finite = jnp.all(jnp.isfinite(slopes))
        scale = atol + rtol * jnp.maximum(jnp.abs(now.y[:n]), jnp.abs(y[:n]))
        fifth, size = error_of(own, h, scale)
        of_fifth = norm(fifth / scale)
        wide = jnp.concatenate([fifth, h * jnp.asarray(DOP853.E5) @ slopes[:, n:]])
        watched = norm(system.watched(y, wide, jax.tree.map(lambda each: each[STAGES], seen))) / rtol
        error = jnp.maximum(size, size / jnp.maximum(of_fifth, _TINY) * watched)  # of order 8, too
        sound = finite & jnp.isfinite(error)
        accepted = sound & (error < 1)

        inner = (y - now.y)[:n] - h * (jnp.asarray(WEIGHTS)[STAGES - 1, :STAGES] @ own[:STAGES])
        stiff = h**2 * jnp.sum((own[STAGES] - own[STAGES - 1]) ** 2) > _STIFF**2 * jnp.sum(inner**2)
        longer = (of_fifth < _LONGER) & (growth(error) < 2)  # what is watched holds the step back
        hits = jnp.where(accepted, jnp.where(stiff | longer, now.hits + 1, 0), now.hits)
        goes_on = hits < _HITS
        time = jnp.where(h == left, until, now.time + h)
        due = jnp.where(accepted, jnp.sum(recorded <= jnp.minimum(time, until)) - now.records.reached, 0)
        within = jnp.where(accepted & ~goes_on, MAX_ORDER - 1, 0)
        states = now.states.at[0].set(y[:n]).at[MAX_ORDER].set(now.y[:n])
        records, states = _within(system, now, h, states, recorded, due, within)
        evaluations = now.evaluations + STAGES + (STAGES - 1) * (due + within)
        ended = jnp.where(evaluations >= max_evaluations, EXHAUSTED, RUNNING)
        factor = jnp.where(sound, growth(error), SHRINK)
        smallest = SMALLEST_STEP * jnp.maximum(now.time, _EPS * until)
        return _Run(
            records=records,
            time=jnp.where(accepted, time, now.time),
            y=jnp.where(accepted, y, now.y),
            slope=jnp.where(accepted, slope, now.slope),
            h=h * jnp.where(now.refused | ~accepted, jnp.minimum(factor, 1.0), factor),
            steps=now.steps + accepted.astype(int),
            evaluations=evaluations,
            code=jnp.where(records.reached == wanted, REACHED, ended),
            finite=finite,
            refused=~accepted,
            hits=hits,
            goes_on=goes_on & (accepted | (h * factor > smallest)),
            last=h,
            states=states,
        )

    y, slope = map(system.widened, (position.differences[0], position.differences[1] / position.h))
    end = lax.while_loop(
        lambda now: now.goes_on & (now.code == RUNNING),
        attempt,
        _Run(
            records=records, time=position.time, y=y, slope=slope, h=position.h, steps=position.steps,
            evaluations=position.evaluations, code=position.code, finite=position.finite, refused=jnp.asarray(False),
            hits=jnp.zeros((), int), goes_on=jnp.asarray(True), last=position.h, states=jnp.zeros((MAX_ORDER + 1, n)),
        ),
    )  # fmt: skip
    return end.records, _position(end, position)


def _step(
    system: ExplicitSystem, y: Float[Array, "m"], slope: Float[Array, "m"], h: Scalar, count: int
) -> tuple[Float[Array, "c m"], Float[Array, "m"], Any]:
    """Return the first slopes of a step, `STAGES` or with that at its end, the state at its end, and what was seen."""
    weights = h * jnp.asarray(WEIGHTS)[: STAGES + 1, :count]
    shapes = jax.eval_shape(system.driven, y)[1]
    empty = jax.tree.map(lambda shape: jnp.zeros((count, *shape.shape), shape.dtype), shapes)
    put = partial(lax.dynamic_update_index_in_dim, axis=0)

    def stage(k: Int[Array, ""], carried: tuple[Array, Any]) -> tuple[Array, Any]:
        slopes, seen = carried
        row = lax.dynamic_index_in_dim(weights, k, keepdims=False)
        new, seen_now = system.driven(y + row @ slopes)
        return put(slopes, new, index=k), jax.tree.map(lambda every, one: put(every, one, index=k), seen, seen_now)

    first = jnp.zeros((count, len(y))).at[0].set(slope)
    slopes, seen = lax.fori_loop(1, count, stage, (first, empty))
    completed = jax.vmap(system.completed)(slopes, seen).at[0].set(slope)
    return completed, y + weights[STAGES] @ completed, seen


def _within(
    system: ExplicitSystem, now: _Run, h: Scalar, states: Float[Array, "6 n"], recorded: Float[Array, "K"],
    due: Int[Array, ""], parts: Int[Array, ""],
) -> tuple[Records, Float[Array, "6 n"]]:  # fmt: skip
    """Record the states that are due within a step, and enter the inner ones of its fifths, if `parts` is not 0."""
    size, first = recorded.shape[0], now.records.reached

    def go(carried: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, kept, states = carried
        part = k - due + 1
        of_record = recorded[jnp.minimum(first + k, size - 1)] - now.time
        _, y, _ = _step(
            system, now.y, now.slope, jnp.where(k < due, of_record, h * part.astype(float) / MAX_ORDER), STAGES
        )
        y = y[: states.shape[1]]
        kept = kept.at[jnp.where(k < due, first + k, size)].set(y, mode="drop")
        return k + 1, kept, states.at[jnp.where(k < due, MAX_ORDER + 1, MAX_ORDER - part)].set(y, mode="drop")

    begin = jnp.zeros((), int), now.records.states, states
    _, kept, states = lax.while_loop(lambda carried: carried[0] < due + parts, go, begin)
    return now.records._replace(states=kept, reached=first + due), states


def _position(end: _Run, start: Position) -> Position:
    """Return the position from which implicit steps go on: of order 5 where a step was found stiff, else of order 1."""
    stiff, none, n = end.hits >= _HITS, jnp.zeros_like(start.differences), start.differences.shape[1]
    differences = none.at[: MAX_ORDER + 1].set(jnp.asarray(_NABLA) @ end.states)
    return start._replace(
        time=end.time,
        differences=jnp.where(stiff, differences, none.at[0].set(end.y[:n]).at[1].set(end.h * end.slope[:n])),
        steps=end.steps,
        evaluations=end.evaluations,
        code=end.code,
        finite=end.finite,
        h=jnp.where(stiff, end.last / MAX_ORDER, end.h),
        order=jnp.where(stiff, MAX_ORDER, 1),
    )
