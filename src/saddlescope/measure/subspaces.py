"""Leading singular subspaces of a matrix, and principal angles between subspaces.

L, R, L0, R0    factors of a product L R^T now and before, as in `saddlescope.measure.spectrum`
U, V            (..., d, k) and (..., d2, k), orthonormal columns: leading left and right singular vectors of
                L R^T - L0 R0^T
theta           principal angles between two subspaces of dimension k: cos(theta) are the singular values of U1^T U2
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import array_api_compat
from jaxtyping import Float

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.measure.arrays import Library, Stored, in_pieces, normalised, require_finite, take, upcast
from saddlescope.measure.spectrum import take_update


@dataclass(frozen=True, repr=False)
class Subspaces(ReprMixin):
    """Leading singular subspaces of a matrix.

    Attributes:
        left: U, (..., d, k); column i belongs to the i-th largest singular value. Signs are arbitrary, and so is the
            basis for equal and for zero singular values.
        right: V, (..., d2, k), so that the best approximation of rank k is U diag(values) V^T.
        values: the k largest singular values (..., k), descending.
    """

    left: Any
    right: Any
    values: Any


@validate_arguments
def product_update_subspaces(
    left: Any, right: Any, left0: Any, right0: Any, *, k: int, report: Report = silent
) -> Subspaces:
    """Return the leading singular subspaces of L R^T - L0 R0^T, from [L - L0, L0] [R, R - R0]^T, never d x d2.

    Args:
        left: L, (..., d, h), such as W_K of each head after training.
        right: R, (..., d2, h), such as W_Q of each head.
        left0: L0, of the shape of `left`, before training.
        right0: R0, of the shape of `right`.
        k: dimension of the subspaces, at most min(d, d2, 2h).
        report: called after each block of matrices with the fraction done and a note.

    Returns:
        Bases and values in float64 (float32 if the library has no float64).

    Raises:
        InputError: as `product_update_spectrum`, or k out of range.

    >>> import numpy as np
    >>> zero, one = np.zeros((4, 1)), np.ones((4, 1))
    >>> abs(product_update_subspaces(one, one, zero, zero, k=1).left[:, 0]).round(12)
    array([0.5, 0.5, 0.5, 0.5])
    """
    library, factors = take_update(left, right, left0, right0)
    L, R, *_ = factors
    most = min(L.array.shape[-2], R.array.shape[-2], 2 * L.array.shape[-1])
    if not 1 <= k <= most:
        raise InputError(f"k must be from 1 to {most}, the largest rank the update can have; got {k!r}.")

    def compute(*factors: Stored) -> tuple[Any, ...]:
        return _leading(library, *(upcast(library, one) for one in factors), k=k)

    left, right, values = in_pieces(library, compute, factors, report=report)
    require_finite(array_api_compat.array_namespace(values), values)
    return Subspaces(left, right, values)


def _leading(library: Library, L: Any, R: Any, L0: Any, R0: Any, *, k: int) -> tuple[Any, Any, Any]:
    """Return U, V and values by two QR factorisations and an SVD of at most 2h x 2h; one batch axis."""
    xp = library.xp
    A, a = normalised(xp, xp.concat([L - L0, L0], axis=-1))
    B, b = normalised(xp, xp.concat([R, R - R0], axis=-1))
    A, B = A * xp.sqrt(a), B * xp.sqrt(b)  # of similar size
    basis_A, triangle_A = xp.linalg.qr(A)
    basis_M, triangle_M = xp.linalg.qr(B @ xp.matrix_transpose(triangle_A))  # A B^T = basis_A M^T
    right, values, left = xp.linalg.svd(triangle_M, full_matrices=False)
    unit = (xp.sqrt(a) * xp.sqrt(b))[:, 0]
    return basis_A @ xp.matrix_transpose(left)[..., :k], basis_M @ right[..., :k], values[:, :k] * unit


def principal_angles(first: Any, second: Any) -> Float[Any, "..."]:
    """Return the principal angles between two subspaces; Björck and Golub 1973.

    An angle is 0 for a shared direction and pi/2 for an orthogonal one. Small angles are computed from their sines,
    large ones from their cosines: cosines alone cannot distinguish 1e-8 from 0.

    Args:
        first: an orthonormal basis in columns, (..., d, k), such as `Subspaces.left`.
        second: another, (..., d, l).

    Returns:
        (..., min(k, l)) in radians, ascending.

    Raises:
        InputError: not floating-point arrays, shapes that do not match, or columns that are not orthonormal.

    >>> import numpy as np
    >>> np.degrees(principal_angles(np.eye(3)[:, :2], np.eye(3)[:, 1:])).round(12)
    array([ 0., 90.])
    """
    library, X, Y = _two_bases(first, second)
    xp = library.xp
    if X.shape[-1] < Y.shape[-1]:
        X, Y = Y, X  # the residual is that of the smaller basis: each of its directions has an angle
    across = xp.matrix_transpose(X) @ Y
    cosines = xp.linalg.svdvals(across)
    sines = xp.flip(xp.linalg.svdvals(Y - X @ across), axis=-1)
    one_ = xp.ones_like(sines)
    by_sine = xp.asin(xp.minimum(sines, one_))
    by_cosine = xp.acos(xp.minimum(cosines, one_))
    return library.give_back(xp.where(cosines**2 > 0.5, by_sine, by_cosine))


def subspace_overlap(first: Any, second: Any) -> Float[Any, "..."]:
    """Return the overlap |X^T Y|_F^2 / min(k, l) of two subspaces.

    It is the mean of cos(theta)^2 over their principal angles: 1 if one contains the other and 0 if they are
    orthogonal. Two random subspaces of R^d have max(k, l) / d on average.

    Args:
        first: X, an orthonormal basis in columns, (..., d, k), such as `Subspaces.left`.
        second: Y, another, (..., d, l).

    Returns:
        (...), from 0 to 1.

    Raises:
        InputError: as `principal_angles`.

    >>> import numpy as np
    >>> float(subspace_overlap(np.eye(3)[:, :2], np.eye(3)[:, 1:]))
    0.5
    """
    library, X, Y = _two_bases(first, second)
    across = library.xp.matrix_transpose(X) @ Y
    return library.give_back(library.xp.sum(across * across, axis=(-2, -1)) / min(X.shape[-1], Y.shape[-1]))


def _two_bases(first: Any, second: Any) -> tuple[Library, Any, Any]:
    """Return two orthonormal bases of subspaces of one space in wide type."""
    library, (one, other) = take(axes=2, first=first, second=second)
    shape = tuple(one.array.shape)
    if tuple(other.array.shape)[:-1] != shape[:-1]:
        raise InputError(f"second must have the shape of first, {shape!r}, but for the last axis; "
                         f"got {tuple(other.array.shape)!r}.")  # fmt: skip
    X, Y = upcast(library, one), upcast(library, other)
    for name, basis in (("first", X), ("second", Y)):
        _check_orthonormal(library.xp, name, basis)
    return library, X, Y


def _check_orthonormal(xp: ModuleType, name: str, basis: Any) -> None:
    squares = xp.matrix_transpose(basis) @ basis
    error = float(xp.max(xp.abs(squares - xp.eye(basis.shape[-1], dtype=basis.dtype))))
    if not error < 1e-3:
        raise InputError(f"{name} must have orthonormal columns; got X^T X off the identity by {error:.1e}. Take a QR.")
