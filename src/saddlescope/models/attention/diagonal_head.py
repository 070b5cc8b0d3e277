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
from saddlescope._shared.float64 import in_float64
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
    """Mean squared error of a diagonal attention head, with a Hessian that costs about 11 gradients instead of 2 d.

    The generic Hessian of `DiagonalNetwork` is its specification.

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

    def _samples_at_once(self) -> int:
        return self._samples_in_cache()

    @eqx.filter_jit
    def hessian(self, beta: Float[Array, "p"]) -> Float[Array, "p p"]:
        """Return the second derivatives of L at beta.

        The scores S are linear in a: dS_ij/da_d = x_id x_jd, symmetric in i and j. With R the residual,
        q_ij = sum_e R_ie b_e x_je less its mean under P_i, G_i = x diag(b^2) x^T centred under P_i in rows and
        columns, and K_ijk = P_ij (G_ijk P_ik + delta_jk q_ij - P_ik (q_ij + q_ik)), the blocks of the Hessian are sums
        over samples of

            aa:  sum_ijk x_id x_jd K_ijk x_id' x_kd',
            ab:  sum_ij x_id x_jd P_ij (x_je - F_ie) (R_ie + b_e F_ie)
            bb:  sum_i F_id^2 on the diagonal,

        times 2 / entries of the targets. The factor on the right of x_id x_jd is added to that of x_jd x_id first,
        which halves the largest product.
        """
        a, b = jnp.split(beta, 2)
        tokens, dim = self.inputs.shape[1:]
        first, second = np.triu_indices(tokens)

        def add(sums, block):
            x, y = block
            attention = jax.nn.softmax(jnp.einsum("sid,sjd->sij", x * a, x), axis=-1)
            mean = jnp.einsum("sij,sjd->sid", attention, x)
            residual = mean * b - y
            gram = jnp.einsum("sjd,skd->sjk", x * b**2, x)
            mixed = jnp.einsum("sij,sjk->sik", attention, gram)
            of_mean = jnp.sum(mixed * attention, -1)[..., None, None]
            centred = gram[:, None] - mixed[:, :, :, None] - mixed[:, :, None, :] + of_mean
            pull = jnp.einsum("sid,sjd->sij", residual * b, x)
            pull = pull - jnp.sum(attention * pull, -1, keepdims=True)
            inner = centred - pull[..., None] - pull[:, :, None, :]
            kernel = attention[..., None] * (inner * attention[:, :, None, :] + jnp.eye(tokens) * pull[..., None])
            pairs = x[:, :, None] * x[:, None]
            offset = (x[:, None] - mean[:, :, None]) * (residual + b * mean)[:, :, None]
            right = jnp.einsum("sijk,sikd->sijd", kernel, pairs), attention[..., None] * offset
            right = jnp.concatenate(right, -1)
            here, there = right[:, first, second], right[:, second, first]
            right = here + jnp.where((first != second)[:, None], there, 0.0)
            left = pairs[:, first, second].reshape(-1, dim)
            terms = left.T @ right.reshape(len(left), -1), jnp.sum(mean**2, (0, 1))
            return jax.tree.map(jnp.add, sums, terms), None

        start = jnp.zeros((dim, 2 * dim), beta.dtype), jnp.zeros_like(b)
        with jax.numpy_rank_promotion("allow"):
            (top, diagonal), _ = jax.lax.scan(add, start, sample_blocks(self.inputs, self.targets))
        bottom = jnp.concatenate([top[:, dim:].T, jnp.diag(diagonal)], 1)
        return 2 / self.targets.size * jnp.concatenate([top, bottom], 0)

    @eqx.filter_jit
    def hessian_columns(self, beta: Float[Array, "p"], columns: Int[Array, "m"]) -> Float[Array, "p m"]:
        """Return some columns of the Hessian: a few by products with it, more by computing all of it."""
        few = columns.size <= _FEW_COLUMNS
        return super().hessian_columns(beta, columns) if few else self.hessian(beta)[:, columns]


_FEW_COLUMNS = 6  # one costs 1.3 gradients or less, so with more of them the full Hessian is cheaper


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


@in_float64
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
        InputError: a size is not a positive integer, or the seed is negative.
    """
    check_teacher_task(seed, samples=samples, tokens=tokens, dim=dim)
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
