"""Oracle of a loss of products of matrices: L, the forces G = -dL/dB, and their derivative in a direction.

B    the tuple of products, B_p of shape (m_p, n_p)
G    -dL/dB, a tuple of the same shapes
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from saddlescope._shared.compiled_functions import compiled
from saddlescope._shared.errors import InputError
from saddlescope._shared.loss_scale import scale_exponent
from saddlescope.loss.abstract_loss import AbstractLoss, as_loss
from saddlescope.loss.checks import require_float64_loss, require_start_at_zero
from saddlescope.numerics.tree_layout import TreeLayout
from saddlescope.theory.saddle.path import NonFiniteLossError

Matrices = tuple[Float[np.ndarray, "_ _"], ...]


@compiled
def _value_and_slope(loss: AbstractLoss, products: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
    return loss.value_and_gradient(products)


@compiled
def _hvp(loss: AbstractLoss, products: tuple[Array, ...], change: tuple[Array, ...]) -> tuple[Array, ...]:
    return jax.jvp(lambda at: loss.value_and_gradient(at)[1], (products,), (change,))[1]


class ProductLossOracle:
    """Oracle of L, G and its derivative, as NumPy float64 arrays, all divided by 2^exponent.

    Attributes:
        exponent: chosen so that the largest entry of G at 0 is about 1; 0 where G is 0 there.
        decay: lambda divided by 2^exponent.
        depth: number of factors of each product.

    Args:
        loss: L(B), a JAX function of a tuple of matrices of the given shapes, or an `AbstractLoss` of one.
        shapes: (m, n) of each product.
        symmetric: True for products of symmetric factors: G is then its symmetric part.
        weight_decay: lambda, of the factors.
        depth: number of factors of each product.

    Raises:
        InputError: invalid shapes, a loss that cannot be called on such a tuple, does not
            return one float64 number, is not finite at 0, or has a gradient that jumps there.
    """

    def __init__(
        self,
        loss: Callable[[Any], Array],
        shapes: Sequence[tuple[int, int]],
        *,
        symmetric: bool = False,
        weight_decay: float = 0.0,
        depth: int = 2,
    ) -> None:
        self.loss, self.shapes = as_loss(loss), tuple((int(m), int(n)) for m, n in shapes)
        self.symmetric, self.depth = symmetric, depth
        if not self.shapes or min(map(min, self.shapes)) < 1:
            raise InputError(f"shapes must hold (rows, columns) of each product, positive integers; got {shapes!r}.")
        if symmetric and any(m != n for m, n in self.shapes):
            raise InputError(f"shapes must be square for symmetric factors; got {shapes!r}.")
        zero = tuple(np.zeros(shape) for shape in self.shapes)
        require_float64_loss(loss, zero, name="a tuple of products")
        self.exponent = 0
        layout = TreeLayout.of(zero)

        def flat(at: np.ndarray) -> tuple[Array, np.ndarray]:
            value, slopes = self._slopes(layout.build(at))
            return value, layout.flatten(slopes)

        require_start_at_zero(flat, layout.size, "B")
        force = self.value_and_force(zero)[1]
        self.exponent = scale_exponent(force)
        self.decay = float(np.ldexp(weight_decay, -self.exponent))

    def value_and_force(self, products: Matrices) -> tuple[float, Matrices]:
        """Return L(B) and G(B).

        Raises:
            NonFiniteLossError: one of them is NaN or infinite.
        """
        value, slopes = self._slopes(products)
        force = self._force(slopes)
        if not (np.isfinite(value) and all(np.isfinite(g).all() for g in force)):
            raise NonFiniteLossError
        return float(np.ldexp(float(value), -self.exponent)), force

    def asymmetry(self, products: Matrices) -> float:
        """Return the largest entry of G - G^T before G is made symmetric, relative to the largest of G here and at 0.

        Raises:
            NonFiniteLossError: an entry of G is NaN or infinite.
        """
        zero = tuple(np.zeros(shape) for shape in self.shapes)
        here, there = ([np.asarray(slope) for slope in self._slopes(at)[1]] for at in (products, zero))
        if not all(np.isfinite(G).all() for G in here):
            raise NonFiniteLossError
        apart = max(float(np.max(np.abs(G - G.T))) for G in here)
        return apart / max([np.finfo(float).tiny, *(float(np.max(np.abs(G))) for G in here + there)])

    def _force(self, slopes: tuple[Array, ...]) -> Matrices:
        force = tuple(-np.ldexp(np.asarray(slope), -self.exponent) for slope in slopes)
        return tuple((G + G.T) / 2 for G in force) if self.symmetric else force

    def _slopes(self, products: Matrices) -> tuple[Array, tuple[Array, ...]]:
        return _value_and_slope(self.loss, tuple(map(jnp.asarray, products)))

    def hvp(self, products: Matrices, change: Matrices) -> Matrices:
        """Return dG(B)[change], the derivative of G in a direction.

        Raises:
            NonFiniteLossError: an entry is NaN or infinite.
        """
        slopes = _hvp(self.loss, tuple(map(jnp.asarray, products)), tuple(map(jnp.asarray, change)))
        change_of_force = self._force(slopes)
        if not all(np.isfinite(g).all() for g in change_of_force):
            raise NonFiniteLossError
        return change_of_force
