"""First and second order of the update of a product: its spectrum if one factor moves at a time, and the joint rest.

    L R^T - L0 R0^T = (D R0^T + L0 E^T) + D E^T,    D = L - L0, E = R - R0

The first order is linear in the updates of the factors, and dominates while these are small; the second has at most the
rank of a factor. Notation and noise floors are those of `saddlescope.measure.spectrum`.
"""

from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.measure.arrays import Library, Stored, in_pieces
from saddlescope.measure.spectrum import (
    Factors,
    Spectrum,
    check_top,
    finite_spectrum,
    norms,
    rounding_times,
    take_update,
)
from saddlescope.measure.squares import BEFORE, MOVED


@dataclass(frozen=True, repr=False)
class UpdateOrders(ReprMixin):
    """Spectra of the two parts of the update of a product.

    Attributes:
        first: of (L - L0) R0^T + L0 (R - R0)^T.
        second: of (L - L0) (R - R0)^T.
    """

    first: Spectrum
    second: Spectrum


@validate_arguments
def product_update_orders(
    left: Any, right: Any, left0: Any, right0: Any, *, top: int | None = None, report: Report = silent
) -> UpdateOrders:
    """Return the singular values of the first and the second order of L R^T - L0 R0^T.

    Args:
        left: L, (..., d, h), such as W_K of each head after training.
        right: R, (..., d2, h), such as W_Q of each head.
        left0: L0, of the shape of `left`, before training.
        right0: R0, of the shape of `right`.
        top: number of the largest values to return; None returns all.
        report: called after each block of matrices with the fraction done and a note.

    Returns:
        Values (..., min(d, d2, 2h)) of the first order, (..., min(d, d2, h)) of the second, and noise floors, as in
        `product_update_spectrum`.

    Raises:
        InputError: as `product_update_spectrum`.

    >>> import numpy as np
    >>> zero, one = np.zeros((3, 1)), np.ones((3, 1))
    >>> found = product_update_orders(2 * one, 3 * one, one, one)
    >>> found.first.values.round(12), found.second.values.round(12)
    (array([9., 0.]), array([6.]))
    """
    check_top(top)
    library, factors = take_update(left, right, left0, right0)
    first, noise, second, noise_of_second = in_pieces(library, partial(_orders, library), factors, report=report)
    return UpdateOrders(finite_spectrum(first[..., :top], noise), finite_spectrum(second[..., :top], noise_of_second))


def _orders(library: Library, L: Stored, R: Stored, L0: Stored, R0: Stored) -> tuple[Any, Any, Any, Any]:
    """Return values and noise floor of the first order, then of the second, with A = [D, L0] and B = [R0, E]."""
    xp, h = library.xp, L.array.shape[-1]
    both = Factors.of(library, [L, L0], [R, R0], (MOVED, BEFORE), (BEFORE, MOVED))
    (DD, mixed_L, LL0), (RR0, mixed_R, EE) = (_blocks(xp, squares, h) for squares in (both.G_A, both.G_B))
    LL, RR = DD + LL0 + mixed_L, EE + RR0 + mixed_R
    # By the rounding of each factor: the derivative of the first order, then of the second.
    companions = (
        ((L, LL, RR0), (R, RR, LL0), (L0, LL0, RR0 + EE - mixed_R), (R0, RR0, LL0 + DD - mixed_L)),
        ((L, LL, EE), (R, RR, DD), (L0, LL0, EE), (R0, RR0, DD)),
    )
    found = []
    for part, roundings in zip((both, both.columns(slice(None, h), slice(h, None))), companions, strict=True):
        values, error = part.spectrum()
        noise = reduce(
            xp.hypot, [error, *(rounding_times(X, norms(xp, own), norms(xp, other)) for X, own, other in roundings)]
        )
        found += [values * both.unit[:, None], noise * both.unit]
    return tuple(found)  # type: ignore[return-value]


def _blocks(xp: Any, squares: Any, h: int) -> tuple[Any, Any, Any]:
    """Return the diagonal blocks of X^T X of two blocks of h columns, with the sum of the others between them."""
    across = squares[..., :h, h:]
    return squares[..., :h, :h], across + xp.matrix_transpose(across), squares[..., h:, h:]
