"""First part of a transition, by explicit steps in one compiled loop, until the active units slow down.

Most transitions are not stiff, since active units and the new one have rates of the same order, and end near the first
point at which the path is slow. What this does not serve is left to an implicit solver, from where it stopped: stiff
systems, units that fall dormant on the way, saddles, minima at infinity, and the edge of the loss's domain.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from saddlescope._shared.compiled_functions import quickly_compiled
from saddlescope.theory.units.explicit_solver import next_size, relative_error, trial_step
from saddlescope.theory.units.unit_system import UnitSystem

_STIFF = 6.1  # h times the fastest rate at which the steps are limited by stability
_MOST_STIFF = 15  # such steps


MOST = 500
"""Largest number of steps."""


class Limits(NamedTuple):
    """Limits of the path; those of speeds and norms are relative to the largest so far.

    Attributes:
        rate: of the new unit, which is the unit of the other times.
        tolerance: relative error of a step.
        absolute: allowed error of weights that are 0.
        slow: speed at which the path is slow.
        asleep: norm at which a unit counts as fallen.
        largest: weight beyond which the path diverges.
        horizon: last time, in units of 1 / rate.
        steps: largest number of steps.
    """

    rate: float
    tolerance: float
    absolute: float
    slow: float
    asleep: float
    largest: float
    horizon: float
    steps: int


class PathPoint(NamedTuple):
    """A point on the path.

    Attributes:
        time: of the flow.
        thetas: weights, shape (b, p).
        fastest: largest speed so far.
        peak: largest norm of each unit so far, shape (b,).
        slow: True if the path is slow here; else it has met something that explicit steps do not serve.
        times: of the points before and at this one, shape (s,).
        points: weights there, shape (s, b, p).
    """

    time: float
    thetas: Float[np.ndarray, "b p"]
    fastest: float
    peak: Float[np.ndarray, "b"]
    slow: bool
    times: Float[np.ndarray, "s"]
    points: Float[np.ndarray, "s b p"]


class _State(NamedTuple):
    time: Array
    thetas: Float[Array, "b p"]
    velocity: Float[Array, "b p"]
    h: Array
    fastest: Array
    peak: Float[Array, "b"]
    steps: Array
    stiff: Array
    slow: Bool[Array, ""]
    left: Bool[Array, ""]
    kept: Array
    times: Float[Array, "s"]
    points: Float[Array, "s b p"]


@quickly_compiled
def explicit_path(
    system: UnitSystem, thetas: Array, kinds: Array, velocity: Array, count: Array, limits: Float[Array, "8"]
) -> tuple[Array, ...]:
    """Return the entries of the point at which the path is slow, or of the last one that explicit steps serve.

    The last entries are the number of points, and times and weights with room for all.

    Args:
        system: the network.
        thetas: weights at the start, of which all after the first `count` units are 0.
        kinds: kinds of the units.
        velocity: -dL/dtheta at the start.
        count: number of units.
        limits: the limits.
    """
    within = Limits(*limits)
    shape = thetas.shape

    def moving(flat: Array) -> Array:
        value, slope = jax.value_and_grad(system.loss_of)(flat.reshape(shape), kinds)
        return jnp.where(jnp.isfinite(value), -slope, jnp.nan).ravel()

    def step(at: _State) -> _State:
        trial = trial_step(moving, at.thetas.ravel(), at.velocity.ravel(), at.h)
        end = trial.end.reshape(shape)
        allowed = within.absolute + within.tolerance * jnp.maximum(jnp.abs(at.thetas), jnp.abs(end))
        squares = jnp.sum((trial.errors.reshape(2, *shape) / allowed[None]) ** 2, axis=(1, 2))
        error = relative_error(squares, count * float(shape[1]))
        norms, time = jnp.linalg.norm(end, axis=1), at.time + at.h
        speed, peak = jnp.linalg.norm(trial.slope), jnp.maximum(at.peak, norms)
        fastest = jnp.maximum(at.fastest, speed)
        fallen = jnp.any((norms <= within.asleep * peak) & (peak > 0))
        away = (jnp.max(jnp.abs(end)) > within.largest) | (time * within.rate > within.horizon)
        stiff = at.stiff + (trial.stiffness > _STIFF).astype(int)
        after = _State(
            time, end, trial.slope.reshape(shape), at.h, fastest, peak, at.steps, stiff,
            slow=(speed <= within.slow * fastest) & (time * within.rate >= 1),
            left=fallen | away | (stiff >= _MOST_STIFF),
            kept=at.kept, times=at.times, points=at.points,
        )  # fmt: skip
        chosen = jax.tree.map(lambda new, old: jnp.where(error <= 1, new, old), after, at)
        h, steps = next_size(at.h, error), at.steps + 1
        here = jnp.where(error <= 1, at.kept, MOST)  # beyond the room: not written
        return chosen._replace(
            kept=at.kept + (error <= 1).astype(int),
            times=at.times.at[here].set(chosen.time, mode="drop"),
            points=at.points.at[here].set(chosen.thetas, mode="drop"),
            h=h,
            steps=steps,
            left=chosen.left | (h * within.rate < 1e-12) | (steps.astype(float) >= within.steps),
        )

    no, zero = jnp.asarray(False), jnp.asarray(0)
    start = _State(
        jnp.zeros(()), thetas, velocity, jnp.asarray(1e-1 / within.rate), jnp.zeros(()),
        jnp.linalg.norm(thetas, axis=1), zero, zero, no, jnp.asarray(within.steps < 1),
        jnp.asarray(1), jnp.zeros(MOST), jnp.zeros((MOST, *shape)).at[0].set(thetas),
    )  # fmt: skip
    end = jax.lax.while_loop(lambda at: ~(at.slow | at.left), step, start)
    return end.time, end.thetas, end.fastest, end.peak, end.slow, end.kept, end.times, end.points
