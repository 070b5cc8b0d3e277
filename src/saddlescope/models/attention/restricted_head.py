"""Mean squared error of a diagonal attention head as a function of some of its weights, with written-out derivatives.

    x         the columns of the tokens that the given entries of a weigh, shape (samples, n, k)
    z         those that the given entries of b weigh, shape (samples, n, m)
    P         row-wise softmax of x diag(a) x^T
    F         P z, the mean token under each row of P
    R         F diag(b) - y, the residual

The other entries of a and b are 0: their columns do not matter, except for the squares of the targets there.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from saddlescope.loss.abstract_loss import AbstractLoss
from saddlescope.models.sample_blocks import sample_blocks


class RestrictedHead(AbstractLoss):
    """Loss L(a, b) of a diagonal head, in which only some entries of a and b differ from 0.

    All sums run over blocks of samples that stay in the processor's cache.

    Attributes:
        keys: x; the same array as `values` if all weights are given.
        values: z.
        targets: y, the columns of z.
        absent: sum of the squares of the other columns of the targets; None if there are none.
        entries: number of entries of all columns of the targets.
    """

    keys: Float[Array, "samples n k"]
    values: Float[Array, "samples n m"]
    targets: Float[Array, "samples n m"]
    absent: Float[Array, ""] | None
    entries: int = eqx.field(static=True)

    @property
    def size(self) -> int:
        """Number of entries of a and b."""
        return self.keys.shape[-1] + self.values.shape[-1]

    def __call__(self, weights: Float[Array, "p"]) -> Float[Array, ""]:
        """Return L at [a, b]."""
        a, b = self._parts(weights)

        def add(total, block):
            residual = _forward(*_data(block), a, b)[2]
            return total + jnp.sum(residual * residual), None

        with jax.numpy_rank_promotion("allow"):
            square, _ = jax.lax.scan(add, jnp.zeros((), weights.dtype), self._blocks())
        return self._mean(square)

    def value_and_gradient(self, weights: Float[Array, "p"]) -> tuple[Float[Array, ""], Float[Array, "p"]]:
        """Return L and its gradient at [a, b]."""
        a, b = self._parts(weights)

        def add(sums, block):
            x, z, y = _data(block)
            attention, mean, residual = _forward(x, z, y, a, b)
            d_attention = jnp.einsum("sid,sjd->sij", residual * b, z)
            d_scores = attention * (d_attention - _row_mean(attention, d_attention))
            terms = residual**2, x * jnp.einsum("sij,sjd->sid", d_scores, x), residual * mean
            return jax.tree.map(jnp.add, sums, terms), None  # summed over samples and tokens once, at the end

        blocks = self._blocks()
        x, z, _ = _data(blocks)
        start = jnp.zeros_like(z[0]), jnp.zeros_like(x[0]), jnp.zeros_like(z[0])
        with jax.numpy_rank_promotion("allow"):
            sums, _ = jax.lax.scan(add, start, blocks)
        square, d_a, d_b = (jnp.sum(terms, (0, 1)) for terms in sums)
        return self._mean(jnp.sum(square)), 2 / self.entries * jnp.concatenate([d_a, d_b])

    def hessian(self, weights: Float[Array, "p"]) -> Float[Array, "p p"]:
        """Return the second derivatives of L at [a, b].

        The scores S are linear in a: dS_ij/da_d = x_id x_jd, symmetric in i and j. With q_ij = sum_e R_ie b_e z_je
        less its mean under P_i, and G_i = z diag(b^2) z^T centred under P_i in rows and columns, the blocks of the
        Hessian are sums over samples of

            aa:  sum_ijk x_id x_jd K_ijk x_id' x_kd',
                 K_ijk = P_ij (G_ijk P_ik + delta_jk q_ij - P_ik (q_ij + q_ik))
            ab:  sum_ij x_id x_jd P_ij (z_je - F_ie) (R_ie + b_e F_ie)
            bb:  sum_i F_id^2 on the diagonal,

        times 2 / entries. The factor on the right of x_id x_jd is added to that of x_jd x_id first, which halves the
        largest product.
        """
        a, b = self._parts(weights)
        tokens = self.keys.shape[1]
        first, second = np.triu_indices(tokens)

        def add(sums, block):
            x, z, y = _data(block)
            attention, mean, residual = _forward(x, z, y, a, b)
            gram = jnp.einsum("sjd,skd->sjk", z * b**2, z)
            mixed = jnp.einsum("sij,sjk->sik", attention, gram)
            of_mean = jnp.sum(mixed * attention, -1)[..., None, None]
            centred = gram[:, None] - mixed[:, :, :, None] - mixed[:, :, None, :] + of_mean
            pull = jnp.einsum("sid,sjd->sij", residual * b, z)
            pull = pull - _row_mean(attention, pull)
            inner = centred - pull[..., None] - pull[:, :, None, :]
            kernel = attention[..., None] * (inner * attention[:, :, None, :] + jnp.eye(tokens) * pull[..., None])
            pairs = x[:, :, None] * x[:, None]
            offset = (z[:, None] - mean[:, :, None]) * (residual + b * mean)[:, :, None]
            right = jnp.einsum("sijk,sikd->sijd", kernel, pairs), attention[..., None] * offset
            right = jnp.concatenate(right, -1)
            here, there = right[:, first, second], right[:, second, first]
            right = here + jnp.where((first != second)[:, None], there, 0.0)
            left = pairs[:, first, second].reshape(-1, x.shape[-1])
            terms = left.T @ right.reshape(len(left), -1), jnp.sum(mean**2, (0, 1))
            return jax.tree.map(jnp.add, sums, terms), None

        of_keys, of_values = a.shape[0], b.shape[0]
        start = jnp.zeros((of_keys, of_keys + of_values), weights.dtype), jnp.zeros_like(b)
        with jax.numpy_rank_promotion("allow"):
            (top, diagonal), _ = jax.lax.scan(add, start, self._blocks())
        bottom = jnp.concatenate([top[:, of_keys:].T, jnp.diag(diagonal)], 1)
        return 2 / self.entries * jnp.concatenate([top, bottom], 0)

    def _parts(self, weights: Float[Array, "p"]) -> tuple[Array, Array]:
        """Return a and b."""
        of_keys = self.keys.shape[-1]
        return weights[:of_keys], weights[of_keys:]

    def _mean(self, square: Float[Array, ""]) -> Float[Array, ""]:
        return (square if self.absent is None else square + self.absent) / self.entries

    def _blocks(self) -> tuple[Array, ...]:
        """Return blocks of samples of the values, the targets and, where they differ from the values, the keys."""
        data = (self.values, self.targets) if self.keys is self.values else (self.values, self.targets, self.keys)
        return sample_blocks(*data, entries=BLOCK_ENTRIES)


BLOCK_ENTRIES = 10_000
"""Entries of a block of samples: 80 kB, the fastest of 4 to 250 samples of 10 x 50 on one core."""


def _data(block: tuple[Array, ...]) -> tuple[Array, Array, Array]:
    """Return x, z and y of blocks."""
    z, y = block[:2]
    return (block[2] if len(block) == 3 else z), z, y


def _forward(x: Array, z: Array, y: Array, a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Return P, F and R of a block of samples."""
    attention = jax.nn.softmax(jnp.einsum("sid,sjd->sij", x * a, x), axis=-1)
    mean = jnp.einsum("sij,sjd->sid", attention, z)
    return attention, mean, mean * b - y


def _row_mean(attention: Array, values: Array) -> Array:
    return jnp.sum(attention * values, -1, keepdims=True)
