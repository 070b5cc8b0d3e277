"""Stabilised explicit steps for many systems at once, in compiled code: Runge-Kutta-Chebyshev of second order.

For y' = f(y) whose Jacobian has real spectrum and a known bound on its spectral radius. A step of s evaluations is
stable to h = 0.65 s^2 / radius, so that plateaus cost the square root of what they cost other explicit methods, and
nothing is factorised. Each system is at a stage of a step of its own, and takes the steps it would take alone:

    advance    evaluate all right-hand sides, and go on to the next stages, until half of the systems have done theirs
    complete   test the steps of those that have, and begin their next ones

The costs of a stage are those of f and of three small loops; what a step needs once is shared by many stages.

Verwer, Sommeijer and Hundsdorfer (2004), "RKC time-stepping for advection-diffusion-reaction problems", section 2.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

MOST_STAGES = 400
_DAMPING = 2 / 13
_SAFETY, _SHRINK, _GROW = 0.8, 0.1, 5.0  # of the next step size
_SMALLEST_STEP = 16 * float(np.finfo(float).eps)  # relative to the time
_NEARLY = 1e-12  # part of the last time by which a step may miss it


def _tables() -> tuple[Float[np.ndarray, "S"], Float[np.ndarray, "R 4"]]:
    """Return the coefficients of all steps, by the number s of their stages.

    With Y_j the stages of a step from y and F_j = f(Y_j):

        Y_1 - y = first h f(y)
        Y_j - y = mu (Y_(j-1) - y) + nu (Y_(j-2) - y) + h (push F_(j-1) + pull f(y))

    Returns:
        `first` for s = 0, 1, ...; and (mu, nu, push, pull) of the stages j = 2, ..., s of every s, one s after another.
    """
    stages = np.maximum(np.arange(MOST_STAGES + 1.0), 2)
    above = _DAMPING / stages**2
    w0, root = 1 + above, np.sqrt(above * (2 + above))
    angle = np.log1p(above + root)  # arccosh(w0), without the error of w0 - 1
    at_last = stages * np.sinh(stages * angle) / root
    w1 = at_last * root**2 / (stages**2 * np.cosh(stages * angle) - w0 * at_last)
    b2 = 1 / (4 * w0**2)
    values, firsts, seconds = [np.ones_like(w0), w0], [np.zeros_like(w0), np.ones_like(w0)], [np.zeros_like(w0)] * 2
    weights = [b2, b2]  # b_j = T_j'' / (T_j')^2 at w0; the first two are that of j = 2
    table = np.empty((MOST_STAGES * (MOST_STAGES - 1) // 2, 4))
    for j in range(2, MOST_STAGES + 1):
        values.append(2 * w0 * values[-1] - values[-2])
        firsts.append(2 * values[-2] + 2 * w0 * firsts[-1] - firsts[-2])
        seconds.append(4 * firsts[-2] + 2 * w0 * seconds[-1] - seconds[-2])
        weights.append(seconds[-1] / firsts[-1] ** 2)
        mu, nu = 2 * weights[j] * w0 / weights[j - 1], -weights[j] / weights[j - 2]
        push = mu * w1 / w0
        pull = -(1 - weights[j - 1] * values[j - 1]) * push
        s = np.arange(j, MOST_STAGES + 1)
        table[_first_row(s) + j - 2] = np.stack([mu, nu, push, pull], axis=1)[s]
    return b2 * w1, table


def _first_row(stages: Any) -> Any:
    """Return the row of stage 2 of a step of so many stages, of NumPy or JAX."""
    return (stages - 1) * (stages - 2) // 2


_FIRST, _NEXT = _tables()


class Slopes(NamedTuple):
    """Right-hand sides at states, with what bounds the spectral radius of the Jacobian near them.

    Attributes:
        slope: f(y).
        radius: bound on the spectral radius at y.
        growth: bound on the rate at which that bound grows along f(y).
    """

    slope: Float[Array, "n p"]
    radius: Float[Array, "n"]
    growth: Float[Array, "n"]


class Steps(NamedTuple):
    """Each system's last completed step and the one that is being taken; a system with h = 0 is at rest.

    Attributes:
        t, y, now: time, state and `Slopes` at the end of the last completed step.
        h: size of the step.
        stage, before: its newest stage and the one before, less y.
        remaining: how many stages follow; -1 once f is known at the last one.
        row: of the next stage, in the table of coefficients.
        evaluations: of f so far, without repetitions at a last stage.
        stuck: the step size has become too small.
        finite: f was finite in the last trial of a system that is stuck; else its stages are not, either.
    """

    t: Float[Array, "n"]
    y: Float[Array, "n p"]
    now: Slopes
    h: Float[Array, "n"]
    stage: Float[Array, "n p"]
    before: Float[Array, "n p"]
    remaining: Int[Array, "n"]
    row: Int[Array, "n"]
    evaluations: Int[Array, "n"]
    stuck: Bool[Array, "n"]
    finite: Bool[Array, "n"]

    @property
    def done(self) -> Bool[Array, "n"]:
        """True for systems whose step waits for `complete`."""
        return (self.h > 0) & (self.remaining < 0)


@jax.jit
def begin(y: Float[Array, "n p"], now: Slopes, until: float | Array, tolerance: float | Array) -> Steps:
    """Return the beginning of each system's first step from time 0."""
    rates = now.slope / (tolerance + tolerance * jnp.abs(y))
    largest = jnp.maximum(jnp.abs(rates).max(axis=1), np.finfo(float).tiny)  # squares could overflow
    speed = largest * jnp.sqrt(jnp.mean((rates / largest[:, None]) ** 2, axis=1))
    h = jnp.minimum(until, 0.01 / jnp.maximum(speed, np.finfo(float).tiny))
    zero, none, false = jnp.zeros(len(y)), jnp.zeros(len(y), int), jnp.zeros(len(y), bool)
    rest = Steps(zero, y, now, h, y, y, none, none, none, false, ~false)
    return _first_stage(rest, h, until)


