"""Oracle of a loss: L, its descent direction g and its curvature at any beta, compiled once.

L       the loss, a function of beta in R^p
g       -dL/dbeta (equation 4)
H       d^2 L / dbeta^2
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from saddlescope._shared.compiled_functions import bound, compiled, quickly_compiled
from saddlescope._shared.errors import InputError
from saddlescope.loss.abstract_loss import AbstractLoss, as_loss
from saddlescope.loss.checks import require_float64_loss, require_start_at_zero


class NonFiniteLossError(Exception):
    """Loss, gradient or Hessian that is NaN or infinite at some beta.

    Attributes:
        size: the largest |beta_i| there.
    """

    def __init__(self, size: float) -> None:
        super().__init__(f"not finite where the largest |beta| is {size:.3g}")
        self.size = size


@compiled
def _value_and_gradient(loss: AbstractLoss, beta: Float[Array, "p"]) -> tuple[Array, Array]:
    return loss.value_and_gradient(beta)


@quickly_compiled
def _hessian_columns(loss: AbstractLoss, beta: Float[Array, "p"], columns: Int[Array, "m"]) -> Float[Array, "p m"]:
    return loss.hessian_columns(beta, columns)


@dataclass(frozen=True, eq=False)
class _Known:
    """Columns of H computed at a point."""

    beta: Float[np.ndarray, "p"]
    columns: Int[np.ndarray, "m"]
    values: Float[np.ndarray, "p m"]


@dataclass(frozen=True, eq=False)
class _KnownSlope:
    """L and dL/dbeta computed at a point."""

    beta: Float[np.ndarray, "p"]
    value: float
    slope: Float[np.ndarray, "p"]


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
        self._last = _Known(nowhere, np.zeros(0, np.int64), np.zeros((self.size, 0)))
        self._latest = _KnownSlope(nowhere, np.nan, nowhere)
        self._of_loss = bound(_value_and_gradient, self.loss, count=1)
        require_start_at_zero(self._value_and_slope, self.size, "beta")

    def value_and_gradient(self, beta: Float[np.ndarray, "p"]) -> tuple[float, Float[np.ndarray, "p"]]:
        """Return L(beta) and g(beta) = -dL/dbeta.

        Raises:
            NonFiniteLossError: one of them is NaN or infinite.
        """
        known = self._latest
        if not np.array_equal(known.beta, beta):  # integrators ask for a point again
            value, slope = self._value_and_slope(beta)
            if not (math.isfinite(value) and np.isfinite(slope).all()):
                raise NonFiniteLossError(float(np.max(np.abs(beta))))
            known = self._latest = _KnownSlope(beta.copy(), value, slope)
        return known.value, -known.slope

    def gradient_among(self, beta: Float[np.ndarray, "p"], among: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
        """Return the entries `among` of g(beta).

        Raises:
            NonFiniteLossError: L or an entry of g is NaN or infinite.
        """
        return self.value_and_gradient(beta)[1][among]

    def hessian(self, beta: Float[np.ndarray, "p"], among: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m m"]:
        """Return the rows and columns `among` of H(beta).

        Raises:
            NonFiniteLossError: an entry is NaN or infinite.
        """
        return self._finite(self._columns(beta, among)[among], beta)

    def hessian_columns(self, beta: Float[np.ndarray, "p"], among: Int[np.ndarray, "m"]) -> Float[np.ndarray, "p m"]:
        """Return the columns `among` of H(beta), all rows.

        Raises:
            NonFiniteLossError: an entry is NaN or infinite.
        """
        return self._finite(self._columns(beta, among), beta)

    def _finite(self, H: Float[np.ndarray, "n m"], beta: Float[np.ndarray, "p"]) -> Float[np.ndarray, "n m"]:
        if not np.all(np.isfinite(H)):
            raise NonFiniteLossError(float(np.max(np.abs(beta))))
        return H

    def _value_and_slope(self, beta: Float[np.ndarray, "p"]) -> tuple[float, Float[np.ndarray, "p"]]:
        value, slope = self._of_loss(beta)
        return float(value), np.asarray(slope)

    def _columns(self, beta: Float[np.ndarray, "p"], among: Int[np.ndarray, "m"]) -> Float[np.ndarray, "p m"]:
        # The end of a transition is the start of the next one: the same point with one column more.
        if not np.array_equal(self._last.beta, beta):
            self._last = _Known(beta.copy(), np.zeros(0, np.int64), np.zeros((self.size, 0)))
        known = self._last
        missing = np.setdiff1d(among, known.columns)
        if missing.size:
            new = self._evaluate_columns(beta, missing)
            known = _Known(known.beta, np.append(known.columns, missing), np.append(known.values, new, axis=1))
            self._last = known
        order = np.argsort(known.columns)
        return known.values[:, order[np.searchsorted(known.columns, among, sorter=order)]]

    def _evaluate_columns(
        self, beta: Float[np.ndarray, "p"], columns: Int[np.ndarray, "m"]
    ) -> Float[np.ndarray, "p m"]:
        # Few shapes, since each is compiled: the next power of two, padded with a repeated column.
        size = min(self.size, 1 << (columns.size - 1).bit_length())
        padded = np.append(columns, np.full(size - columns.size, columns[0]))
        return np.asarray(_hessian_columns(self.loss, jnp.asarray(beta), jnp.asarray(padded)))[:, : columns.size]
