"""Stabilised explicit steps for many systems at once, in compiled code: Runge-Kutta-Chebyshev of second order.

For y' = f(y) whose Jacobian has real spectrum and a known bound on its spectral radius. A step of s evaluations is
stable to h = 0.65 s^2 / radius, so that plateaus cost the square root of what they cost other explicit methods, and
nothing is factorised. One `tick` evaluates every system's right-hand side once: each system is at a stage of a step
of its own, and none waits for another.

Verwer, Sommeijer and Hundsdorfer (2004), "RKC time-stepping for advection-diffusion-reaction problems", section 2.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

MOST_STAGES = 400
_DAMPING = 2 / 13
_SAFETY, _SHRINK, _GROW = 0.8, 0.1, 5.0  # of the next step size
_SMALLEST_STEP = 16 * float(np.finfo(float).eps)  # relative to the time
_NEARLY = 1e-12  # part of the last time by which a step may miss it


def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Return w0 and w1 of the shifted Chebyshev polynomials, by the number of stages."""
    stages = np.maximum(np.arange(MOST_STAGES + 1.0), 2)
    w0 = 1 + _DAMPING / stages**2
    angle, root = np.arccosh(w0), np.sqrt(w0**2 - 1)
    first = stages * np.sinh(stages * angle) / root
    second = (stages**2 * np.cosh(stages * angle) - w0 * first) / (w0**2 - 1)
    return w0, first / second


_W0, _W1 = _tables()


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
        h, stage, remaining: size of the step, its newest stage, and how many stages follow.
        before: the stage before the newest.
        w0, w1: of this step's polynomials.
        value, first, second: Chebyshev polynomials and their derivatives at w0, at the newest stage and that before.
        evaluations: of f so far.
        stuck: the step size has become too small.
        finite: f was finite at the last trial of a system that is stuck.
    """

    t: Float[Array, "n"]
    y: Float[Array, "n p"]
    now: Slopes
    h: Float[Array, "n"]
    stage: Float[Array, "n p"]
    before: Float[Array, "n p"]
    remaining: Float[Array, "n"]
    w0: Float[Array, "n"]
    w1: Float[Array, "n"]
    value: tuple[Float[Array, "n"], Float[Array, "n"]]
    first: tuple[Float[Array, "n"], Float[Array, "n"]]
    second: tuple[Float[Array, "n"], Float[Array, "n"]]
    evaluations: Float[Array, "n"]
    stuck: Bool[Array, "n"]
    finite: Bool[Array, "n"]


@jax.jit
def begin(y: Float[Array, "n p"], now: Slopes, until: float | Array, tolerance: float | Array) -> Steps:
    """Return the beginning of each system's first step from time 0."""
    rates = now.slope / (tolerance + tolerance * jnp.abs(y))
    largest = jnp.maximum(jnp.abs(rates).max(axis=1), np.finfo(float).tiny)  # squares could overflow
    speed = largest * jnp.sqrt(jnp.mean((rates / largest[:, None]) ** 2, axis=1))
    h = jnp.minimum(until, 0.01 / jnp.maximum(speed, np.finfo(float).tiny))
    zero = jnp.zeros(len(y))
    none = (zero, zero)
    rest = Steps(zero, y, now, h, y, y, zero, zero, zero, none, none, none, zero, zero > 0, zero == 0)
    return _first_stage(rest, h, until)


