"""Oracle of a loss: L, its descent direction g and its curvature at any beta, compiled once.

L       the loss, a function of beta in R^p
g       -dL/dbeta (equation 4)
H       d^2 L / dbeta^2
"""

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from saddlescope._shared.compiled_functions import bound, compiled, quickly_compiled
from saddlescope._shared.errors import InputError
from saddlescope.loss.abstract_loss import AbstractLoss, as_loss
from saddlescope.loss.checks import require_float64_loss, require_start_at_zero
from saddlescope.theory.saddle.path import NonFiniteLossError


@compiled
def _value_and_gradient(loss: AbstractLoss, beta: Float[Array, "p"]) -> tuple[Array, Array]:
    return loss.value_and_gradient(beta)


@quickly_compiled
def _hessian_columns(loss: AbstractLoss, beta: Float[Array, "p"], columns: Int[Array, "m"]) -> Float[Array, "p m"]:
    return loss.hessian_columns(beta, columns)


class LossOracle:
    """Oracle of L, g and H of a loss, as NumPy float64 arrays.

    An `AbstractLoss` (every `DiagonalNetwork`) compiles once for all data of the same shape and computes its
    derivatives itself. No p x p matrix is formed.

    Args:
        loss: L(beta), a JAX function of an array of shape (size,).
        size: the number p of coordinates of beta.
        weight_decay: lambda, of the weights u and v.

    Raises:
        InputError: the loss cannot be called on such an array or does not return one
            float64 number, it or its gradient is not finite at 0, or its gradient jumps at 0.
    """

    def __init__(self, loss: Callable[[Array], Array], size: int, weight_decay: float = 0.0) -> None:
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
            raise InputError(f"size must be an integer of at least 1, the length of beta; got {size!r}.")
        require_float64_loss(loss, np.zeros(size), name="beta", twice=True)
        self.loss = as_loss(loss)
        self.size, self.decay = int(size), weight_decay
        nowhere = np.full(self.size, np.nan)
        self._at, self._value, self._gradient = nowhere, np.nan, nowhere  # where L and g were computed last
        self._columns_at, self._columns = nowhere, {}  # and where columns of H, by number
        self._of_loss = bound(_value_and_gradient, self.loss, count=1)
        require_start_at_zero(self._value_and_slope, self.size, "beta")

    def value_and_gradient(self, beta: Float[np.ndarray, "p"]) -> tuple[float, Float[np.ndarray, "p"]]:
        """Return L(beta) and g(beta) = -dL/dbeta.

        Raises:
            NonFiniteLossError: one of them is NaN or infinite.
        """
        if not np.array_equal(self._at, beta):  # integrators ask for a point again
            value, slope = self._value_and_slope(beta)
            if not (math.isfinite(value) and np.isfinite(slope).all()):
                raise NonFiniteLossError(float(np.max(np.abs(beta))))
            self._at, self._value, self._gradient = beta.copy(), value, -slope
        return self._value, self._gradient.copy()

    def hessian_columns(
        self, beta: Float[np.ndarray, "p"], among: Int[np.ndarray, "m"], rows: Int[np.ndarray, "n"] | None = None
    ) -> Float[np.ndarray, "n m"]:
        """Return the columns `among` of H(beta), all rows or some.

        Raises:
            NonFiniteLossError: an entry is NaN or infinite.
        """
        if not np.array_equal(self._columns_at, beta):
            self._columns_at, self._columns = beta.copy(), {}
        # The end of a transition is the start of the next one: the same point with one column more.
        missing = np.array([i for i in among.tolist() if i not in self._columns], np.int64)
        if missing.size:
            self._columns |= zip(missing.tolist(), self._evaluate_columns(beta, missing).T, strict=True)
        H = np.array([self._columns[i] for i in among.tolist()]).reshape(among.size, self.size).T
        H = H if rows is None else H[rows]
        if not np.all(np.isfinite(H)):
            raise NonFiniteLossError(float(np.max(np.abs(beta))))
        return H

    def _value_and_slope(self, beta: Float[np.ndarray, "p"]) -> tuple[float, Float[np.ndarray, "p"]]:
        value, slope = self._of_loss(beta)
        return float(value), np.asarray(slope)

    def _evaluate_columns(
        self, beta: Float[np.ndarray, "p"], columns: Int[np.ndarray, "m"]
    ) -> Float[np.ndarray, "p m"]:
        # Few shapes, since each is compiled: the next power of two, padded with a repeated column.
        size = min(self.size, 1 << (columns.size - 1).bit_length())
        padded = np.append(columns, np.full(size - columns.size, columns[0]))
        return np.asarray(_hessian_columns(self.loss, jnp.asarray(beta), jnp.asarray(padded)))[:, : columns.size]