def advance(
    steps: Steps, slope: Callable[[Float[Array, "n p"]], Float[Array, "n p"]], most: int | Array
) -> tuple[Steps, Float[Array, "n p"]]:
    """Go on until half of the systems, or more, wait for `complete`.

    Args:
        steps: the systems.
        slope: f, of all systems.
        most: evaluations after which a system goes no further.

    Returns:
        The systems, and f at the stages of those that wait.
    """
    going = (steps.h > 0) & (steps.remaining >= 0)
    room = jnp.where(going, jnp.minimum(steps.remaining + 1, jnp.maximum(most - steps.evaluations, 0)), 0)
    enough = jnp.sum((steps.h > 0) & (steps.evaluations < most)) // 2
    origin, h, at_start = steps.y, _column(steps.h), steps.now.slope

    def more(carry: tuple[Array, ...]) -> Array:
        return jnp.sum(carry[2] < room) > enough

    def stage(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        newest, before, taken, _ = carry
        at_stage = slope(origin + newest)
        mu, nu, push, pull = (each[:, None] for each in jnp.asarray(_NEXT)[steps.row + taken].T)
        following = mu * newest + nu * before + h * (push * at_stage + pull * at_start)
        moves = _column((taken < room) & (taken < steps.remaining))
        newest, before = jnp.where(moves, following, newest), jnp.where(moves, newest, before)
        return newest, before, taken + (taken < room).astype(int), at_stage

    carried = steps.stage, steps.before, jnp.zeros_like(room), jnp.zeros_like(origin)
    newest, before, taken, at_stage = jax.lax.while_loop(more, stage, carried)
    advanced = steps._replace(
        stage=newest,
        before=before,
        remaining=steps.remaining - taken,
        row=steps.row + taken,
        evaluations=steps.evaluations + taken,
    )
    return advanced, at_stage


def complete(
    steps: Steps, at_stage: Slopes, until: float | Array, tolerance: float | Array
) -> tuple[Steps, Bool[Array, "n"]]:
    """Begin the next steps of systems that wait; return also which of them completed one.

    Args:
        steps: the systems.
        at_stage: `Slopes` at the stages of those that wait.
        until: last time.
        tolerance: of the error of a step, absolute and relative.
    """
    done, end = steps.done, steps.y + steps.stage
    error = 0.4 * _column(steps.h) * (steps.now.slope + at_stage.slope) - 0.8 * steps.stage
    error = jnp.sqrt(jnp.mean((error / (tolerance + tolerance * jnp.abs(end))) ** 2, axis=1))
    error = jnp.where(jnp.isfinite(error), error, jnp.inf)
    factor = jnp.clip(_SAFETY * jnp.maximum(error, 1e-30) ** (-1 / 3), _SHRINK, _GROW)
    completed = done & (error <= 1)
    t = steps.t + jnp.where(completed, steps.h, 0.0)
    t = jnp.where(until - t <= _NEARLY * until, until, t)
    small = steps.h * factor <= _SMALLEST_STEP * jnp.maximum(t, np.finfo(float).eps * until)
    stuck = done & ~completed & small
    settled = steps._replace(
        t=t,
        y=_where(completed, end, steps.y),
        now=Slopes(*(_where(completed, new, old) for new, old in zip(at_stage, steps.now, strict=True))),
        stuck=steps.stuck | stuck,
        finite=jnp.where(stuck, (jnp.isfinite(at_stage.slope) & jnp.isfinite(end)).all(axis=1), steps.finite),
    )
    following = _first_stage(settled, jnp.where(stuck, 0.0, steps.h * factor), until)
    fields = ("h", "stage", "before", "remaining", "row")
    return (
        settled._replace(**{name: _where(done, getattr(following, name), getattr(steps, name)) for name in fields}),
        completed,
    )


def _first_stage(steps: Steps, h: Array, until: float | Array) -> Steps:
    """Begin a step of at most the size h."""
    h = jnp.minimum(h, until - steps.t)
    largest = (MOST_STAGES**2 - 1) / 1.54
    radius = steps.now.radius + h * steps.now.growth
    h = jnp.where(h * radius > largest, jnp.minimum(h / 2, largest / radius), h)
    radius = jnp.nan_to_num(steps.now.radius + h * steps.now.growth)
    stages = jnp.clip(jnp.ceil(jnp.sqrt(1 + 1.54 * h * radius)), 2, MOST_STAGES).astype(int)
    return steps._replace(
        h=h,
        stage=_column(jnp.asarray(_FIRST)[stages] * h) * steps.now.slope,
        before=jnp.zeros_like(steps.y),
        remaining=stages - 1,
        row=_first_row(stages),
    )


def _column(x: Array) -> Array:
    return x[:, None]


def _where(rows: Array, new: Array, old: Array) -> Array:
    return jnp.where(rows[:, None] if new.ndim == 2 else rows, new, old)