def tick(
    steps: Steps, at_stage: Slopes, until: float | Array, tolerance: float | Array
) -> tuple[Steps, Bool[Array, "n"]]:
    """Take one evaluation of every system further; return also which systems completed a step.

    Args:
        steps: the systems.
        at_stage: `Slopes` at `steps.stage`.
        until: last time.
        tolerance: of the error of a step, absolute and relative.
    """
    moving = steps.h > 0
    finished = steps.remaining <= 0
    next_stage = _next_stage(steps, at_stage.slope)
    error = 0.8 * (steps.y - steps.stage) + 0.4 * _column(steps.h) * (steps.now.slope + at_stage.slope)
    error = jnp.sqrt(jnp.mean((error / (tolerance + tolerance * jnp.abs(steps.stage))) ** 2, axis=1))
    error = jnp.where(jnp.isfinite(error), error, jnp.inf)
    factor = jnp.clip(_SAFETY * jnp.maximum(error, 1e-30) ** (-1 / 3), _SHRINK, _GROW)
    completed = finished & moving & (error <= 1)
    t = steps.t + jnp.where(completed, steps.h, 0.0)
    t = jnp.where(until - t <= _NEARLY * until, until, t)
    small = steps.h * factor <= _SMALLEST_STEP * jnp.maximum(t, np.finfo(float).eps * until)
    stuck = finished & moving & ~completed & small
    settled = steps._replace(
        t=t,
        y=_where(completed, steps.stage, steps.y),
        now=Slopes(*(_where(completed, new, old) for new, old in zip(at_stage, steps.now, strict=True))),
        evaluations=steps.evaluations + jnp.where(moving, 1.0, 0.0),
        stuck=steps.stuck | stuck,
        finite=jnp.where(stuck, jnp.isfinite(at_stage.slope).all(axis=1), steps.finite),
    )
    new_step = _first_stage(settled, jnp.where(stuck | ~moving, 0.0, steps.h * factor), until)
    stage, before, value, first, second = next_stage
    further = settled._replace(
        remaining=steps.remaining - 1,
        stage=stage,
        before=before,
        value=(value, steps.value[0]),
        first=(first, steps.first[0]),
        second=(second, steps.second[0]),
    )
    choose = {
        name: _where(finished, getattr(new_step, name), getattr(further, name))
        for name in ("h", "stage", "before", "remaining", "w0", "w1")
    }
    pairs = {
        name: tuple(
            _where(finished, a, b) for a, b in zip(getattr(new_step, name), getattr(further, name), strict=True)
        )
        for name in ("value", "first", "second")
    }
    return settled._replace(**choose, **pairs), completed


def _first_stage(steps: Steps, h: Array, until: float | Array) -> Steps:
    """Begin a step of at most the size h."""
    h = jnp.minimum(h, until - steps.t)
    largest = (MOST_STAGES**2 - 1) / 1.54
    radius = steps.now.radius + h * steps.now.growth
    h = jnp.where(h * radius > largest, jnp.minimum(h / 2, largest / radius), h)
    radius = jnp.nan_to_num(steps.now.radius + h * steps.now.growth)
    stages = jnp.clip(jnp.ceil(jnp.sqrt(1 + 1.54 * h * radius)), 2, MOST_STAGES)
    kind = stages.astype(int)
    w0, w1 = jnp.asarray(_W0)[kind], jnp.asarray(_W1)[kind]
    one, zero = jnp.ones_like(w0), jnp.zeros_like(w0)
    return steps._replace(
        h=h,
        remaining=stages - 1,
        before=steps.y,
        stage=steps.y + _column(_weight_2(w0) * w1 * h) * steps.now.slope,
        w0=w0,
        w1=w1,
        value=(w0, one),
        first=(one, zero),
        second=(zero, zero),
    )


def _weight_2(w0: Array) -> Array:
    """Return b_2 = T_2'' / (T_2')^2, which is also b_0 and b_1."""
    return 1 / (4 * w0**2)


def _next_stage(steps: Steps, slope: Array) -> tuple[Array, ...]:
    """Return the next stage, the newest, and the Chebyshev polynomial and its derivatives at the next."""
    w0, w1 = steps.w0, steps.w1
    (t1, t2), (d1, d2), (e1, e2) = steps.value, steps.first, steps.second
    value, first, second = 2 * w0 * t1 - t2, 2 * t1 + 2 * w0 * d1 - d2, 4 * d1 + 2 * w0 * e1 - e2
    weight = second / first**2
    weight_1 = jnp.where(e1 > 0, e1 / d1**2, _weight_2(w0))
    weight_2 = jnp.where(e2 > 0, e2 / jnp.where(e2 > 0, d2, 1.0) ** 2, _weight_2(w0))
    newest, older, push = 2 * weight * w0 / weight_1, -weight / weight_2, 2 * weight * w1 / weight_1 * steps.h
    stage = (
        _column(1 - newest - older) * steps.y
        + _column(newest) * steps.stage
        + _column(older) * steps.before
        + _column(push) * slope
        - _column((1 - weight_1 * t1) * push) * steps.now.slope
    )
    return stage, steps.stage, value, first, second


def _column(x: Array) -> Array:
    return x[:, None]


def _where(rows: Array, new: Array, old: Array) -> Array:
    return jnp.where(rows[:, None] if new.ndim == 2 else rows, new, old)
