"""One attention head with diagonal weights, and the task of learning a teacher of the same form.

    x         tokens of one sample, shape (n, d)
    a         w_K * w_Q, the first d entries of beta: the diagonal of W_K W_Q^T
    b         w_V * w_O, the last d entries of beta: the diagonal of W_V W_O^T
    S         x diag(a) x^T, scores; not divided by sqrt(d)
    P         row-wise softmax of S
    F         P x, the mean token under each row of P
    output    F diag(b), equation 1

With u = [w_K, w_V] and v = [w_Q, w_O] the head is a network with diagonal weights, beta = u * v
(Example 3.2). Equations of Boix-Adsera, Littwin, Abbe, Bengio and Susskind (2023), "Transformers
learn through gradual rank increase".
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.models.attention.teacher import check_teacher_task
from saddlescope.models.diagonal.network import DiagonalNetwork, squared_error
from saddlescope.models.sample_blocks import sample_blocks


@validate_arguments
def attention_head(x: Float[Array, "n d"], beta: Float[Array, "p"]) -> Float[Array, "n d"]:
    """Return softmax(x diag(a) x^T) x diag(b) with beta = [a, b], the softmax row by row (equation 1).

    Raises:
        InputError: beta has another length than 2 d.
    """
    if beta.shape != (2 * x.shape[1],):
        raise InputError(f"beta must have shape ({2 * x.shape[1]},), two entries per dimension; got {beta.shape!r}.")
    a, b = jnp.split(beta, 2)
    attention = jax.nn.softmax((x * a[None]) @ x.T, axis=-1)
    return (attention @ x) * b[None]


class AttentionNetwork(DiagonalNetwork):
    """Mean squared error of a diagonal attention head, with its derivatives written out.

    The generic derivatives of `DiagonalNetwork` are its specification. These run over blocks of samples that
    stay in the processor's cache, and the Hessian costs about 20 gradients instead of 2 d.

    Raises:
        InputError: h or loss is another function than `attention_head` or `squared_error`.
    """

    def __check_init__(self) -> None:
        if self.h is not attention_head or self.loss is not squared_error:
            raise InputError(
                f"AttentionNetwork must have h=attention_head and loss=squared_error; "
                f"got {self.h!r} and {self.loss!r}. "
                "Use DiagonalNetwork for other functions."
            )

    @eqx.filter_jit
    def __call__(self, beta: Float[Array, "p"]) -> Float[Array, ""]:
        """Return L(beta)."""
        a, b = jnp.split(beta, 2)

        def add(total, block):
            x, y = block
            residual = _forward(x, y, a, b)[2]
            return total + jnp.sum(residual * residual), None

        with jax.numpy_rank_promotion("allow"):
            square, _ = jax.lax.scan(add, jnp.zeros((), beta.dtype), self._blocks())
        return square / self.targets.size

    @eqx.filter_jit
    def value_and_gradient(self, beta: Float[Array, "p"]) -> tuple[Float[Array, ""], Float[Array, "p"]]:
        """Return L(beta) and dL/dbeta = -g."""
        a, b = jnp.split(beta, 2)

        def add(sums, block):
            x, y = block
            attention, mean, residual = _forward(x, y, a, b)
            d_attention = jnp.einsum("sid,sjd->sij", residual * b, x)
            d_scores = attention * (d_attention - _row_mean(attention, d_attention))
            terms = residual**2, x * jnp.einsum("sij,sjd->sid", d_scores, x), residual * mean
            return jax.tree.map(jnp.add, sums, terms), None  # summed over samples and tokens once, at the end

        inputs, targets = self._blocks()
        with jax.numpy_rank_promotion("allow"):
            sums, _ = jax.lax.scan(add, (jnp.zeros_like(inputs[0]),) * 3, (inputs, targets))
        square, d_a, d_b = (jnp.sum(terms, (0, 1)) for terms in sums)
        entries = self.targets.size
        return jnp.sum(square) / entries, 2 / entries * jnp.concatenate([d_a, d_b])

    @eqx.filter_jit
    def hessian(self, beta: Float[Array, "p"]) -> Float[Array, "p p"]:
        """Return the second derivatives of L at beta.

        With U_ijd = x_id (x_jd - F_id) one has dP_ij/da_d = P_ij U_ijd, and so for each row i of the scores
        dF_i/da_d = x_id C_i[d, :], where C_i is the covariance of the tokens under P_i. The blocks of the
        Hessian are sums over samples and rows of

            aa:  sum_jk U_ijd K_ijk U_ikd',  K_i = P_i (x_c diag(b^2) x_c^T) P_i + P_i diag(q_i - P_i . q_i),
            ab:  x_id C_i[d, e] (R_ie + b_e F_ie),
            bb:  F_id^2 on the diagonal,

        times 2 / entries, where x_c = x - F_i, R is the residual and q_ij = sum_e R_ie b_e x_je.
        """
        a, b = jnp.split(beta, 2)
        tokens = self.inputs.shape[1]

        def add(sums, block):
            x, y = block
            attention, mean, residual = _forward(x, y, a, b)
            gram = jnp.einsum("sjd,skd->sjk", x * b**2, x)
            mixed = jnp.einsum("sij,sjk->sik", attention, gram)
            of_mean = jnp.sum(mixed * attention, -1)[..., None, None]
            centred = gram[:, None] - mixed[:, :, :, None] - mixed[:, :, None, :] + of_mean
            pull = jnp.einsum("sid,sjd->sij", residual * b, x)
            pull = pull - _row_mean(attention, pull)
            kernel = attention[..., None] * (centred * attention[:, :, None, :] + jnp.eye(tokens) * pull[..., None])
            offset = x[:, None] - mean[:, :, None]
            u = x[:, :, None] * offset
            right = attention[..., None] * offset * (residual + b * mean)[:, :, None]
            right = jnp.concatenate([jnp.einsum("sijk,sikd->sijd", kernel, u), right], -1)
            dim = x.shape[-1]
            terms = (u.reshape(-1, dim).T @ right.reshape(-1, 2 * dim), jnp.sum(mean**2, (0, 1)))
            return jax.tree.map(jnp.add, sums, terms), None

        dim = a.shape[0]
        start = (jnp.zeros((dim, 2 * dim), beta.dtype), jnp.zeros_like(b))
        with jax.numpy_rank_promotion("allow"):
            (top, diagonal), _ = jax.lax.scan(add, start, self._blocks())
        d_ab = top[:, dim:]
        bottom = jnp.concatenate([d_ab.T, jnp.diag(diagonal)], 1)
        return 2 / self.targets.size * jnp.concatenate([top, bottom], 0)

    @eqx.filter_jit
    def hessian_columns(self, beta: Float[Array, "p"], columns: Int[Array, "m"]) -> Float[Array, "p m"]:
        """Return some columns of the Hessian: a few by products with it, more by computing all of it."""
        if columns.size > _FEW_COLUMNS:
            return self.hessian(beta)[:, columns]

        def column(direction: Array) -> Array:
            return jax.jvp(lambda at: self.value_and_gradient(at)[1], (beta,), (direction,))[1]

        directions = jnp.zeros((columns.size, beta.size), beta.dtype).at[jnp.arange(columns.size), columns].set(1.0)
        return jax.lax.map(column, directions).T

    def _blocks(self) -> tuple[Float[Array, "blocks s n d"], Float[Array, "blocks s n d"]]:
        return sample_blocks(self.inputs, self.targets, entries=_BLOCK_ENTRIES)


_FEW_COLUMNS = 8  # one costs 1.6 gradients, so with more of them the full Hessian is cheaper
_BLOCK_ENTRIES = 10_000  # 80 kB of float64 inputs: the fastest of 4 to 250 samples of 10 x 50 on one core


def _forward(x: Array, y: Array, a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Return P, F and the residual F diag(b) - y of a block of samples."""
    attention = jax.nn.softmax(jnp.einsum("sid,sjd->sij", x * a, x), axis=-1)
    mean = jnp.einsum("sij,sjd->sid", attention, x)
    return attention, mean, mean * b - y


