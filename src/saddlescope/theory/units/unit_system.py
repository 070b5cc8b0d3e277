"""Functions of a network that is a sum of units, its loss, and the utility of one more unit near the origin.

f(x)    sum_i f_unit(x; theta_i), the network
F       its outputs on all samples, shape (N, ...)
L(F)    mean_n loss(F_n, y_n)
r       -dL/dF, the residual
kappa   the degree of the unit at the origin: f_unit(x; c theta) = c^kappa phi(x; theta) + o(c^kappa) as c -> 0
phi     the leading part of the unit; the unit itself where it is homogeneous
U       sum_n <phi(x_n; theta), r_n>, the utility: -dL to leading order, if one unit theta is added
"""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from saddlescope.numerics.tree_layout import TreeLayout


class UnitSystem(eqx.Module):
    """Compiled functions of a sum of units; flat weights of shape (units, p), with the kind of each unit."""

    unit: Callable[..., Array]
    loss: Callable[[Array, Array], Array]
    inputs: PyTree
    targets: PyTree
    layout: TreeLayout = eqx.field(static=True)
    kinds: int = eqx.field(static=True)
    unit_of_loss: Array
    taylor: int | None = eqx.field(static=True, default=None)

    def sample(self, theta: Array, kind: Array, x: PyTree) -> Array:
        """Return f_unit(x; theta)."""
        tree = self.layout.build(theta)
        return self.unit(tree, x) if self.kinds == 1 else self.unit(tree, x, kind)

    def output(self, theta: Array, kind: Array) -> Array:
        """Return the outputs of one unit on all samples."""
        return jax.vmap(lambda x: self.sample(theta, kind, x))(self.inputs)

    def leading(self, theta: Array, kind: Array) -> Array:
        """Return phi on all samples."""
        if self.taylor is None:
            return self.output(theta, kind)
        along = lambda c: self.output(c * theta, kind)  # noqa: E731
        factorial = 1.0
        for order in range(self.taylor):
            along = partial(_derivative, along)
            factorial *= order + 1
        return along(jnp.zeros(())) / factorial

    def network(self, thetas: Array, kinds: Array) -> Array:
        """Return F."""
        return jnp.sum(jax.vmap(self.output)(thetas, kinds), axis=0)

    def loss_of_outputs(self, outputs: Array) -> Array:
        """Return L(F), over its unit."""
        return jnp.mean(jax.vmap(self.loss)(outputs, self.targets)) / self.unit_of_loss

    def loss_of(self, thetas: Array, kinds: Array) -> Array:
        """Return L of the network of these units."""
        return self.loss_of_outputs(self.network(thetas, kinds))

    def utility(self, theta: Array, kind: Array, residual: Array) -> Array:
        """Return U."""
        return jnp.sum(self.leading(theta, kind) * residual)


def _derivative(function: Callable[[Array], Array], at: Array) -> Array:
    return jax.jvp(function, (at,), (jnp.ones_like(at),))[1]
