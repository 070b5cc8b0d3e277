"""Transformers with diagonal attention weights, any number of layers and heads (Example 3.2).

    X         tokens of one sample, shape (n, d); Z_0 = X
    Z~_l      Z_{l-1} + sum_i head(Z_{l-1}; a^{l,i}, b^{l,i}), the attention layer, with heads as in equation 1
    Z_l       Z~_l + sigma(Z~_l W_A^l) (W_B^l)^T, the feedforward layer, whose weights are fixed
    output    Z_L
    a^{l,i}   w_K^{l,i} * w_Q^{l,i}, the diagonal of W_K W_Q^T of head i in layer l
    b^{l,i}   w_V^{l,i} * w_O^{l,i}, the diagonal of W_V W_O^T

With u = [w_K, w_V] and v = [w_Q, w_O] of every head this is a network with diagonal weights, beta = u * v, of length
p = 2 d H L. The order of beta is that of an array of shape (L, H, 2, d): layer by layer, in it head by head, in it
first a and then b.

Equations of Boix-Adsera, Littwin, Abbe, Bengio and Susskind (2023), "Transformers learn through gradual rank
increase".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import in_float64
from saddlescope._shared.reprs import ReprMixin
from saddlescope.models.attention.diagonal_head import attention_head
from saddlescope.models.attention.teacher import check_teacher_task
from saddlescope.models.diagonal.network import DiagonalNetwork

PRODUCTS = ("KQ", "VO")  # W_K W_Q^T and W_V W_O^T, in the order of beta


def gelu(x: Array) -> Array:
    """Return x Phi(x), exactly, with the normal distribution function Phi; smooth, as Definition 3.1 requires."""
    return jax.nn.gelu(x, approximate=False)


class Coordinate(NamedTuple):
    """Position of one entry of a transformer's beta; all indices count from 0.

    Attributes:
        layer: its number l.
        head: its number i.
        product: "KQ" for an entry of a^{l,i}, "VO" for one of b^{l,i}.
        entry: the position on the product's diagonal.
    """

    layer: int
    head: int
    product: Literal["KQ", "VO"]
    entry: int

    def __str__(self) -> str:
        return f"layer {self.layer} head {self.head} {self.product} {self.entry}"


class Transformer(eqx.Module):
    """Transformer with diagonal attention weights, called as Z_L = h(X; beta) (Example 3.2).

    The feedforward weights are arrays of the module, so compiled functions take them as arguments: transformers of one
    shape share one compilation.

    Attributes:
        layers: L.
        heads: H, in every layer.
        dim: d, the dimension of a token.
        W_A: the feedforward layers' first weights, shape (L, d, hidden); None: no feedforward layers.
        W_B: the feedforward layers' second weights, shape (L, d, hidden), or None.
        activation: sigma; twice continuously differentiable.
        residual: True: each layer adds to its input, as in the paper. False: it replaces its input, so the signal
            vanishes with the weights, and only a single layer has a gradient at the origin.

    Raises:
        InputError: a number is not a positive integer, or W_A and W_B do not fit.
    """

    layers: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    W_A: Float[Array, "layers d hidden"] | None = None
    W_B: Float[Array, "layers d hidden"] | None = None
    activation: Callable[[Array], Array] = eqx.field(static=True, default=gelu)
    residual: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        for name in ("layers", "heads", "dim"):
            size = getattr(self, name)
            if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
                raise InputError(f"{name} must be a positive integer; got {size!r}.")
        shapes = [None if weights is None else weights.shape for weights in (self.W_A, self.W_B)]
        if shapes != [None, None] and (
            shapes[0] != shapes[1] or len(shapes[0] or ()) != 3 or (shapes[0] or ())[:2] != (self.layers, self.dim)
        ):
            raise InputError(
                f"W_A and W_B must both have shape (layers, dim, hidden) = ({self.layers}, {self.dim}, hidden), "
                f"or both be None; got {shapes[0]!r} and {shapes[1]!r}."
            )

    @property
    def size(self) -> int:
        """Length of beta, p = 2 d H L."""
        return 2 * self.layers * self.heads * self.dim

    def __call__(self, x: Float[Array, "n d"], beta: Float[Array, "p"]) -> Float[Array, "n d"]:
        """Return Z_L."""
        z = x
        for layer, heads in enumerate(beta.reshape(self.layers, self.heads, 2 * self.dim)):
            attended = sum((attention_head(z, head) for head in heads[1:]), attention_head(z, heads[0]))
            z = z + attended if self.residual else attended
            if self.W_A is not None and self.W_B is not None:
                forwarded = self.activation(z @ self.W_A[layer]) @ self.W_B[layer].T
                z = z + forwarded if self.residual else forwarded
        return z

    def coordinate(self, index: int) -> Coordinate:
        """Return the position of beta[index].

        Raises:
            InputError: an index out of range.

        >>> print(Transformer(layers=2, heads=1, dim=6).coordinate(20))
        layer 1 head 0 VO 2
        """
        if not 0 <= index < self.size:
            raise InputError(f"index must be between 0 and {self.size - 1}; got {index!r}.")
        layer, head, product, entry = np.unravel_index(index, self._shape)
        return Coordinate(int(layer), int(head), PRODUCTS[product], int(entry))

    def index(self, coordinate: Coordinate) -> int:
        """Return the index of a coordinate in beta; the inverse of `coordinate`.

        Raises:
            InputError: the layer, head, product or entry does not exist.

        >>> Transformer(layers=2, heads=1, dim=6).index(Coordinate(layer=1, head=0, product="VO", entry=2))
        20
        """
        layer, head, product, entry = coordinate
        inside = product in PRODUCTS and all(
            0 <= place < size for place, size in ((layer, self.layers), (head, self.heads), (entry, self.dim))
        )
        if not inside:
            raise InputError(
                f"coordinate must be in {self.layers} layers of {self.heads} heads, with product 'KQ' or 'VO' and "
                f"entry below {self.dim}, all counted from 0; got {coordinate!r}."
            )
        return int(np.ravel_multi_index((layer, head, PRODUCTS.index(product), entry), self._shape))

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        return self.layers, self.heads, 2, self.dim


class TransformerNetwork(DiagonalNetwork):
    """Loss of a transformer with diagonal attention weights on a data set."""

    # Not static, as other networks' h is: it has arrays. Pyright takes every field of a callable type for a method.
    h: Transformer  # pyright: ignore[reportIncompatibleMethodOverride]

    def _samples_at_once(self) -> int:
        return self._samples_in_cache()


@dataclass(frozen=True, repr=False, kw_only=True)
class TransformerTeacherTask(ReprMixin):
    """Task of learning a transformer with diagonal attention weights from the outputs of another one.

    Attributes:
        network: the loss L(beta), mean squared error over all samples, tokens and dimensions; `network.h` is the
            transformer, whose feedforward weights are the teacher's.
        u0: initial [w_K, w_V] of every head before they are scaled by alpha, shape (p,).
        v0: initial [w_Q, w_O] of every head before they are scaled by alpha, shape (p,).
        teacher: beta of the transformer that computed the targets, shape (p,); L(teacher) = 0. Exchanging heads within
            a layer gives another teacher with the same outputs.
    """

    network: TransformerNetwork
    u0: Float[np.ndarray, "p"]
    v0: Float[np.ndarray, "p"]
    teacher: Float[np.ndarray, "p"]


@in_float64
@validate_arguments
def transformer_teacher_task(
    seed: int = 0,
    *,
    layers: int,
    heads: int,
    samples: int = 200,
    tokens: int = 5,
    dim: int = 6,
    hidden: int | None = None,
    residual: bool = True,
    activation: Callable[[Array], Array] = gelu,
) -> TransformerTeacherTask:
    """Draw the toy task of Figure 2 for the transformer of Example 3.2: Gaussian tokens, teacher and start.

    Tokens, the teacher's attention weights and the start are standard normal, as in `attention_teacher_task`, which is
    the case of one layer and one head without residual and feedforward. The feedforward weights have variance 1/d
    (W_A) and 1/hidden (W_B), so that a feedforward layer preserves the size of its input, and the first
    stage begins at a T_1 of order d, as it does for one head.

    Args:
        seed: of the NumPy generator that draws tokens, teacher, start and feedforward weights, in this order.
        layers: L.
        heads: H, in every layer.
        samples: number of samples.
        tokens: tokens in a sample.
        dim: dimension d of a token.
        hidden: width of the feedforward layers; None: no feedforward layers.
        residual: True: layers add to their input; see `Transformer`.
        activation: of the feedforward layers.

    Raises:
        InputError: a size is not a positive integer, or the seed is negative.
    """
    sizes = {"layers": layers, "heads": heads, "samples": samples, "tokens": tokens, "dim": dim}
    check_teacher_task(seed, **sizes, **({} if hidden is None else {"hidden": hidden}))
    rng = np.random.default_rng(seed)
    inputs = jnp.asarray(rng.standard_normal((samples, tokens, dim)))
    t_k, t_q, t_v, t_o = np.moveaxis(rng.standard_normal((layers, heads, 4, dim)), 2, 0)
    k, q, v, o = np.moveaxis(rng.standard_normal((layers, heads, 4, dim)), 2, 0)
    W_A = W_B = None
    if hidden is not None:
        W_A = jnp.asarray(rng.standard_normal((layers, dim, hidden)) / np.sqrt(dim))
        W_B = jnp.asarray(rng.standard_normal((layers, dim, hidden)) / np.sqrt(hidden))
    transformer = Transformer(
        layers=layers, heads=heads, dim=dim, W_A=W_A, W_B=W_B, activation=activation, residual=residual
    )
    teacher = _flat(t_k * t_q, t_v * t_o)
    return TransformerTeacherTask(
        network=TransformerNetwork(
            h=transformer, inputs=inputs, targets=_outputs(transformer, inputs, jnp.asarray(teacher))
        ),
        u0=_flat(k, v),
        v0=_flat(q, o),
        teacher=teacher,
    )


def _flat(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return two arrays of shape (layers, heads, dim) in the order of beta."""
    return np.stack([first, second], axis=2).ravel()


@eqx.filter_jit
def _outputs(transformer: Transformer, inputs: Array, beta: Array) -> Array:
    return jax.vmap(transformer, in_axes=(0, None))(inputs, beta)