def _row_mean(attention: Array, values: Array) -> Array:
    return jnp.sum(attention * values, -1, keepdims=True)


@dataclass(frozen=True, repr=False, kw_only=True)
class AttentionTeacherTask(ReprMixin):
    """Task of learning a diagonal attention head from the outputs of another one.

    Attributes:
        network: the loss L(beta), mean squared error over all samples, tokens and dimensions.
        u0: initial [w_K, w_V] before they are scaled by alpha, shape (2 dim,).
        v0: initial [w_Q, w_O] before they are scaled by alpha, shape (2 dim,).
        teacher: beta of the head that computed the targets, shape (2 dim,); L(teacher) = 0.
    """

    network: AttentionNetwork
    u0: Float[np.ndarray, "p"]
    v0: Float[np.ndarray, "p"]
    teacher: Float[np.ndarray, "p"]


@validate_arguments
def attention_teacher_task(
    seed: int = 0, *, samples: int = 1000, tokens: int = 10, dim: int = 50
) -> AttentionTeacherTask:
    """Draw the toy task of Figure 2: Gaussian tokens, Gaussian teacher, Gaussian start (Appendix A).

    The paper states the sizes, not the scale of the teacher; standard normal weights give its pictures.

    Args:
        seed: of the NumPy generator that draws tokens, teacher and start, in this order.
        samples: number of samples; the paper has 1000.
        tokens: tokens in a sample; the paper has 10.
        dim: dimension d of a token; the paper has 50.

    Raises:
        InputError: a size is not a positive integer, the seed is negative, or JAX is not in float64 mode.
    """
    check_teacher_task("attention_teacher_task", seed, samples=samples, tokens=tokens, dim=dim)
    rng = np.random.default_rng(seed)
    inputs = jnp.asarray(rng.standard_normal((samples, tokens, dim)))
    t = rng.standard_normal((4, dim))  # the teacher's w_K, w_Q, w_V, w_O
    k, q, v, o = rng.standard_normal((4, dim))
    teacher = np.concatenate([t[0] * t[1], t[2] * t[3]])
    targets = jax.jit(jax.vmap(attention_head, in_axes=(0, None)))(inputs, jnp.asarray(teacher))
    return AttentionTeacherTask(
        network=AttentionNetwork(h=attention_head, inputs=inputs, targets=targets),
        u0=np.concatenate([k, v]),
        v0=np.concatenate([q, o]),
        teacher=teacher,
    )
