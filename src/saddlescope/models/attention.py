"""One attention head with diagonal weights, and the task of learning a teacher of the same form.

    x         tokens of one sample, shape (n, d)
    a         w_K * w_Q, the first d entries of beta: the diagonal of W_K W_Q^T
    b         w_V * w_O, the last d entries of beta: the diagonal of W_V W_O^T
    S         x diag(a) x^T, scores; not divided by sqrt(d)
    P         row-wise softmax of S
    F         P x, the mean token under each row of P
    output    F diag(b)                                                                        (equation 1)

With u = [w_K, w_V] and v = [w_Q, w_O] the head is a network with diagonal weights, beta = u * v (Example 3.2).
Equations of Boix-Adsera, Littwin, Abbe, Bengio, Susskind (2023), "Transformers learn through gradual rank increase".
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from saddlescope.errors import InputError
from saddlescope.models.diagonal import DiagonalNetwork


def attention_head(x: Float[Array, "n d"], beta: Float[Array, "2*d"]) -> Float[Array, "n d"]:
    """softmax(x diag(a) x^T) x diag(b) with beta = [a, b], the softmax row by row.   (equation 1)"""
    a, b = jnp.split(beta, 2)
    attention = jax.nn.softmax((x * a[None]) @ x.T, axis=-1)
    return (attention @ x) * b[None]


@dataclass(frozen=True, kw_only=True)
class AttentionTeacherTask:
    """Learning a diagonal attention head from the outputs of another one.

    Attributes:
        network: the loss L(beta), mean squared error over all samples, tokens and dimensions.
        u0: initial [w_K, w_V] before they are scaled by alpha, shape (2 dim,).
        v0: initial [w_Q, w_O] before they are scaled by alpha, shape (2 dim,).
        teacher: beta of the head that made the targets, shape (2 dim,); L(teacher) = 0.
    """

    network: DiagonalNetwork
    u0: Float[np.ndarray, "2*dim"]
    v0: Float[np.ndarray, "2*dim"]
    teacher: Float[np.ndarray, "2*dim"]


def attention_teacher_task(
    seed: int = 0, *, samples: int = 1000, tokens: int = 10, dim: int = 50
) -> AttentionTeacherTask:
    """The toy task of Figure 2: isotropic Gaussian tokens, a Gaussian teacher, a Gaussian start.   (Appendix A)

    The paper states the sizes, not the scale of the teacher; standard normal weights give its pictures.

    Args:
        seed: of the NumPy generator that draws tokens, teacher and start, in this order.
        samples: number of samples; the paper has 1000.
        tokens: tokens in a sample; the paper has 10.
        dim: dimension d of a token; the paper has 50.

    Raises:
        InputError: a size is not a positive integer, the seed is negative, or JAX is not in float64 mode.
    """
    for name, size, least in (
        ("seed", seed, 0),
        ("samples", samples, 1),
        ("tokens", tokens, 1),
        ("dim", dim, 1),
    ):
        if not isinstance(size, int | np.integer) or size < least:
            raise InputError(f"{name} must be an integer of at least {least}; got {size!r}.")
    if not jax.config.jax_enable_x64:
        raise InputError(
            "attention_teacher_task must be called in JAX's float64 mode; got float32 mode. "
            "Use `with jax.enable_x64(True):` or set JAX_ENABLE_X64=1."
        )
    rng = np.random.default_rng(seed)
    inputs = jnp.asarray(rng.standard_normal((samples, tokens, dim)))
    t = rng.standard_normal((4, dim))  # the teacher's w_K, w_Q, w_V, w_O
    k, q, v, o = rng.standard_normal((4, dim))
    teacher = np.concatenate([t[0] * t[1], t[2] * t[3]])
    targets = jax.jit(jax.vmap(attention_head, in_axes=(0, None)))(inputs, jnp.asarray(teacher))
    return AttentionTeacherTask(
        network=DiagonalNetwork(h=attention_head, inputs=inputs, targets=targets),
        u0=np.concatenate([k, v]),
        v0=np.concatenate([q, o]),
        teacher=teacher,
    )
