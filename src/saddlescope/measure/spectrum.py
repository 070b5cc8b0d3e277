"""Singular values of weights, of their updates, and of updates of products; batched, without cancellation.

    W, W0       a matrix (..., m, n) now and before
    L, R        factors (..., d, h) and (..., d2, h) of a product L R^T, such as a head's W_K W_Q^T; before: L0, R0
    A, B        [L - L0, L0] and [R, R - R0], 2h columns each: A B^T = L R^T - L0 R0^T, with nothing cancelled
    eps         spacing of the arithmetic's numbers at 1 (float64 if the library has it)
    e(X)        u |X|_F / sqrt(3 m n), u the unit roundoff of the given type: the root mean square of the rounding
                errors of the entries of a stored m x n matrix X

**Why not [L, -L0] [R, R0]^T.** At a relative update of 1e-6 of float32 weights its two halves agree in six of seven
digits, and the difference retains one. Differences of the *factors* are exact in float64; nothing is left to cancel.

**Noise floor.** Stored weights are rounded. The rounding errors of different entries are nearly independent, so they
form a random matrix E, whose norm is about e(X) (sqrt(m) + sqrt(n)), and that of E Y^T about
e(X) (sqrt(m) |Y|_2 + |Y|_F) (Chevet's inequality). The noise floor is the root sum of squares of these over all given
matrices, and of the rounding of the arithmetic. A singular value above it is in the data; one below it may be due to
rounding alone. It is an estimate for entries that differ, not a bound: if all entries of X are equal, so are their
errors, and these can exceed it sqrt(min(m, n)) times.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from types import ModuleType
from typing import Any

import array_api_compat
import numpy as np

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope.measure.arrays import (
    UNIT_ROUNDOFF,
    Library,
    Stored,
    entries_at_once,
    in_pieces,
    normalised,
    require_finite,
    take,
    upcast,
)
from saddlescope.measure.singular_values import Spectrum, finite_spectrum
from saddlescope.measure.squares import BEFORE, MOVED, NOW, Blocks, blocks_of, squares_of

_LARGE = 512  # shorter side from which squares save time: they cost digits of the smallest values
_STREAMS = 8  # of a GPU, for eigenvalues; 16 took as long
_SHIFT = 8.0  # in eps |H_A|_F: over many singular matrices, Cholesky needed at most 1.1


@validate_arguments
def spectrum(matrix: Any, *, top: int | None = None) -> Spectrum:
    """Return the singular values of W.

    Large matrices of single or half precision go through squares, with the accuracy of `update_spectrum`.

    Args:
        matrix: W, (..., m, n), of NumPy, JAX or PyTorch; half precision is upcast.
        top: number of the largest values to return; None returns all min(m, n).

    Returns:
        Values (..., min(m, n)) in float64 (float32 if the library has no float64), zeros for the zero matrix. Noise
        floor e(W) (sqrt(m) + sqrt(n)), combined with the rounding of the SVD.

    Raises:
        InputError: not a floating-point array, not a matrix, NaN or infinite entries, or top below 1.

    >>> import numpy as np
    >>> spectrum(np.diag([3.0, 0.0, 4.0])).values
    array([4., 3., 0.])
    """
    check_top(top)
    library, (W,) = take(axes=2, matrix=matrix)
    if min(W.array.shape[-2:]) > _LARGE and _squares_fit(library, [W]):
        return _update_from_squares(library, W, None, top)
    return _one_matrix(library, upcast(library, W), [_rounding(library, W)], top)


@validate_arguments
def update_spectrum(after: Any, before: Any, *, top: int | None = None) -> Spectrum:
    """Return the singular values of W - W0, subtracted in float64.

    Data of single or half precision go through a Gram matrix of min(m, n) columns, with the accuracy of
    `product_update_spectrum`: about three times faster than an SVD, and with memory for that matrix alone.

    Args:
        after: W, (..., m, n).
        before: W0, of the same shape and library; its type may differ, such as float32 beside bfloat16.
        top: number of the largest values to return; None returns all min(m, n).

    Returns:
        As `spectrum`; the noise floor combines e(W) (sqrt(m) + sqrt(n)) and e(W0) (sqrt(m) + sqrt(n)). All zeros if
        nothing changed.

    Raises:
        InputError: as `spectrum`, or shapes or libraries that differ.

    >>> import numpy as np
    >>> update_spectrum(np.eye(2), np.zeros((2, 2))).values
    array([1., 1.])
    """
    check_top(top)
    library, (W, W0) = take(axes=2, after=after, before=before)
    _check_same_shape("before", W0, "after", W)
    if _squares_fit(library, [W, W0]):
        return _update_from_squares(library, W, W0, top)
    with np.errstate(over="ignore"):
        update = upcast(library, W) - upcast(library, W0)
    require_finite(library.xp, update)  # before an SVD, which may not converge
    return _one_matrix(library, update, [_rounding(library, W), _rounding(library, W0)], top)


def update_noise_floor(after: Any, before: Any) -> Any:
    """Return the level below which singular values of W - W0 are rounding of the input, without computing any.

    Args:
        after: W, (..., m, n).
        before: W0, of the same shape and library.

    Returns:
        (...), e(W) (sqrt(m) + sqrt(n)) and e(W0) (sqrt(m) + sqrt(n)) combined, as in `update_spectrum`.

    Raises:
        InputError: as `update_spectrum`.

    >>> import numpy as np
    >>> bool(update_noise_floor(np.eye(2), np.eye(2)) < 1e-15)
    True
    """
    library, (W, W0) = take(axes=2, after=after, before=before)
    _check_same_shape("before", W0, "after", W)
    return library.give_back(library.xp.hypot(_rounding(library, W), _rounding(library, W0)))


@validate_arguments
def product_spectrum(left: Any, right: Any, *, top: int | None = None, report: Report = silent) -> Spectrum:
    """Return the singular values of L R^T, which is not formed if it is larger than its factors.

    Args:
        left: L, (..., d, h), such as W_K of each head.
        right: R, (..., d2, h), such as W_Q of each head, in the same library.
        top: number of the largest values to return; None returns all min(d, d2, h).
        report: called after each block of matrices with the fraction done and a note.

    Returns:
        Values (..., min(d, d2, h)) and a noise floor as in `product_update_spectrum` with L0 = R0 = 0.

    Raises:
        InputError: as `spectrum`, or factors whose shapes do not match.

    >>> import numpy as np
    >>> product_spectrum(np.array([[3.0], [4.0]]), np.array([[2.0], [0.0], [0.0]])).values.round(12)
    array([10.])
    """
    check_top(top)
    library, (L, R) = take(axes=2, left=left, right=right)
    _check_factors(L, R)
    return _spectrum_of(library, lambda L, R: _product(library, [L], [R]), [L, R], top, report)


@validate_arguments
def product_update_spectrum(
    left: Any, right: Any, left0: Any, right0: Any, *, top: int | None = None, report: Report = silent
) -> Spectrum:
    """Return the singular values of L R^T - L0 R0^T, as [L - L0, L0] [R, R - R0]^T and never formed as d x d2.

    Data of single or half precision go through the squares A^T A and B^T B in float64. Squares of single precision fit
    into double precision: a value far below the largest is off by about 1e-7 of the largest at worst, the others by far
    less, and the rounding of such data weighs more. Data of double precision take QR of A and an SVD of B times the
    triangle: slower, and exact to rounding. If 2h >= min(d, d2) the product itself is the smaller matrix and is
    formed, from the same A and B.

    Args:
        left: L, (..., d, h), such as W_K of each head after training.
        right: R, (..., d2, h), such as W_Q of each head.
        left0: L0, of the shape of `left`, before training; store it in float32 even for half-precision training.
        right0: R0, of the shape of `right`.
        top: number of the largest values to return; None returns all min(d, d2, 2h).
        report: called after each block of matrices with the fraction done and a note.

    Returns:
        Values (..., min(d, d2, 2h)) in float64 (float32 if the library has no float64), zeros if nothing changed.
        The noise floor combines the rounding of L (e(L) (sqrt(d) |R|_2 + |R|_F)), of R, L0 and R0 likewise, and of the
        arithmetic.

    Raises:
        InputError: as `spectrum`, or factors whose shapes do not match.

    >>> import numpy as np
    >>> zero, one = np.zeros((3, 1)), np.ones((3, 1))
    >>> product_update_spectrum(one, one, zero, zero).values.round(12)
    array([3., 0.])
    """
    check_top(top)
    library, factors = take_update(left, right, left0, right0)
    return _spectrum_of(library, lambda L, R, L0, R0: _product(library, [L, L0], [R, R0]), factors, top, report)


def _product(library: Library, lefts: Sequence[Stored], rights: Sequence[Stored]) -> tuple[Any, Any]:
    """Return values and noise floor for [L], [R], or for [L, L0], [R, R0]; one batch axis."""
    blocks = ((MOVED, BEFORE), (NOW, MOVED)) if len(lefts) == 2 else ((NOW,), (NOW,))
    factors = Factors.of(library, lefts, rights, *blocks)
    values, error = factors.spectrum()
    noise = reduce(library.xp.hypot, [error, *_propagated(library.xp, lefts, rights, factors.G_A, factors.G_B)])
    return values * factors.unit[:, None], noise * factors.unit


@dataclass(frozen=True, eq=False)
class Factors:
    """Factors A and B of a product A B^T, as squares or also as matrices; one batch axis.

    Attributes:
        library: library that does the work.
        G_A, G_B: A^T A and B^T B.
        A, B: the factors themselves, or None if squares suffice.
        rows: numbers of rows of A and B.
        unit: by which to multiply the singular values, (...).
    """

    library: Library
    G_A: Any
    G_B: Any
    A: Any
    B: Any
    rows: tuple[int, int]
    unit: Any

    @classmethod
    def of(
        cls,
        library: Library,
        lefts: Sequence[Stored],
        rights: Sequence[Stored],
        left_blocks: Blocks,
        right_blocks: Blocks,
    ) -> "Factors":
        """Build A from blocks of the left factors, and B from blocks of the right ones."""
        xp = library.xp
        rows = lefts[0].array.shape[-2], rights[0].array.shape[-2]
        if len(lefts) * lefts[0].array.shape[-1] < min(rows) and _squares_fit(library, (*lefts, *rights)):
            G_A, G_B = squares_of(library, lefts, left_blocks), squares_of(library, rights, right_blocks)
            return cls(library, G_A, G_B, None, None, rows, xp.ones_like(G_A[:, 0, 0]))
        sides = ((lefts, left_blocks), (rights, right_blocks))
        joint = (xp.concat(blocks_of(library, side, blocks), axis=-1) for side, blocks in sides)
        (A, a), (B, b) = (normalised(xp, one) for one in joint)
        G_A, G_B = (xp.matrix_transpose(one) @ one for one in (A, B))
        return cls(library, G_A, G_B, A, B, rows, (a * b)[:, 0, 0])

    def columns(self, of_A: slice, of_B: slice) -> "Factors":
        """Return the factors with some of their columns."""
        return replace(
            self,
            G_A=self.G_A[..., of_A, of_A],
            G_B=self.G_B[..., of_B, of_B],
            A=None if self.A is None else self.A[..., of_A],
            B=None if self.B is None else self.B[..., of_B],
        )

    def spectrum(self) -> tuple[Any, Any]:
        """Return the singular values of A B^T and the error of the arithmetic, before multiplication by the unit."""
        xp, G_A, G_B = self.library.xp, self.G_A, self.G_B
        # Columns of A to length 1 (zeros stay), of B by the inverse: A B^T is the same, L - L0 counts as much as L0.
        length = xp.sqrt(xp.linalg.diagonal(G_A))
        divisor = xp.where(length > 0, length, xp.ones_like(length))
        H_A = G_A / (divisor[..., None] * divisor[..., None, :])
        H_B = G_B * (length[..., None] * length[..., None, :])
        size = xp.sqrt(_frobenius(xp, H_A) * _frobenius(xp, H_B))  # at least sigma_1, little more if nothing cancels
        eps = float(xp.finfo(H_A.dtype).eps)
        if self.A is None:
            values, error = _values_from_squares(xp, H_A, H_B), math.sqrt(_SHIFT * eps) * size
        else:
            error = eps * math.sqrt(max(self.rows)) * size
            if G_A.shape[-1] >= min(self.rows):
                values = xp.linalg.svdvals(self.A @ xp.matrix_transpose(self.B))
            else:
                values = xp.linalg.svdvals(self.B @ xp.matrix_transpose(xp.linalg.qr(self.A).R))
        return xp.where(size[:, None] > 0, values, xp.zeros_like(values)), error


def _values_from_squares(xp: ModuleType, H_A: Any, H_B: Any) -> Any:
    """Return the singular values of A B^T from H_A = A^T A and H_B = B^T B.

    They are the roots of the eigenvalues of C^T H_B C with C C^T = H_A.

    A low-rank update makes H_A singular, and rounding may make it indefinite. A shift of a few eps |H_A|_F makes the
    Cholesky factorisation succeed; it moves squares of singular values by at most `_SHIFT` eps |H_A|_F |H_B|_F.
    """
    norm = _frobenius(xp, H_A)
    norm = xp.where(norm > 0, norm, xp.ones_like(norm))
    shift = _SHIFT * float(xp.finfo(H_A.dtype).eps) * norm
    identity = xp.eye(H_A.shape[-1], dtype=H_A.dtype, device=array_api_compat.device(H_A))
    C = xp.linalg.cholesky(H_A + shift[:, None, None] * identity[None])
    squares = _eigenvalues(xp, _congruent(xp, C, H_B))
    return xp.flip(xp.sqrt(_positive_part(xp, squares)), axis=-1)


def _eigenvalues(xp: ModuleType, H: Any) -> Any:
    """Return the eigenvalues of a batch of symmetric matrices, ascending.

    cuSOLVER takes one matrix after the other, and a small one occupies little of a GPU. Several streams, each with a
    thread that waits for it, work at the same time: 1024 matrices of side 128 take an H100 0.11 s instead of 0.74 s.
    """
    if not (array_api_compat.is_torch_array(H) and H.is_cuda):
        return xp.linalg.eigvalsh(H)
    cuda, now = xp.cuda, xp.cuda.current_stream(H.device)

    def of_part(part: Any) -> tuple[Any, Any]:
        beside = cuda.Stream(H.device)
        with cuda.stream(beside):
            beside.wait_stream(now)
            return xp.linalg.eigvalsh(part), beside

    with ThreadPoolExecutor(_STREAMS) as pool:
        found = list(pool.map(of_part, H.tensor_split(min(_STREAMS, len(H)))))
    for values, beside in found:
        now.wait_stream(beside)
        values.record_stream(now)
    return xp.concat([values for values, _ in found])


def _congruent(xp: ModuleType, C: Any, H: Any) -> Any:
    """Return C^T H C for a lower triangular C and a symmetric H, without products with the zero block of C."""
    half = C.shape[-1] // 2
    left, right = C[..., :half], C[..., half:, half:]
    H_left = H @ left
    across = xp.matrix_transpose(right) @ H_left[..., half:, :]
    above = xp.concat([xp.matrix_transpose(left) @ H_left, xp.matrix_transpose(across)], axis=-1)
    below = xp.concat([across, xp.matrix_transpose(right) @ H[..., half:, half:] @ right], axis=-1)
    return xp.concat([above, below], axis=-2)


def _propagated(xp: ModuleType, lefts: Sequence[Stored], rights: Sequence[Stored], G_A: Any, G_B: Any) -> list[Any]:
    """Return the norm of E Y^T for each stored factor X with companion Y, E the rounding errors of X."""
    h = lefts[0].array.shape[-1]
    if len(lefts) == 1:
        squares = [(G_A, G_B)]
    else:  # L^T L, R^T R and L0^T L0, R0^T R0, from the blocks of A^T A and B^T B
        A11, A12, A22 = G_A[..., :h, :h], G_A[..., :h, h:], G_A[..., h:, h:]
        B11, B12, B22 = G_B[..., :h, :h], G_B[..., :h, h:], G_B[..., h:, h:]
        mixed_A, mixed_B = A12 + xp.matrix_transpose(A12), B12 + xp.matrix_transpose(B12)
        squares = [(A11 + A22 + mixed_A, B11), (A22, B11 + B22 - mixed_B)]
    terms = []
    for L, R, (squares_L, squares_R) in zip(lefts, rights, squares, strict=True):
        norms_L, norms_R = norms(xp, squares_L), norms(xp, squares_R)
        terms += [rounding_times(L, norms_L, norms_R), rounding_times(R, norms_R, norms_L)]
    return terms


def rounding_times(X: Stored, norms_X: tuple[Any, Any], norms_Y: tuple[Any, Any]) -> Any:
    """Return the norm of E Y^T, E the rounding errors of a stored factor X, from the `norms` of X and Y."""
    m, h = X.array.shape[-2:]
    (frobenius_X, _), (frobenius_Y, spectral_Y) = norms_X, norms_Y
    return X.roundoff * frobenius_X / math.sqrt(3 * m * h) * (math.sqrt(m) * spectral_Y + frobenius_Y)


def norms(xp: ModuleType, squares: Any) -> tuple[Any, Any]:
    """Return |Y|_F and a bound on |Y|_2 from Y^T Y: the Schatten-8 norm, at most h^(1/8) times too large."""
    trace = _positive_part(xp, xp.linalg.trace(squares))
    shares = squares / xp.where(trace > 0, trace, xp.ones_like(trace))[..., None, None]
    return xp.sqrt(trace), xp.sqrt(trace * xp.sqrt(_frobenius(xp, shares @ shares)))


def _rounding(library: Library, W: Stored) -> Any:
    """Return the norm of the rounding errors of a stored matrix: e(W) (sqrt(m) + sqrt(n))."""
    m, n = W.array.shape[-2:]
    scaled, unit = normalised(library.xp, upcast(library, W))
    entry = W.roundoff * _frobenius(library.xp, scaled) * unit[..., 0, 0] / math.sqrt(3 * m * n)
    return entry * (math.sqrt(m) + math.sqrt(n))


def _squares_fit(library: Library, given: Sequence[Stored]) -> bool:
    """Return True if squares neither overflow, vanish, nor lose digits: float64 arithmetic on a shorter type."""
    return library.wide == library.xp.float64 and all(one.roundoff > UNIT_ROUNDOFF["float64"] for one in given)


def _one_matrix(library: Library, W: Any, noise: Sequence[Any], top: int | None) -> Spectrum:
    """Return the spectrum of a matrix in wide type, whose entries have the given noise."""
    xp = library.xp
    values = xp.linalg.svdvals(W)
    error = float(xp.finfo(W.dtype).eps) * math.sqrt(max(W.shape[-2:])) * values[..., 0]
    return finite_spectrum(library.give_back(values[..., :top]), library.give_back(reduce(xp.hypot, [error, *noise])))


def _update_from_squares(library: Library, W: Stored, W0: Stored | None, top: int | None) -> Spectrum:
    """Return the spectrum of W - W0, or of W, from D D^T, with D the difference or its transpose, in column blocks."""
    xp = library.xp
    (m, n), batch = W.array.shape[-2:], math.prod(W.array.shape[:-2])
    width = max(1, entries_at_once(library) // (max(1, batch) * min(m, n)))
    total = xp.asarray(0.0, dtype=library.wide, device=array_api_compat.device(W.array))
    given = [W] if W0 is None else [W, W0]
    norms = [total] * len(given)
    for start in range(0, max(m, n), width):
        here = (..., slice(start, start + width)) if m <= n else (..., slice(start, start + width), slice(None))
        parts = [upcast(library, Stored(one.array[here], one.roundoff)) for one in given]
        D = reduce(lambda now, then: now - then, parts)
        D = D if m <= n else xp.matrix_transpose(D)
        total = total + D @ xp.matrix_transpose(D)
        norms = [norm + xp.sum(X * X, axis=(-2, -1)) for norm, X in zip(norms, parts, strict=True)]
    values = xp.sqrt(_positive_part(xp, xp.flip(xp.linalg.eigvalsh(total), axis=-1)))
    error = math.sqrt(_SHIFT * float(xp.finfo(library.wide).eps)) * values[..., 0]
    entry = (one.roundoff * xp.sqrt(squares) / math.sqrt(3 * m * n) for one, squares in zip(given, norms, strict=True))
    noise = reduce(xp.hypot, [error, *(size * (math.sqrt(m) + math.sqrt(n)) for size in entry)])
    return finite_spectrum(library.give_back(values[..., :top]), library.give_back(noise))


def _spectrum_of(
    library: Library, compute: Callable[..., tuple[Any, Any]], factors: list[Stored], top: int | None, report: Report
) -> Spectrum:
    """Return the spectrum that `compute` returns as values and noise floor, piece by piece."""
    values, noise = in_pieces(library, compute, factors, report=report)
    return finite_spectrum(values[..., :top], noise)


def _frobenius(xp: ModuleType, X: Any) -> Any:
    return xp.sqrt(xp.sum(X * X, axis=(-2, -1)))


def _positive_part(xp: ModuleType, X: Any) -> Any:
    return xp.where(X > 0, X, xp.zeros_like(X))


def check_top(top: int | None) -> None:
    """Raise InputError for a number of singular values below 1."""
    if top is not None and top < 1:
        raise InputError(f"top must be at least 1, or None for all singular values; got {top!r}.")


def take_update(left: Any, right: Any, left0: Any, right0: Any) -> tuple[Library, list[Stored]]:
    """Return the factors of a product now and before, checked, and the library to work with.

    Raises:
        InputError: as `take`, or factors whose shapes do not match.
    """
    library, factors = take(axes=2, left=left, right=right, left0=left0, right0=right0)
    L, R, L0, R0 = factors
    _check_factors(L, R)
    _check_same_shape("left0", L0, "left", L)
    _check_same_shape("right0", R0, "right", R)
    return library, factors


def _check_same_shape(name: str, one: Stored, other: str, reference: Stored) -> None:
    """Raise InputError for an array of another shape than its companion."""
    shape, wanted = tuple(one.array.shape), tuple(reference.array.shape)
    if shape != wanted:
        raise InputError(f"{name} must have the shape of {other}, {wanted!r}; got {shape!r}.")


def _check_factors(L: Stored, R: Stored) -> None:
    """Raise InputError for factors without a product L R^T."""
    left, right = tuple(L.array.shape), tuple(R.array.shape)
    if left[:-2] != right[:-2] or left[-1] != right[-1]:
        raise InputError(
            f"right must have the batch axes and the number of columns of left, {left!r}, for left @ right^T; "
            f"got {right!r}. Transpose weights stored as (h, d) first."
        )
