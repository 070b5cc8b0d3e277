"""Learning rates of descents: numbers, schedules over the steps, and rates that depend on the weights.

step    number of steps taken before, from 0
eta     the rate: theta <- theta - eta(step, theta) dL/dtheta
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.device_arrays import on_device
from saddlescope._shared.errors import InputError

Schedule = Callable[[Any], Any]
"""A learning rate as a function of the step, in JAX, such as a schedule of Optax."""


class AbstractLearningRate(eqx.Module):
    """A learning rate that may depend on the step and on the weights, such as `homogeneous_rate`."""

    def at(self, step: Int[Array, ""] | int, weights: PyTree) -> Float[Array, ""]:
        """Return the rate of a step, given the weights before it; called in compiled code."""
        raise NotImplementedError


class ConstantRate(AbstractLearningRate):
    """The same rate at every step."""

    rate: Float[Array, "*runs"]

    def at(self, step: Int[Array, ""] | int, weights: PyTree) -> Float[Array, ""]:
        """Return the rate."""
        return jnp.asarray(self.rate, jax.tree.leaves(weights)[0].dtype)


class ScheduledRate(AbstractLearningRate):
    """A rate that depends on the step only."""

    schedule: Schedule

    def at(self, step: Int[Array, ""] | int, weights: PyTree) -> Float[Array, ""]:
        """Return the schedule's value in the type of the weights."""
        return jnp.asarray(self.schedule(step), jax.tree.leaves(weights)[0].dtype)


class HomogeneousRate(AbstractLearningRate):
    """The rate of `homogeneous_rate`."""

    rate: float
    degree: int

    def at(self, step: Int[Array, ""] | int, weights: PyTree) -> Float[Array, ""]:
        """Return rate |theta|^(2 - degree)."""
        square = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(weights))
        return self.rate * jnp.asarray(square) ** ((2 - self.degree) / 2)


@validate_arguments
def homogeneous_rate(rate: float, degree: int) -> HomogeneousRate:
    """Return the learning rate `rate` |theta|^(2 - degree), which makes descent independent of a small scale.

    Near the origin of a loss that is homogeneous of that degree, the gradient of c theta is c^(degree - 1) that of
    theta: the step scales with theta. It is the paper's time s in steps of `rate`. Section 2.1 and appendix B of
    Bantzis, Simon and Jacot (2025), which takes 10 / |theta|^4 at depth 6.

    Args:
        rate: learning rate where |theta| = 1, positive.
        degree: of homogeneity, the depth of a network without biases.

    Raises:
        InputError: the rate is not positive and finite, or the degree is below 2.
    """
    if not 0 < rate < float("inf"):
        raise InputError(f"rate must be positive and finite; got {rate!r}.")
    if degree < 2:
        raise InputError(f"degree must be at least 2; got {degree!r}.")
    return HomogeneousRate(rate, degree)


def schedule_values(rates: AbstractLearningRate | None, steps: int) -> list[str]:
    """Return some values of a schedule, which identify it in a checkpoint; none for other learning rates."""
    if not isinstance(rates, ScheduledRate):
        return []
    return [f"{float(rates.schedule(step)):.4e}" for step in range(0, steps, max(1, steps // 16))]


def as_learning_rate(given: float | Schedule | AbstractLearningRate) -> AbstractLearningRate:
    """Return the learning rate of a descent from a number, a schedule or a learning rate.

    Raises:
        InputError: a number that is not positive and finite.
    """
    if isinstance(given, AbstractLearningRate):
        return given
    if callable(given):
        return ScheduledRate(given)
    if not 0 < given < float("inf"):
        raise InputError(f"learning_rate must be positive and finite; got {given!r}.")
    return ConstantRate(on_device(float(given)))
