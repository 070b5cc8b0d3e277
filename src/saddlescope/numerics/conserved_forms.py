"""Quadratic forms of weights that gradient flow conserves, and the nearest weights with given values of them.

    f, g   outputs, a function of the weights theta, and the gradient of a weighted sum of them: theta' is such a g
    A      a symmetric matrix with <g, A theta> = 0 for all theta and weights of the sum, so that theta^T A theta is
           conserved: a symmetry of f and its conservation law (Du, Hu and Lee 2018, arXiv 1806.00900)
    D      a symmetric matrix with <g, D theta> = the weighted sum: f(c^D theta) = c f(theta)

A product of blocks that are homogeneous of degrees d_i conserves |b_i|^2 / d_i - |b_j|^2 / d_j. Where weights come back
to their initial scale after they were of order one, these differences alone decide where they go on, and they are then
far below the rounding errors of the large weights.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

_MOST, _MOST_DIAGONAL = 30, 100  # weights up to which forms with all entries, and diagonal ones, are searched
_SPARE = 8  # moments beyond the entries of a form
_LOG_NORMS = np.array([-10.0, 0.0, 10.0])  # of the weights' entries at which moments are drawn
_EXACT = 1e-10  # relative size of what is rounding in moments
_ROUNDING = 1e-14  # of a value, for each weight
_LARGEST = 600.0  # exponent, far from the largest number


def random_moments(
    network: Callable[[Array, Array], Array], kinds: int, size: int
) -> tuple[Float[Array, "n e"], Float[Array, "n"]]:
    """Return moments at random weights of several norms, each of a random sum of outputs; and these sums.

    A unit has other forms where it is as good as linear than where it bends: those of large and small weights count.

    Args:
        network: outputs of a sum of units, from their flat weights, shape (kinds, size), and their kinds.
        kinds: number of kinds of unit: one unit of each.
        size: p.
    """
    each = len(_entries(size)[0]) + _SPARE

    def draw(at: tuple[Array, Array]) -> tuple[Array, Array]:
        of_weights, of_outputs = jax.random.split(at[0])
        thetas = at[1] * jax.random.normal(of_weights, (kinds, size))
        outputs, back = jax.vjp(lambda of: network(of, jnp.arange(kinds)), thetas)
        weights = jax.random.normal(of_outputs, outputs.shape)
        return moment(back(weights)[0], thetas), jnp.sum(weights * outputs)

    return jax.lax.map(draw, (jax.random.split(jax.random.key(0), 3 * each), jnp.repeat(jnp.exp(_LOG_NORMS), each)))


def moment(slopes: Float[Array, "m p"], thetas: Float[Array, "m p"]) -> Float[Array, "e"]:
    """Return <g, A theta>, summed over units, for each A of an orthonormal basis of the forms that are searched."""
    i, j = _entries(thetas.shape[1])
    return jnp.sum(slopes[:, i] * thetas[:, j] + slopes[:, j] * thetas[:, i], axis=0) / np.where(i == j, 2.0, 2**0.5)


def conserved_forms(moments: Float[np.ndarray, "n e"], size: int) -> Float[np.ndarray, "k p p"]:
    """Return an orthonormal basis of the conserved forms A: diagonal ones beyond 30 weights, none beyond 100.

    Args:
        moments: at random theta and weights of the sum of outputs; those that are not finite say nothing.
        size: p.
    """
    rows = moments[_telling(moments)]
    if not rows.size:
        return np.zeros((0, size, size))
    _, sizes, basis = np.linalg.svd(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return _forms(basis[int(np.sum(sizes > _EXACT * sizes[0])) :], size)


def scaling_form(
    moments: Float[np.ndarray, "n e"], sums: Float[np.ndarray, "n"], near: Float[np.ndarray, "p p"]
) -> Float[np.ndarray, "p p"] | None:
    """Return the form D nearest to a given one; None if the outputs scale by no form.

    Args:
        moments: at random theta and weights of the sum of outputs.
        sums: the weighted sums.
        near: the given form.
    """
    size = len(near)
    i, j = _entries(size)
    telling = _telling(moments)
    sizes = np.linalg.norm(moments[telling], axis=1)
    moments, sums = moments[telling] / sizes[:, None], sums[telling] / sizes
    missing = sums - moments @ (near[i, j] * np.where(i == j, 1.0, 2**0.5))
    change = np.linalg.lstsq(moments, missing, rcond=_EXACT)[0]
    exact = np.linalg.norm(moments @ change - missing) <= _EXACT * np.linalg.norm(moments)
    change[np.abs(change) <= _EXACT * np.max(np.abs(near))] = 0.0  # weights that are 0, as at a kink, stay 0
    return near + _forms(change[None], size)[0] if exact else None


def _telling(moments: Float[np.ndarray, "n e"]) -> Bool[np.ndarray, "n"]:
    """Return a mask of the moments that are finite and neither zero nor so small that they have lost digits."""
    with np.errstate(over="ignore", invalid="ignore"):
        sizes = np.linalg.norm(moments, axis=1)
    return np.isfinite(sizes) & (sizes > 1e-150)


def _entries(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of the entries of a form that are searched."""
    if size <= _MOST:
        i, j = np.triu_indices(size)
        return i, j
    diagonal = np.arange(size if size <= _MOST_DIAGONAL else 0)
    return diagonal, diagonal


def _forms(basis: Float[np.ndarray, "k e"], size: int) -> Float[np.ndarray, "k p p"]:
    i, j = _entries(size)
    forms = np.zeros((len(basis), size, size))
    forms[:, i, j] = forms[:, j, i] = basis / np.where(i == j, 1.0, 2**0.5)
    return forms


class ConservedForms(eqx.Module):
    """Conserved forms of units, with their values.

    Attributes:
        forms: A, shape (k, p, p).
        log_norms: log norms of weights for which the values are known, shape (m,).
        values: u^T A u of their directions u, shape (m, k); exactly 0 for what is rounding.
    """

    forms: Float[Array, "k p p"]
    log_norms: Float[Array, "m"]
    values: Float[Array, "m k"]

    @classmethod
    def of(
        cls, moments: Float[np.ndarray, "n e"], log_norms: Float[np.ndarray, "m"], u: Float[np.ndarray, "m p"]
    ) -> "ConservedForms":
        """Return the forms with their values at weights of these log norms and directions of norm 1."""
        forms = conserved_forms(moments, u.shape[1])
        values = np.einsum("mp,kpq,mq->mk", u, forms, u)
        values = np.where(np.abs(values) <= _ROUNDING * u.shape[1], 0.0, values)
        return cls(*map(jnp.asarray, (forms, log_norms, values)))

    def nearest(self, log_norms: Float[Array, "m"], u: Float[Array, "m p"]) -> tuple[Array, Array]:
        """Return log norms and directions of the nearest weights with the conserved values, to first order."""
        if not len(self.forms):
            return log_norms, u
        return jax.vmap(self._nearest_of_unit)(log_norms, u, self.log_norms, self.values)

    def _nearest_of_unit(self, log_norm: Array, u: Array, known_at: Array, values: Array) -> tuple[Array, Array]:
        normals = self.forms @ u
        wanted = values * jnp.exp(jnp.minimum(2 * (known_at - log_norm), _LARGEST))
        gram = 2 * normals @ normals.T
        damping = (1e-12 * jnp.trace(gram) + 1e-100) * jnp.eye(len(values))  # parallel normals have dependent values
        nearest = u + jnp.linalg.solve(gram + damping, wanted - normals @ u) @ normals
        norm = jnp.linalg.norm(nearest)
        return log_norm + jnp.log(norm), nearest / norm
