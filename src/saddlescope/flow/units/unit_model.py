"""Right-hand side of the gradient flow of a sum of units, and its Jacobian.

    state   (l, v) as one vector: log norms l, shape (m,), and directions v, shape (m, p), which count up to their norm
    u_i     v_i / |v_i|;  theta_i = exp(l_i) u_i
    f       sum_i unit(theta_i, x), with o entries;  L = mean over samples of loss(f, y);  g = -dL/dtheta
    rate    (<u_i, g_i>, |v_i| (g_i - <u_i, g_i> u_i)) exp(c - l_i), where exp(c) is the unit of time

Of a unit below exp(-600 / (kappa - 1)), the gradient at that norm is taken, and scaled to its own by the degree kappa:
so far below one a unit is homogeneous to rounding, and its own gradient may be below the least number.

A unit that left the initial scale and comes back to it is decided by forms that the flow conserves, such as a^2 - b^2
of a unit a b c, which are far below the rounding of its direction meanwhile. For degrees above 2, l and u are those of
the nearest weights with the values of the start (`numerics.conserved_forms`).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from saddlescope._shared.compiled_functions import quickly_compiled
from saddlescope.numerics.conserved_forms import ConservedForms, random_moments
from saddlescope.numerics.tree_layout import TreeLayout

_NUMBERS = 2**22  # of weights on samples that columns of the Jacobian hold at once
_SAMPLES = 64  # on which the degree is checked
_LOG_OF_GRADIENTS = 600.0  # gradients that are taken are above exp(-600), far from the least number


class UnitModel(eqx.Module):
    """Sum of units with a loss on samples; see the module."""

    unit: Callable[..., Array]
    loss: Callable[[Array, Array], Array]
    inputs: PyTree
    targets: PyTree
    layout: TreeLayout = eqx.field(static=True)
    kinds: Array | None
    count: int = eqx.field(static=True)
    degree: float = eqx.field(static=True)
    conserved: ConservedForms | None = None

    def with_conserved(self, log_norms: Float[np.ndarray, "m"], u: Float[np.ndarray, "m p"]) -> "UnitModel":
        """Return the units with what their flow from these log norms and directions conserves."""
        kinds = 1 if self.kinds is None else int(jnp.max(self.kinds)) + 1
        conserved = ConservedForms.of(np.asarray(_moments(self, jnp.arange(kinds))), log_norms, u)
        return dataclasses.replace(self, conserved=conserved)

    def network(self, thetas: Float[Array, "k p"], kinds: Array) -> Array:
        """Return the outputs of some units on all samples."""
        unit = jax.vmap(self._unit, (0, 0, None))
        return jax.vmap(lambda x: jnp.sum(unit(thetas, kinds, x), axis=0))(self.inputs)

    def mean_loss(self, thetas: Float[Array, "m p"]) -> Array:
        """Return L."""
        return jnp.mean(jax.vmap(lambda x, y: self.loss(self._output(thetas, x), y))(self.inputs, self.targets))

    def loss_of_first(self, thetas: Float[Array, "m p"]) -> Array:
        """Return the loss of the first sample."""
        return self.loss(self._output(thetas, first_sample(self.inputs)), first_sample(self.targets))

    def sizes(self, thetas: Float[Array, "m p"]) -> Float[Array, "m"]:
        """Return the norm of each unit's outputs on the first samples."""
        first = jax.tree.map(lambda leaf: leaf[:_SAMPLES], self.inputs)
        outputs = jax.vmap(jax.vmap(self._unit, (0, 0, None)), (None, None, 0))(thetas, self._numbers(), first)
        return jnp.linalg.norm(jnp.moveaxis(outputs, 1, 0).reshape(self.count, -1), axis=1)

    def split(self, state: Float[Array, "s"]) -> tuple[Float[Array, "m"], Float[Array, "m p"]]:
        """Return l and u."""
        v, log_norms = self._directions(state), state[: self.count]
        u = v / jnp.linalg.norm(v, axis=1, keepdims=True)
        return (log_norms, u) if self.conserved is None else self.conserved.nearest(log_norms, u)

    def _directions(self, state: Float[Array, "s"]) -> Float[Array, "m p"]:
        """Return v."""
        return state[self.count :].reshape(self.count, -1)

    def slope(self, state: Float[Array, "s"], log_unit: Array) -> Float[Array, "s"]:
        """Return the derivatives by the time in units of exp(log_unit)."""
        log_norms, u = self.split(state)
        seen = self._seen(log_norms)
        g = -jax.grad(self.mean_loss)(jnp.exp(seen)[:, None] * u)
        force = g * jnp.exp(log_unit + self._log_scale(log_norms))[:, None]
        along = jnp.sum(u * force, axis=1)
        lengths = jnp.linalg.norm(self._directions(state), axis=1)
        turning = lengths[:, None] * (force - along[:, None] * u)
        return jnp.concatenate([along, turning.ravel()])

    def jacobian(self, state: Float[Array, "s"], log_unit: Array) -> Float[Array, "s s"]:
        """Return the derivatives of `slope` by the state, some columns at a time."""

        def column(direction: Float[Array, "s"]) -> Float[Array, "s"]:
            return jax.jvp(lambda at: self.slope(at, log_unit), (state,), (direction,))[1]

        samples = len(jax.tree.leaves(self.inputs)[0])
        at_once = max(1, _NUMBERS // (samples * len(state)))
        return jax.lax.map(column, jnp.eye(len(state)), batch_size=min(at_once, len(state))).T

    def _seen(self, log_norms: Array) -> Array:
        """Return the log norms at which the gradient is taken."""
        return jnp.maximum(log_norms, -_LOG_OF_GRADIENTS / (self.degree - 1))

    def _log_scale(self, log_norms: Array) -> Array:
        """Return the logarithm of the factor from the gradient at the norms seen to the rate at the norms."""
        seen = self._seen(log_norms)
        return (self.degree - 2) * (log_norms - seen) - seen

    def _output(self, thetas: Float[Array, "m p"], x: PyTree) -> Array:
        return jnp.sum(jax.vmap(self._unit, (0, 0, None))(thetas, self._numbers(), x), axis=0)

    def _numbers(self) -> Array:
        return jnp.zeros(self.count, int) if self.kinds is None else self.kinds

    def _unit(self, theta: Float[Array, "p"], kind: Array, x: PyTree) -> Array:
        tree = self.layout.build(theta)
        return self.unit(tree, x) if self.kinds is None else self.unit(tree, x, kind)


def first_sample(samples: PyTree) -> Any:
    """Return the first sample of a pytree of arrays."""
    return jax.tree.map(lambda leaf: leaf[0], samples)


@quickly_compiled
def _moments(model: UnitModel, kinds: Array) -> Float[Array, "n e"]:
    return random_moments(model.network, len(kinds), model.layout.size)[0]
