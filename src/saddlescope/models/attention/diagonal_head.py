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
from saddlescope.models.attention.restricted_head import BLOCK_ENTRIES, RestrictedHead
from saddlescope.models.attention.teacher import check_teacher_task
from saddlescope.models.diagonal.network import DiagonalNetwork, squared_error


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
    stay in the processor's cache, and the Hessian costs about 11 gradients instead of 2 d.

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
        return self._all(beta)

    @eqx.filter_jit
    def value_and_gradient(self, beta: Float[Array, "p"]) -> tuple[Float[Array, ""], Float[Array, "p"]]:
        """Return L(beta) and dL/dbeta = -g."""
        return self._all.value_and_gradient(beta)

    @eqx.filter_jit
    def hessian(self, beta: Float[Array, "p"]) -> Float[Array, "p p"]:
        """Return the second derivatives of L at beta."""
        return self._all.hessian(beta)

    @eqx.filter_jit
    def hessian_columns(self, beta: Float[Array, "p"], columns: Int[Array, "m"]) -> Float[Array, "p m"]:
        """Return some columns of the Hessian: a few by products with it, more by computing all of it."""
        if columns.size > _FEW_COLUMNS:
            return self.hessian(beta)[:, columns]

        def column(direction: Array) -> Array:
            return jax.jvp(lambda at: self.value_and_gradient(at)[1], (beta,), (direction,))[1]

        directions = jnp.zeros((columns.size, beta.size), beta.dtype).at[jnp.arange(columns.size), columns].set(1.0)
        return jax.lax.map(column, directions).T

    @property
    def size(self) -> int:
        """Number of entries of beta."""
        return 2 * self.inputs.shape[-1]

    def restricted(
        self, columns: Int[np.ndarray, "m"]
    ) -> "tuple[RestrictedHead | AttentionNetwork, Int[np.ndarray, 'm']]":
        """Return L as a function of these entries of beta, ascending, the others 0; and their places in its argument.

        It has d/2 or d entries of a, and of b, so that few versions are compiled. Its other entries must be 0. Where
        all samples are one block, passing over columns saves less than another compilation takes: L itself is returned.
        """
        dim = self.inputs.shape[-1]
        if self.inputs.size <= BLOCK_ENTRIES:
            return self, columns
        of_keys, of_values = columns[columns < dim], columns[columns >= dim] - dim
        inputs, of_outputs = np.asarray(self.inputs), np.asarray(self.targets)
        keys = _some(inputs, of_keys)
        values, targets = _some(inputs, of_values), _some(of_outputs, of_values)
        squares = np.sum(of_outputs**2, (0, 1))
        absent = jnp.asarray(np.sum(np.delete(squares, of_values)))
        places = np.concatenate([np.arange(of_keys.size), keys.shape[-1] + np.arange(of_values.size)])
        return RestrictedHead(keys, values, targets, absent, self.targets.size), places

    @property
    def _all(self) -> RestrictedHead:
        return RestrictedHead(self.inputs, self.inputs, self.targets, None, self.targets.size)


_FEW_COLUMNS = 6  # one costs 1.6 gradients, so with more of them the full Hessian is cheaper


def _some(data: Float[np.ndarray, "samples n d"], kept: Int[np.ndarray, "k"]) -> Float[Array, "samples n size"]:
    """Return some columns of the data, with columns of zeros after them up to half of all columns, or to all."""
    dim = data.shape[-1]
    size = -(-dim // 2) if kept.size <= -(-dim // 2) else dim
    columns = np.zeros((*data.shape[:-1], size), data.dtype)
    columns[..., : kept.size] = data[..., kept]
    return jnp.asarray(columns)


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
