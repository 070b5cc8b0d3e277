"""A loss of products of matrices as the theory sees it: L, the forces G = -dL/dB, and how they answer to a change of B.

B    the tuple of products, B_p of shape (m_p, n_p)
G    -dL/dB, a tuple of the same shapes
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from saddlescope._shared.errors import InputError

Matrices = tuple[Float[np.ndarray, "_ _"], ...]


class NonFiniteProductLossError(Exception):
    """The loss, its gradient or its second derivative is NaN or infinite at some products."""


@eqx.filter_jit
def _value_and_slope(loss: Any, products: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
    if hasattr(loss, "value_and_gradient"):
        return loss.value_and_gradient(products)
    return jax.value_and_grad(loss)(products)


@eqx.filter_jit
def _answer(loss: Any, products: tuple[Array, ...], change: tuple[Array, ...]) -> tuple[Array, ...]:
    return jax.jvp(lambda at: _value_and_slope(loss, at)[1], (products,), (change,))[1]


class ProductLossOracle:
    """L, G and its derivative, as NumPy float64 arrays.

    Args:
        loss: L(B), a JAX function of a tuple of matrices of the given shapes; its own `value_and_gradient(products)` is
            used where it has one.
        shapes: (m, n) of each product.

    Raises:
        InputError: shapes that are none, JAX not in float64 mode, a loss that cannot be called on such a tuple, does
            not return one float64 number, or is not finite at 0.
    """

    def __init__(self, loss: Callable[[Any], Array], shapes: Sequence[tuple[int, int]]) -> None:
        self.loss, self.shapes = loss, tuple((int(m), int(n)) for m, n in shapes)
        if not self.shapes or min(map(min, self.shapes)) < 1:
            raise InputError(f"shapes must hold (rows, columns) of each product, positive integers; got {shapes!r}.")
        if not callable(loss):
            raise InputError(f"loss must be a JAX function of a tuple of products; got {loss!r}.")
        if jnp.zeros(0).dtype != jnp.dtype("float64"):
            raise InputError(
                "low_rank_learning must be called in JAX's float64 mode; got float32 mode. "
                "Use `with jax.enable_x64(True):` or set JAX_ENABLE_X64=1."
            )
        abstract = tuple(jax.ShapeDtypeStruct(shape, jnp.dtype("float64")) for shape in self.shapes)
        try:
            out = eqx.filter_eval_shape(loss, abstract)
        except (TypeError, ValueError, IndexError) as error:
            reason = str(error).strip().split("\n")[0]
            raise InputError(
                f"loss must accept a tuple of matrices of the shapes {self.shapes!r} under jax.jit; got {reason!r}. "
                "Check the shapes, and that the loss is written with jax.numpy."
            ) from error
        if getattr(out, "shape", None) != () or getattr(out, "dtype", None) != jnp.dtype("float64"):
            raise InputError(f"loss must return one float64 number; got {out!r}.")
        try:
            self.value_and_force(tuple(np.zeros(shape) for shape in self.shapes))
        except NonFiniteProductLossError as error:
            raise InputError(
                "loss must be finite with a finite gradient where all products are 0, where learning starts; got NaN "
                "or infinity. Look for a division, root or logarithm of a product, and for NaN in the data."
            ) from error

    def value_and_force(self, products: Matrices) -> tuple[float, Matrices]:
        """L(B) and G(B).

        Raises:
            NonFiniteProductLossError: one of them is NaN or infinite.
        """
        value, slopes = _value_and_slope(self.loss, tuple(map(jnp.asarray, products)))
        force = tuple(-np.asarray(slope) for slope in slopes)
        if not (np.isfinite(value) and all(np.isfinite(g).all() for g in force)):
            raise NonFiniteProductLossError
        return float(value), force

    def hvp(self, products: Matrices, change: Matrices) -> Matrices:
        """dG(B)[change], the derivative of G in a direction.

        Raises:
            NonFiniteProductLossError: an entry is NaN or infinite.
        """
        slopes = _answer(self.loss, tuple(map(jnp.asarray, products)), tuple(map(jnp.asarray, change)))
        answer = tuple(-np.asarray(slope) for slope in slopes)
        if not all(np.isfinite(g).all() for g in answer):
            raise NonFiniteProductLossError
        return answer
