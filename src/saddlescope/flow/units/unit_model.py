"""Right-hand side of the gradient flow of a sum of units, and its Jacobian.

    state   (l, v) as one vector: log norms l, shape (m,), and directions v, shape (m, p), which count up to their norm
    u_i     v_i / |v_i|;  theta_i = exp(l_i) u_i
    f       sum_i unit(theta_i, x), with o entries;  L = mean over samples of loss(f, y);  g = -dL/dtheta
    rate    (<u_i, g_i>, |v_i| (g_i - <u_i, g_i> u_i)) exp(c - l_i), where exp(c) is the unit of time

Of a unit below exp(-600 / (kappa - 1)), the gradient at that norm is taken, and scaled to its own by the degree kappa:
so far below one a unit is homogeneous to rounding, and its own gradient may be below the least number.

The Hessian of L has two parts: that by the outputs, one product of matrices over all units, and that of each unit alone
(the Gauss-Newton part and the rest). All else in the Jacobian is of one unit. It costs a few gradients and one product
n o (m p)^2, rather than m p gradients.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from saddlescope.numerics.tree_layout import TreeLayout

_DERIVATIVES = 2**22  # of outputs by weights that are held at once
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
        """Return the derivatives of `slope` by the state."""
        m = self.count
        log_norms, u = self.split(state)
        seen = self._seen(log_norms)
        thetas = jnp.exp(seen)[:, None] * u
        v = self._directions(state)
        own = jnp.concatenate([log_norms[:, None], v], axis=1)
        scale = log_unit + self._log_scale(log_norms)
        g = -jax.grad(self.mean_loss)(thetas) * jnp.exp(scale)[:, None]
        direct = jax.vmap(jax.jacfwd(self._own_rate))(own, log_norms, g)
        by_force = jax.vmap(jax.jacfwd(lambda each, at: jnp.hstack(_rate(at, each))))(g, v)
        weights = jax.vmap(jax.jacfwd(self._weights))(own, seen)
        # exp(c - l_i) and exp(l_j) by themselves may be out of range.
        scales = jnp.exp(scale[:, None] + seen[None])
        coupled = jnp.einsum("iap,ipjq,jqb->iajb", by_force, self._hessian(thetas), weights)
        blocks = -scales[:, None, :, None] * coupled
        units = jnp.arange(m)
        blocks = blocks.at[units, :, units, :].add(direct)
        rows = jnp.concatenate([blocks[:, 0], blocks[:, 1:].reshape(-1, m, own.shape[1])])
        return jnp.concatenate([rows[:, :, 0], rows[:, :, 1:].reshape(len(rows), -1)], axis=1)

    def _seen(self, log_norms: Array) -> Array:
        """Return the log norms at which the gradient is taken."""
        return jnp.maximum(log_norms, -_LOG_OF_GRADIENTS / (self.degree - 1))

    def _log_scale(self, log_norms: Array) -> Array:
        """Return the logarithm of the factor from the gradient at the norms seen to the rate at the norms."""
        seen = self._seen(log_norms)
        return (self.degree - 2) * (log_norms - seen) - seen

    def _own_rate(self, own: Float[Array, "q"], log_norm: Array, force: Float[Array, "p"]) -> Float[Array, "q"]:
        """Return the rate of one unit by (l, v), with the gradient held that gave the force at log_norm."""
        grown = jnp.exp(self._log_scale(own[0]) - self._log_scale(log_norm))
        return jnp.hstack(_rate(own[1:], force * grown))

    def _weights(self, own: Float[Array, "q"], seen: Array) -> Float[Array, "p"]:
        """Return the weights of one unit at the norm seen, in units of exp(seen)."""
        return jnp.exp(self._seen(own[0]) - seen) * own[1:] / jnp.linalg.norm(own[1:])

    def _output(self, thetas: Float[Array, "m p"], x: PyTree) -> Array:
        return jnp.sum(jax.vmap(self._unit, (0, 0, None))(thetas, self._numbers(), x), axis=0)

    def _numbers(self) -> Array:
        return jnp.zeros(self.count, int) if self.kinds is None else self.kinds

    def _unit(self, theta: Float[Array, "p"], kind: Array, x: PyTree) -> Array:
        tree = self.layout.build(theta)
        return self.unit(tree, x) if self.kinds is None else self.unit(tree, x, kind)

    def _hessian(self, thetas: Float[Array, "m p"]) -> Float[Array, "m p m p"]:
        """Return the Hessian of L, by blocks of samples."""
        samples = self.inputs, self.targets
        count = len(jax.tree.leaves(samples)[0])
        outputs = jax.eval_shape(self._output, thetas, first_sample(self.inputs)).size
        block = min(count, max(1, _DERIVATIVES // (outputs * thetas.size)))
        blocks = count // block
        whole = jax.tree.map(lambda leaf: leaf[: blocks * block].reshape(blocks, block, *leaf.shape[1:]), samples)
        add = lambda total, some: (total + self._part_of_hessian(thetas, *some), None)  # noqa: E731
        total, _ = jax.lax.scan(add, jnp.zeros(thetas.shape + thetas.shape), whole)
        if count % block:
            total, _ = add(total, jax.tree.map(lambda leaf: leaf[blocks * block :], samples))
        return total / count

    def _part_of_hessian(self, thetas: Float[Array, "m p"], inputs: PyTree, targets: PyTree) -> Float[Array, "m p m p"]:
        """Return the Hessian of the sum of some samples' losses."""
        m, p = thetas.shape
        kinds = self._numbers()
        flat = lambda theta, kind, x: self._unit(theta, kind, x).ravel()  # noqa: E731
        f = jax.vmap(self._output, (None, 0))(thetas, inputs)
        forces = jax.vmap(jax.grad(self.loss))(f, targets)
        curvatures = jax.vmap(jax.hessian(self.loss))(f, targets).reshape(len(f), f[0].size, f[0].size)
        derivative = jax.jacfwd(flat) if p <= f[0].size else jax.jacrev(flat)
        D = jax.vmap(jax.vmap(derivative, (0, 0, None), 1), (None, None, 0))(thetas, kinds, inputs)
        D = D.reshape(len(f), f[0].size, m * p)
        total = (D.reshape(-1, m * p).T @ (curvatures @ D).reshape(-1, m * p)).reshape(m, p, m, p)

        def utility(theta: Array, kind: Array) -> Array:
            return jnp.sum(forces * jax.vmap(lambda x: self._unit(theta, kind, x))(inputs))

        units = jnp.arange(m)
        return total.at[units, :, units, :].add(jax.vmap(jax.hessian(utility))(thetas, kinds))


def first_sample(samples: PyTree) -> Any:
    """Return the first sample of a pytree of arrays."""
    return jax.tree.map(lambda leaf: leaf[0], samples)


def _rate(v: Float[Array, "p"], force: Float[Array, "p"]) -> tuple[Array, Float[Array, "p"]]:
    """Return the derivatives of one unit's log norm and of v, whose norm stays."""
    norm = jnp.linalg.norm(v)
    u = v / norm
    along = u @ force
    return along, norm * (force - along * u)
