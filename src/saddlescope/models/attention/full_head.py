"""One attention head with full weights, and the task of learning a teacher of the same form.

    x          tokens of one sample, shape (n, d)
    A          W_K W_Q^T, shape (d, d)
    B          W_V W_O^T, shape (d, d)
    S          x A x^T, scores; not divided by sqrt(d)
    P          row-wise softmax of S
    F          P x, the mean token under each row of P
    output     F B, equation 1

The head depends on its weights through the two products alone, each of rank at most the head's width. Equations of
Boix-Adsera, Littwin, Abbe, Bengio and Susskind (2023), "Transformers learn through gradual rank increase"; Figure 2
(d) to (f) of its first version.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import in_float64
from saddlescope._shared.reprs import ReprMixin
from saddlescope.loss.abstract_loss import AbstractLoss
from saddlescope.models.attention.teacher import check_teacher_task
from saddlescope.models.sample_blocks import sample_blocks

Matrix = Float[Array, "d d"]


@validate_arguments
def full_attention_head(x: Float[Array, "n d"], A: Matrix, B: Matrix) -> Float[Array, "n d"]:
    """Return softmax(x A x^T) x B, the softmax row by row (equation 1)."""
    return jax.nn.softmax(x @ A @ x.T, axis=-1) @ x @ B


class FullAttention(AbstractLoss):
    """Mean squared error of one attention head, as a function of the products (A, B) = (W_K W_Q^T, W_V W_O^T).

    The mean is over samples, tokens and dimensions, without a factor 1/2; it is summed over blocks of
    samples that stay in the processor's cache.

    Attributes:
        inputs: x, shape (samples, n, d).
        targets: y, of the same shape.

    Raises:
        InputError: inputs and targets do not share one shape (samples, tokens, dim), or have different types.
    """

    inputs: Float[Array, "..."]
    targets: Float[Array, "..."]

    def __check_init__(self) -> None:
        if jnp.ndim(self.inputs) != 3 or jnp.shape(self.inputs) != jnp.shape(self.targets):
            raise InputError(
                "inputs and targets must have one shape (samples, tokens, dim); "
                f"got {jnp.shape(self.inputs)!r} and {jnp.shape(self.targets)!r}."
            )
        if self.inputs.dtype != self.targets.dtype:
            raise InputError(
                f"targets must have the type of inputs, {self.inputs.dtype!s}; got {self.targets.dtype!s}."
            )

    @eqx.filter_jit
    def __call__(self, products: tuple[Matrix, Matrix]) -> Float[Array, ""]:
        """Return L(A, B)."""
        return self._mean_by_blocks(lambda square: square(products))

    @eqx.filter_jit
    def value_and_gradient(
        self, products: tuple[Matrix, Matrix]
    ) -> tuple[Float[Array, ""], tuple[Float[Array, "d d"], Float[Array, "d d"]]]:
        """Return L(A, B) and (dL/dA, dL/dB)."""
        return self._mean_by_blocks(lambda square: jax.value_and_grad(square)(products))

    def _mean_by_blocks(self, of: Callable[[Callable[[Any], Array]], PyTree]) -> PyTree:
        """Return the mean over all entries of a quantity linear in the squares of a block, such as their gradient."""

        def part(x: Array, y: Array) -> PyTree:
            return of(lambda at: jnp.sum((jax.vmap(full_attention_head, in_axes=(0, None, None))(x, *at) - y) ** 2))

        blocks = sample_blocks(self.inputs, self.targets)
        like = jax.eval_shape(part, *(block[0] for block in blocks))
        zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
        total, _ = jax.lax.scan(lambda sums, block: (jax.tree.map(jnp.add, sums, part(*block)), None), zero, blocks)
        return jax.tree.map(lambda leaf: leaf / self.targets.size, total)


@dataclass(frozen=True, repr=False, kw_only=True)
class FullAttentionTeacherTask(ReprMixin):
    """Task of learning an attention head with full weights from the outputs of another one.

    Attributes:
        network: the loss L(A, B), mean squared error over all samples, tokens and dimensions.
        pairs: initial ((W_K, W_Q), (W_V, W_O)) before they are scaled by alpha, each of shape (dim, width).
        teacher: (A, B) of the head that computed the targets, shape (dim, dim) each; L(teacher) = 0.
    """

    network: FullAttention
    pairs: tuple[
        tuple[Float[np.ndarray, "d h"], Float[np.ndarray, "d h"]],
        tuple[Float[np.ndarray, "d h"], Float[np.ndarray, "d h"]],
    ]
    teacher: tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d d"]]


@in_float64
@validate_arguments
def full_attention_teacher_task(
    seed: int = 0,
    *,
    samples: int = 1000,
    tokens: int = 10,
    dim: int = 50,
    width: int | None = None,
    rank: int | None = None,
) -> FullAttentionTeacherTask:
    """Draw the toy task of the first version's Figure 2 (d) to (f): Gaussian tokens, teacher and start.

    The paper states that tokens have 50 dimensions, not the scale or rank of the teacher. Here its products are
    W_K W_Q^T / rank and W_V W_O^T / sqrt(rank) of standard normal d x rank weights.

    Args:
        seed: of the NumPy generator that draws tokens, teacher and start, in this order.
        samples: number of samples.
        tokens: tokens in a sample.
        dim: dimension d of a token.
        width: d_h, columns of the student's weights; d by default.
        rank: of the teacher's products; d by default.

    Raises:
        InputError: a size is not a positive integer, rank exceeds width or dim, or the seed is negative.
    """
    width, rank = (dim if size is None else size for size in (width, rank))
    sizes = {"samples": samples, "tokens": tokens, "dim": dim, "width": width, "rank": rank}
    check_teacher_task(seed, **sizes)
    if rank > min(width, dim):
        raise InputError(f"rank must be at most width={width} and dim={dim}, or no student learns it; got {rank!r}.")
    rng = np.random.default_rng(seed)
    inputs = jnp.asarray(rng.standard_normal((samples, tokens, dim)))
    k, q, v, o = rng.standard_normal((4, dim, rank))
    teacher = k @ q.T / rank, v @ o.T / np.sqrt(rank)
    targets = jax.jit(jax.vmap(full_attention_head, in_axes=(0, None, None)))(inputs, *map(jnp.asarray, teacher))
    k, q, v, o = rng.standard_normal((4, dim, width))
    return FullAttentionTeacherTask(
        network=FullAttention(inputs=inputs, targets=targets), pairs=((k, q), (v, o)), teacher=teacher
    )
