"""Right-hand side of the gradient flow of a sum of units, and its Jacobian.

    state   (l, v) as one vector: log norms l, shape (m,), and directions v, shape (m, p), which count up to their norm
            by units: rows (l_i, v_i), shape (m, q), q = p + 1
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
import math
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

_NUMBERS = 2**22  # derivatives of outputs by weights that are held at once
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
        return self._split(self._by_units(state))

    def slope(self, state: Float[Array, "s"], log_unit: Array) -> Float[Array, "s"]:
        """Return the derivatives by the time in units of exp(log_unit)."""
        by_units = self._by_units(state)
        return _flat(self._motion(by_units, -jax.grad(self.mean_loss)(self._seen_weights(by_units)), log_unit))

    def jacobian(self, state: Float[Array, "s"], log_unit: Array) -> Float[Array, "s s"]:
        """Return the derivatives of `slope` by the state: units meet in the Hessian of the loss alone."""
        at = self._by_units(state)
        thetas = self._seen_weights(at)
        g = -jax.grad(self.mean_loss)(thetas)
        by_gradient = _blocks(lambda gradient: self._motion(at, gradient, log_unit), g)
        through_gradient = jnp.einsum("iap,ipjq->iajq", by_gradient, -self._loss_hessian(thetas))
        through_gradient = jnp.einsum("iajq,jqb->iajb", through_gradient, _blocks(self._seen_weights, at))
        whole = through_gradient + _diagonal(_blocks(lambda units: self._motion(units, g, log_unit), at))
        return jax.vmap(_flat)(_flat(whole))

    def _loss_hessian(self, thetas: Float[Array, "m p"]) -> Float[Array, "m p m p"]:
        """Return the Hessian of L, from derivatives of the outputs on some samples at a time."""
        n, shape = len(jax.tree.leaves(self.inputs)[0]), self._output(thetas, first_sample(self.inputs)).shape
        stretches = -(-n * math.prod(shape) * thetas.size // _NUMBERS)
        index = jnp.arange(stretches * -(-n // stretches)).reshape(stretches, -1)
        derivative = jax.jacrev if math.prod(shape) < self.layout.size else jax.jacfwd

        def of_sample(x: PyTree, y: PyTree, weight: Array) -> tuple[Array, Array, Array]:
            f = self._output(thetas, x).ravel()
            by_unit = derivative(lambda theta, kind: self._unit(theta, kind, x).ravel())
            by_weights = jax.vmap(by_unit, out_axes=1)(thetas, self._numbers()).reshape(f.size, thetas.size)
            pull = jax.grad(lambda f: weight * self.loss(f.reshape(shape), y))
            curved = jax.vmap(lambda column: jax.jvp(pull, (f,), (column,))[1], 1, 1)(by_weights)
            return by_weights, curved, pull(f)

        def add(total: Array, chosen: Array) -> tuple[Array, None]:
            x, y = jax.tree.map(lambda leaf: leaf[chosen % n], (self.inputs, self.targets))
            by_weights, curved, pulls = jax.vmap(of_sample)(x, y, jnp.where(chosen < n, 1 / n, 0.0))

            def pulled(thetas: Float[Array, "m p"]) -> Array:
                return jnp.vdot(pulls, jax.vmap(self._output, (None, 0))(thetas, x))

            through_outputs = jnp.tensordot(by_weights, curved, ((0, 1), (0, 1))).reshape(total.shape)
            return total + through_outputs + _diagonal(_blocks(jax.grad(pulled), thetas)), None

        return jax.lax.scan(add, jnp.zeros(thetas.shape * 2), index)[0]

    def _by_units(self, state: Float[Array, "s"]) -> Float[Array, "m q"]:
        """Return l and v of each unit in a row."""
        return jnp.concatenate([state[: self.count, None], state[self.count :].reshape(self.count, -1)], axis=1)

    def _split(self, by_units: Float[Array, "m q"]) -> tuple[Float[Array, "m"], Float[Array, "m p"]]:
        log_norms, v = by_units[:, 0], by_units[:, 1:]
        u = v / jnp.linalg.norm(v, axis=1, keepdims=True)
        return (log_norms, u) if self.conserved is None else self.conserved.nearest(log_norms, u)

    def _seen_weights(self, by_units: Float[Array, "m q"]) -> Float[Array, "m p"]:
        """Return the weights at which the gradient is taken."""
        log_norms, u = self._split(by_units)
        return jnp.exp(self._seen(log_norms))[:, None] * u

    def _motion(self, by_units: Float[Array, "m q"], g: Float[Array, "m p"], log_unit: Array) -> Float[Array, "m q"]:
        """Return the derivatives of l and v, given the negative gradient at the weights seen."""
        log_norms, u = self._split(by_units)
        force = g * jnp.exp(log_unit + self._log_scale(log_norms))[:, None]
        along = jnp.sum(u * force, axis=1, keepdims=True)
        lengths = jnp.linalg.norm(by_units[:, 1:], axis=1, keepdims=True)
        return jnp.concatenate([along, lengths * (force - along * u)], axis=1)

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


def _blocks(function: Callable[[Array], Array], at: Float[Array, "m a"]) -> Float[Array, "m b a"]:
    """Return the derivatives of a function that takes each row by itself: of row i of the result by row i."""

    def column(direction: Float[Array, "a"]) -> Float[Array, "m b"]:
        return jax.jvp(function, (at,), (jnp.broadcast_to(direction, at.shape),))[1]

    return jax.vmap(column, out_axes=2)(jnp.eye(at.shape[1]))


def _diagonal(blocks: Float[Array, "m a b"]) -> Float[Array, "m a m b"]:
    return jnp.einsum("iab,ij->iajb", blocks, jnp.eye(len(blocks)))


def _flat(by_units: Float[Array, "m q ..."]) -> Float[Array, "s ..."]:
    """Return what `_by_units` takes apart."""
    rest = by_units.shape[2:]
    return jnp.concatenate([by_units[:, 0], by_units[:, 1:].reshape(-1, *rest)])


def first_sample(samples: PyTree) -> Any:
    """Return the first sample of a pytree of arrays."""
    return jax.tree.map(lambda leaf: leaf[0], samples)


@quickly_compiled
def _moments(model: UnitModel, kinds: Array) -> Float[Array, "n e"]:
    return random_moments(model.network, len(kinds), model.layout.size)[0]
