"""Oracle of a loss: L, its descent direction g and its curvature at any beta, compiled once.

L       the loss, a function of beta in R^p
g       -dL/dbeta (equation 4)
H       d^2 L / dbeta^2
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, no_type_check

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


@quickly_compiled
def _hessian(loss: AbstractLoss, beta: Float[Array, "p"]) -> Float[Array, "p p"]:
    return loss.hessian(beta)


@dataclass(frozen=True, eq=False)
class _Known:
    """Entries of g, of rows and columns of H, or whole columns of H that are known at a point."""

    beta: Float[np.ndarray, "p"]
    among: Int[np.ndarray, "m"]
    values: Float[np.ndarray, "..."]

    @classmethod
    def nothing(cls, size: int) -> "_Known":
        """Return what is known before the first point."""
        return cls(np.full(size, np.nan), np.zeros(0, np.int64), np.zeros(0))


@dataclass(frozen=True, eq=False)
class _Restricted:
    """The loss as a function of some entries, the others 0.

    Attributes:
        loss: function of a vector that may have more entries, which are 0.
        among: these entries of beta, ascending.
        places: theirs in that vector.
        value_and_gradient: of the function, compiled.
    """

    loss: Any
    among: Int[np.ndarray, "m"]
    places: Int[np.ndarray, "m"]
    value_and_gradient: Callable[[np.ndarray], tuple[Array, Array]]

    @classmethod
    def of(cls, loss: Any, among: Int[np.ndarray, "m"], places: Int[np.ndarray, "m"]) -> "_Restricted":
        """Return the loss with its compiled gradient."""
        return cls(loss, among, places, bound(_value_and_gradient, loss, count=1))

    @no_type_check
    def argument(self, beta: Float[np.ndarray, "p"]) -> Float[np.ndarray, "size"]:
        """Return the vector of a point of the face."""
        x = np.zeros(self.loss.size)
        x[self.places] = beta[self.among]
        return x

    def places_of(self, among: Int[np.ndarray, "k"]) -> Int[np.ndarray, "k"]:
        """Return the places of some of the entries."""
        return self.places[np.searchsorted(self.among, among)]


class LossOracle:
    """Oracle of L, g and H of a loss, as NumPy float64 arrays.

    An `AbstractLoss` (every `DiagonalNetwork`) compiles once for all data of the same shape and computes its
    derivatives itself; where it can be `restricted`, transitions are cheaper. No p x p matrix is formed.

    Args:
        loss: L(beta), a JAX function of an array of shape (size,).
        size: the number p of coordinates of beta.
        weight_decay: lambda, of the weights u and v.

    Raises:
        InputError: JAX is not in float64 mode, the loss cannot be called on such an array or does not return one
            float64 number, it or its gradient is not finite at 0, or its gradient jumps at 0.
    """

    def __init__(self, loss: Callable[[Array], Array], size: int, weight_decay: float = 0.0) -> None:
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
            raise InputError(f"size must be an integer of at least 1, the length of beta; got {size!r}.")
        require_float64_loss(loss, np.zeros(size), caller="incremental_learning", name="beta", twice=True)
        self.loss = as_loss(loss)
        self.size, self.decay = int(size), weight_decay
        self._gradient = self._block = self._known_columns = _Known.nothing(self.size)
        self._face: _Restricted | None = None
        self._of_loss = bound(_value_and_gradient, self.loss, count=1)
        self._whole = False  # True once the loss is known to have no cheaper form on a face
        require_start_at_zero(self._value_and_slope, self.size, "beta")

    def value_and_gradient(self, beta: Float[np.ndarray, "p"]) -> tuple[float, Float[np.ndarray, "p"]]:
        """Return L(beta) and g(beta) = -dL/dbeta.

        Raises:
            NonFiniteLossError: one of them is NaN or infinite.
        """
        value, slope = self._value_and_slope(beta)
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            raise NonFiniteLossError(float(np.max(np.abs(beta))))
        return value, -slope

    def gradient_among(self, beta: Float[np.ndarray, "p"], among: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
        """Return the entries `among` of g(beta); cheaper where the others of beta are 0 and the loss can be restricted.

        Raises:
            NonFiniteLossError: L or one of them is NaN or infinite.
        """
        known = self._gradient
        if not (np.array_equal(known.beta, beta) and np.array_equal(known.among, among)):
            known = self._gradient = _Known(beta.copy(), among, self._evaluate_among(beta, among))
        return known.values

    @no_type_check  # its caller's types are checked; integrators call both often
    def _evaluate_among(self, beta: Float[np.ndarray, "p"], among: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
        restricted = self._restricted(beta, among)
        if restricted is None:
            return self.value_and_gradient(beta)[1][among]
        value, slope = restricted.value_and_gradient(restricted.argument(beta))
        entries = np.asarray(slope)[restricted.places_of(among)]
        if not (math.isfinite(value) and np.isfinite(entries).all()):
            raise NonFiniteLossError(float(np.max(np.abs(beta))))
        return -entries

    def hessian(self, beta: Float[np.ndarray, "p"], among: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m m"]:
        """Return the rows and columns `among` of H(beta); cheaper where the other entries of beta are 0, as above.

        Raises:
            NonFiniteLossError: an entry is NaN or infinite.
        """
        restricted = self._restricted(beta, among)
        if restricted is None:
            return self._finite(self._columns(beta, among)[among], beta)
        known = self._block
        if not (np.array_equal(known.beta, beta) and np.isin(among, known.among).all()):
            ascending = np.unique(among)
            H = np.asarray(_hessian(restricted.loss, jnp.asarray(restricted.argument(beta))))
            places = restricted.places_of(ascending)
            known = self._block = _Known(beta.copy(), ascending, H[np.ix_(places, places)])
        order = np.searchsorted(known.among, among)
        return self._finite(known.values[np.ix_(order, order)], beta)

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

    def _restricted(self, beta: Float[np.ndarray, "p"], among: Int[np.ndarray, "m"]) -> _Restricted | None:
        """Return the loss on a face of these entries or more; None if beta is not on it, or there is no such method."""
        on_face = np.count_nonzero(beta) == np.count_nonzero(beta[among])
        if self._whole or not (among.size and on_face):
            return None
        face = self._face
        if face is None or not (np.array_equal(among, face.among) or np.isin(among, face.among).all()):
            entries = np.unique(among)
            restricted = self.loss.restricted(entries)
            if restricted is None:
                self._whole = True
                return None
            face = self._face = _Restricted.of(restricted[0], entries, restricted[1])
        return face

    def _columns(self, beta: Float[np.ndarray, "p"], among: Int[np.ndarray, "m"]) -> Float[np.ndarray, "p m"]:
        # The end of a transition is the start of the next one: the same point with one column more.
        known = self._known_columns
        if not np.array_equal(known.beta, beta):
            known = _Known(beta.copy(), known.among[:0], np.zeros((self.size, 0)))
        missing = np.setdiff1d(among, known.among)
        if missing.size:
            new = self._evaluate_columns(beta, missing)
            known = _Known(known.beta, np.append(known.among, missing), np.append(known.values, new, axis=1))
        self._known_columns = known
        order = np.argsort(known.among)
        return known.values[:, order[np.searchsorted(known.among, among, sorter=order)]]

    def _evaluate_columns(
        self, beta: Float[np.ndarray, "p"], columns: Int[np.ndarray, "m"]
    ) -> Float[np.ndarray, "p m"]:
        # Few shapes, since each is compiled: the next power of two, padded with a repeated column.
        size = min(self.size, 1 << (columns.size - 1).bit_length())
        padded = np.append(columns, np.full(size - columns.size, columns[0]))
        return np.asarray(_hessian_columns(self.loss, jnp.asarray(beta), jnp.asarray(padded)))[:, : columns.size]
