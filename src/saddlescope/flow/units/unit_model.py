"""Right-hand side of the gradient flow of a sum of units, and its Jacobian.

    state   (l, v) as one vector: log norms l, shape (m,), and directions v, shape (m, p), which count up to their norm
    u_i     v_i / |v_i|;  theta_i = exp(l_i) u_i
    f       sum_i unit(theta_i, x), with o entries;  L = mean over samples of loss(f, y);  g = -dL/dtheta
    rate    (<u_i, g_i>, |v_i| (g_i - <u_i, g_i> u_i)) exp(c - l_i), where exp(c) is the unit of time

Of a unit below exp(-600 / (kappa - 1)), the gradient at that norm is taken, and scaled to its own by the degree kappa:
so far below one a unit is homogeneous to rounding, and its own gradient may be below the least number.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

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
        v = self._directions(state)
        return state[: self.count], v / jnp.linalg.norm(v, axis=1, keepdims=True)

    def _directions(self, state: Float[Array, "s"]) -> Float[Array, "m p"]:
        """Return v."""
        return state[self.count :].reshape(self.count, -1)

    def slope(self, state: Float[Array, "s"], log_unit: Array) -> Float[Array, "s"]:
        """Return the derivatives by the time in units of exp(log_unit)."""
        log_norms, u = self.split(state)
        seen = self._seen(log_norms)
        g = -jax.grad(self.mean_loss)(jnp.exp(seen)[:, None] * u)
        along, turning = jax.vmap(_rate)(
            self._directions(state), g * jnp.exp(log_unit + self._log_scale(log_norms))[:, None]
        )
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


def _rate(v: Float[Array, "p"], force: Float[Array, "p"]) -> tuple[Array, Float[Array, "p"]]:
    """Return the derivatives of one unit's log norm and of v, whose norm stays."""
    norm = jnp.linalg.norm(v)
    u = v / norm
    along = u @ force
    return along, norm * (force - along * u)
