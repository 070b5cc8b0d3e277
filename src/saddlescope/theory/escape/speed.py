"""Escape speed of a network at the saddle at the origin, and the validation of inputs, gradients and weights.

A saddle is given by its inputs (N, d_in) and the loss gradients (N, d_out) at the zero output, a row per sample. The
formulas are those of the paper, with a column per sample: X (d_in, N) and G (d_out, N) are their transposes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import require_samples_as_rows, validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.real_arrays import real_array
from saddlescope._shared.reprs import ReprMixin
from saddlescope.models.deep import require_chain

Matrix = Float[np.ndarray, "_ _"]
Network = tuple[Float[np.ndarray, "_ _"], ...]
"""W_1, ..., W_L in NumPy's float64."""

_LARGEST = 1e140  # of an entry


@dataclass(frozen=True, repr=False)
class CertifiedSpeed(ReprMixin):
    """Bounds on the largest escape speed of a saddle, over networks of some depth and kind.

    Attributes:
        lower: speed of `weights`, evaluated on the data.
        upper: no network of the kind is faster, up to rounding.
        weights: W_1, ..., W_L with |theta|^2 = L that attain `lower`.
        programs: number of cone programs solved; 0 where the bounds are in closed form.
    """

    lower: float
    upper: float
    weights: Network
    programs: int = 0


@validate_arguments
def escape_speed(weights: Sequence[ArrayLike], inputs: ArrayLike, gradients: ArrayLike) -> float:
    """Return -L_0(theta) = -Tr[G^T Y_theta(X)] of a network, without rescaling its weights.

    It is the escape speed s of Definition 2.1 where |theta|^2 = L and theta is an escape direction. `on_sphere`
    rescales weights to |theta|^2 = L, which multiplies the value by (L / |theta|^2)^(L/2).

    Args:
        weights: W_1, ..., W_L, at least two, each (n_l, n_{l-1}) with n_0 = d_in and n_L = d_out.
        inputs: (N, d_in).
        gradients: (N, d_out).

    Raises:
        InputError: inputs, gradients or weights are invalid, see `validate_saddle` and `validate_weights`.
    """
    X, G = validate_saddle(inputs, gradients)
    return speed_of(validate_weights(weights, X, G), X, G)


def speed_of(weights: Network, X: Matrix, G: Matrix) -> float:
    """Return the speed for valid weights, X (d_in, N) and G (d_out, N)."""
    hidden = X
    *lower, last = weights
    for weight in lower:
        hidden = np.maximum(weight @ hidden, 0.0)
    return -float(np.sum(G * (last @ hidden)))


@validate_arguments
def on_sphere(weights: Sequence[ArrayLike]) -> Network:
    """Rescale weights by one factor to |theta|^2 = L, the norm of an escape direction (Definition 2.1).

    Args:
        weights: W_1, ..., W_L, not all 0.

    Raises:
        InputError: their shapes do not chain, or they are all 0 or not finite.
    """
    arrays = [real_array("weights", weight) for weight in weights]
    require_chain(tuple(arrays), stacked=False)
    largest = max((float(np.abs(array).max(initial=0.0)) for array in arrays), default=0.0)
    if not 0 < largest < np.inf:
        raise InputError(f"weights must be finite and not all 0; got {largest!r} as their largest entry.")
    unit = [array / largest for array in arrays]  # so that no square over- or underflows
    factor = np.sqrt(len(unit) / sum(np.sum(array**2) for array in unit))
    return tuple(factor * array for array in unit)


def validate_saddle(inputs: ArrayLike, gradients: ArrayLike, *, name: str = "gradients") -> tuple[Matrix, Matrix]:
    """Return X (d_in, N) and G (d_out, N) in float64, a column per sample.

    Args:
        inputs: (N, d_in), a row per sample.
        gradients: (N, d_out), the loss gradients at the zero output.
        name: the caller's name of the gradients, such as "targets".

    Raises:
        InputError: they are no matrices with equally many rows, have entries that are NaN or infinite, or either is 0:
            the origin is then no saddle of this kind, since the loss has no term of degree L there; or their squares
            leave float64's range.
    """
    arrays = []
    for called, given, columns in (("inputs", inputs, "d_in"), (name, gradients, "d_out")):
        array = real_array(called, given)
        if array.ndim != 2 or 0 in array.shape:
            raise InputError(f"{called} must have shape (N, {columns}), a row per sample; got {array.shape!r}.")
        arrays.append(array)
    require_samples_as_rows("inputs", arrays[0], name, arrays[1])
    X, G = arrays[0].T, arrays[1].T
    for called, array in ((name, G), ("inputs", X)):
        if not array.any():
            raise InputError(
                f"{called} must not all be 0; got {array.size!r} zeros: the origin is then no saddle of this kind."
            )
        largest = float(np.abs(array).max())
        if not 1 / _LARGEST <= largest <= _LARGEST:
            raise InputError(
                f"{called} must have a largest entry between {1 / _LARGEST:g} and {_LARGEST:g}, so that squares fit "
                f"float64; got {largest!r}. Rescale them: speeds scale with them."
            )
    return X, G


def validate_depth(depth: int) -> int:
    """Return the depth L, at least 2.

    Raises:
        InputError: it is no integer, or below 2.
    """
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 2:
        raise InputError(f"depth must be an integer of at least 2; got {depth!r}.")
    return depth


def validate_widths(widths: int | Sequence[int]) -> tuple[int, ...]:
    """Return the hidden widths, each at least 1; one integer is a sequence of one.

    Raises:
        InputError: the sequence is empty, or a width is no integer or below 1.
    """
    given = (widths,) if isinstance(widths, int) else tuple(widths)
    if not given or not all(isinstance(width, int) and width >= 1 for width in given):
        raise InputError(f"widths must be integers of at least 1, such as 8 or (4, 8); got {widths!r}.")
    return given


def validate_weights(weights: Sequence[ArrayLike], X: Matrix, G: Matrix) -> Network:
    """Return W_1, ..., W_L in float64, with shapes that match X (d_in, N) and G (d_out, N).

    Raises:
        InputError: they are fewer than two, do not match each other, X and G, or are not finite.
    """
    if len(weights) < 2:
        raise InputError(f"weights must be W_1, ..., W_L with a depth L of at least 2; got {len(weights)!r}.")
    arrays = tuple(real_array(f"W_{layer} of weights", weight) for layer, weight in enumerate(weights, 1))
    shapes = [array.shape for array in arrays]
    widths = [len(X), *(shape[0] if shape else 0 for shape in shapes)]
    if widths[-1] != len(G) or any(
        shape != (out, into) for shape, into, out in zip(shapes, widths[:-1], widths[1:], strict=True)
    ):
        raise InputError(
            f"weights must map d_in = {len(X)} to d_out = {len(G)}, each W_l of shape (n_l, n_(l-1)); "
            f"got shapes {shapes!r}."
        )
    return arrays
