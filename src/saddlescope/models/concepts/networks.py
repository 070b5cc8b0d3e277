"""Networks that learn the identity map, on samples or on infinitely many: maps, initial weights and losses.

    W       the map, f(x) = W x in a linear network; E = W - I its error
    U       weights (d, d') of the symmetric two-layer network f(x) = U U^T x, any width d'
    A       second moment of the inputs; X samples, (N, d)

Two conventions of the loss are in use, and the time of gradient flow depends on the choice:

    sum over dimensions     |f(X) - X|_F^2 / (2 N), equation 2.1; its mean over infinitely many samples is
                            tr(E A E^T) / 2 = |E A^(1/2)|_F^2 / 2, equation 4.1
    mean over dimensions    |f(X) - X|_F^2 / (N d), the mean squared error of deep-learning libraries, which the paper's
                            learning curves fit: 2/d times the first

Gradient flow of equation 4.1 is dW/dt = -E A in one layer, and dU/dt = -(A E + E A) U in the symmetric network. There
the paper's equations 4.3 and D.2 drop a factor 2: its time is 2 t.

Yang, Park, Lubana, Okawa, Hu and Tanaka (2024), "Dynamics of concept learning and compositional generalization".
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import require, validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import in_float64
from saddlescope.loss.abstract_loss import AbstractLoss
from saddlescope.models.deep import LayeredLoss, Weights, half_squared_error, require_chain

_LARGEST_LOG_SCALE = 700.0  # e^700 and e^-700 are float64 numbers


@validate_arguments
def symmetric_map(weights: Float[Any, "*starts d width"]) -> Float[Any, "*starts d d"]:
    """Return the map W = U U^T of the symmetric two-layer network."""
    return weights @ weights.swapaxes(-1, -2)


@validate_arguments
def layered_map(weights: Weights) -> Float[Any, "out into"]:
    """Return the map W = W_L ... W_1 of a linear network of any depth L >= 1.

    Raises:
        InputError: shapes of successive weights that do not match.
    """
    require_chain(weights)
    product = weights[0]
    for weight in weights[1:]:
        product = weight @ product
    return product


def _array(name: str) -> Callable[[Any], Array]:
    """Return a converter of a field of this name to a JAX array, which raises unless the numbers are real."""

    def convert(given: Any) -> Array:
        require(name, given, ArrayLike)
        return jnp.asarray(given)

    return convert


class PopulationLoss(AbstractLoss):
    """Loss of linear networks on infinitely many samples, as a function of the map W, of U, or of W_1, ..., W_L.

    Attributes:
        second_moment: A, symmetric and positive semidefinite, (d, d).
        mean_over_dimensions: False for equation 4.1; True for 2/d times it.

    Raises:
        InputError: A is not a finite, symmetric, positive semidefinite matrix.
    """

    second_moment: Float[Any, "..."] = eqx.field(converter=_array("second_moment"))
    mean_over_dimensions: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        symmetric_factor(np.asarray(self.second_moment), name="second_moment")

    def __call__(self, W: Float[Any, "d d"]) -> Float[Array, ""]:
        """Return the loss of the one-layer network f(x) = W x."""
        E = W - jnp.eye(W.shape[-1], dtype=W.dtype)
        loss = jnp.sum((E @ self.second_moment) * E) / 2
        return loss * (2 / W.shape[-1]) if self.mean_over_dimensions else loss

    def largest_learning_rate(self, W: Float[Any, "d d"]) -> float:
        """Return the learning rate beyond which descent in W diverges.

        It is 2 / lambda_max(A), and d/2 times that for the mean over dimensions.
        """
        top = float(np.linalg.eigvalsh(np.asarray(self.second_moment))[-1])
        unit = 2 / len(self.second_moment) if self.mean_over_dimensions else 1.0
        return 2 / (top * unit) if top > 0 else float("inf")

    def symmetric(self, U: Float[Any, "d width"]) -> Float[Array, ""]:
        """Return the loss of the symmetric two-layer network."""
        return self(symmetric_map(U))

    def layered(self, weights: Weights) -> Float[Array, ""]:
        """Return the loss of the deep linear network."""
        return self(layered_map(weights))


@validate_arguments
def identity_loss(
    inputs: Float[Any, "N d"],
    *,
    cost: Callable[[Array, Array], Array] = half_squared_error,
    relu: bool = False,
) -> LayeredLoss:
    """Return the loss of a deep network that learns to map samples to themselves; one weight, (W,), is one layer.

    Args:
        inputs: X, (N, d), as `StructuredIdentityTask.draw` returns them.
        cost: `half_squared_error` for equation 2.1, or `squared_error`, which also takes the mean over dimensions.
        relu: True for a ReLU network.

    Raises:
        InputError: inputs that are not a finite matrix with at least one row.
    """
    return LayeredLoss(inputs, inputs, cost, relu)


@in_float64
@validate_arguments
def symmetric_weights(
    dim: int,
    width: int,
    *,
    seed: int,
    log_scale: float,
    law: Literal["normal", "uniform"] = "normal",
    num_starts: int | None = None,
    dtype: Any = None,
) -> Float[Array, "..."]:
    """Draw independent random entries of U, (d, d').

    Args:
        dim: d, at least 1.
        width: d', at least 1; below d, W = U U^T cannot become the identity.
        seed: of the draw.
        log_scale: natural logarithm of the standard deviation of the normal law, or of the end of the uniform one.
        law: "normal" with mean 0; or "uniform" from 0 to the scale, as in the authors' code, which makes W positive.
        num_starts: number of networks, along a leading axis; None: one, without that axis.
        dtype: by default float64.

    Raises:
        InputError: a dimension, width or number of starts below 1, a scale that float64 cannot hold, or another law.
    """
    for name, value in (("dim", dim), ("width", width), ("num_starts", 1 if num_starts is None else num_starts)):
        if value < 1:
            raise InputError(f"{name} must be at least 1; got {value!r}.")
    if not abs(log_scale) <= _LARGEST_LOG_SCALE:
        raise InputError(f"log_scale must be between +-{_LARGEST_LOG_SCALE:g}; got {log_scale!r}. Use math.log(scale).")
    if law not in ("normal", "uniform"):
        raise InputError(f"law must be 'normal' or 'uniform'; got {law!r}.")
    shape = (dim, width) if num_starts is None else (num_starts, dim, width)
    draw = jax.random.normal if law == "normal" else jax.random.uniform
    return math.exp(log_scale) * draw(jax.random.key(seed), shape, float if dtype is None else dtype)


@validate_arguments
def symmetric_factor(W: ArrayLike, *, name: str = "W") -> Float[np.ndarray, "d d"]:
    """Return a factor U, (d, d), with U U^T = W: weights of a symmetric network with the initial map W.

    Rows are first scaled to one size, so that entries of very different sizes keep their digits. Columns belong to the
    eigenvalues of the scaled matrix, ascending; eigenvalues within rounding of 0 are set to exactly 0.

    Args:
        W: symmetric and positive semidefinite, (d, d).
        name: of the argument, for the error message.

    Raises:
        InputError: W is not a finite square matrix, not symmetric, or not positive semidefinite, so that no U exists.
    """
    require(name, W, ArrayLike)
    given = np.asarray(W)
    if given.ndim != 2 or given.shape[0] != given.shape[1] or given.size == 0:
        raise InputError(f"{name} must have shape (d, d); got {given.shape!r}.")
    rounding = 4 * len(given) * float(np.finfo(given.dtype if given.dtype.kind == "f" else float).eps)
    tolerance = max(1e-10, rounding)
    W = given.astype(float)
    if not np.all(np.isfinite(W)):
        raise InputError(f"{name} must be finite; got {int(np.sum(~np.isfinite(W)))!r} entries that are not.")
    sizes = np.sqrt(np.maximum(np.diag(W), 0.0))
    units = np.where(sizes > 0, sizes, 1.0)
    scaled = W / units[:, None] / units[None, :]
    if not np.all(np.abs(scaled - scaled.T) <= tolerance):
        raise InputError(
            f"{name} must be symmetric, as U U^T is; got one that differs from its transpose by "
            f"{float(np.max(np.abs(W - W.T)))!r}. Pass (W + W.T) / 2, or U."
        )
    values, vectors = np.linalg.eigh((scaled + scaled.T) / 2)
    if np.any(np.diag(W) < 0) or values[0] < -tolerance or np.any(scaled[sizes == 0] != 0):
        raise InputError(
            f"{name} must be positive semidefinite, since otherwise no U has U U^T = {name}; got one with "
            f"the eigenvalue {float(np.linalg.eigvalsh((W + W.T) / 2)[0])!r}."
        )
    return sizes[:, None] * vectors * np.sqrt(np.where(values > rounding, values, 0.0))
