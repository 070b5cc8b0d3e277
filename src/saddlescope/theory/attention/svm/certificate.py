"""Certificate of a solution of an attention SVM, from the data, the weights and the multipliers alone.

For a norm |.| with the dual norm |.|_o, multipliers lambda >= 0 and Z(lambda) = sum_il lambda_il D_il z_i^T,

    sum(lambda) / |Z(lambda)|_o  <=  optimum  <=  |W| / min margin.

Both bounds are computed in extended precision and widened by its rounding, so that the gap holds however badly the data
are scaled: margins and Z are small differences of large terms then.

With lambda scaled to |Z|_o = 1 and W to a margin of 1, the difference splits into optimality residuals,
|W| - sum(lambda) = (|W| - <Z, W>) + sum_il lambda_il (u_il - 1). The duals: l1 of beta and the largest |sum lambda B|;
the nuclear and the spectral norm; the Frobenius norm and itself. Multipliers are those of the norm, not of its square.

Uniqueness: every optimal W has <Z, W> = |W| for the same Z, which leaves it the face of diagonals supported on
|Z_j| = 1, or W = U S V^T with S >= 0 and U, V the singular vectors of Z of the value 1; and a margin of 1 wherever
lambda_il > 0. Where those equations determine beta, or the symmetric S, there is no other optimum. Frobenius norms are
strictly convex.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError, unknown
from saddlescope._shared.real_arrays import real_array
from saddlescope._shared.reprs import ReprMixin
from saddlescope.models.tokens.data import TokenData
from saddlescope.theory.attention.svm.constraints import MatrixConstraints

NORMS = ("l1", "nuclear", "frobenius")

FACE = 1e-6  # dual values this near 1 count as 1, multipliers this small against the largest as 0: errs to "not unique"
INJECTIVE = 1e-7  # least singular value of the equations on the face, rows of length 1, that counts as nonzero


@dataclass(frozen=True, repr=False)
class SvmCertificate(ReprMixin):
    """Bounds on the optimum, and their implications for uniqueness and rank.

    Attributes:
        norm: the norm that is minimised.
        primal: |W| / min margin, an upper bound; infinite where a margin is not positive beyond rounding.
        dual: sum(lambda) / |Z(lambda)|_o, in the dual norm: a lower bound. Both bounds allow for rounding.
        unique: True where the optimum is certified to be unique; False means only that it is not certified.
        singular_values: of W at a margin of 1, descending, as many as weights and data allow; of a diagonal, |beta|.
        rank: number of singular values above `rank_threshold`.
        rank_threshold: below it, a singular value may be 0 given the gap: gap * primal / (1 - s), s the first dual
            singular value that is not 1; for the Frobenius norm primal * sqrt(2 gap); plus rounding.
        largest_rank: number of dual singular values equal to 1: no optimum has a larger rank. For the Frobenius norm,
            whose W is a multiple of Z, the same as `rank`.
    """

    norm: str
    primal: float
    dual: float
    unique: bool
    singular_values: tuple[float, ...]
    rank: int
    rank_threshold: float
    largest_rank: int

    def __str__(self) -> str:
        most = "no optimum has a larger one" if self.rank_certified else f"an optimum has up to {self.largest_rank}"
        return (
            f"The least {self.norm} norm is between {self.dual:.12g} and {self.primal:.12g}, a relative gap of"
            f" {max(self.gap, 0.0):.1e}; rank {self.rank}, of singular values above {self.rank_threshold:.1e}"
            f" ({most}); {'the only optimum' if self.unique else 'not certified to be the only optimum'}."
        )

    @property
    def gap(self) -> float:
        """Relative duality gap, (primal - dual) / primal; rounding may put it below 0 by a few units of 1e-16."""
        return 1.0 - self.dual / self.primal

    @property
    def rank_certified(self) -> bool:
        """True if the rank is the largest that an optimum can have: strict complementarity."""
        return self.rank == self.largest_rank


@validate_arguments
def certify_svm(
    data: TokenData, weights: ArrayLike | tuple[ArrayLike, ArrayLike], multipliers: ArrayLike, *, norm: str
) -> SvmCertificate:
    """Return the certificate of any weights with any multipliers, such as the direction of a flow.

    Args:
        data: n samples of L tokens.
        weights: beta (d,) for the norm "l1"; a pair (K, Q) of (d, d_e) for the others.
        multipliers: lambda (n, L - 1), not negative and not all 0.
        norm: "l1", "nuclear" or "frobenius".

    Raises:
        InputError: an unknown norm, weights of the wrong form or with all margins 0, or multipliers of the wrong shape,
            below 0 or all 0.
    """
    if norm not in NORMS:
        raise unknown("norm", norm, NORMS)
    if isinstance(weights, tuple) == (norm == "l1"):
        wanted = "beta (d,)" if norm == "l1" else "a pair (K, Q)"
        raise InputError(f"weights must be {wanted} for norm={norm!r}; got {type(weights).__name__}.")
    lam = real_array("multipliers", multipliers, data.gaps.shape)
    if not (np.all(lam >= 0) and np.any(lam > 0)):
        raise InputError(f"multipliers must be at least 0 and not all 0; got a smallest of {float(lam.min())!r}.")
    if not data.margins(weights).any():
        raise InputError("weights must have a margin that is not 0; got margins that are all 0.")
    if isinstance(weights, tuple):
        K, Q = weights
        return _of_matrix(data, np.asarray(K, float), np.asarray(Q, float), lam, norm)
    beta = np.asarray(weights, float)
    dual = np.abs(np.einsum("im,imd->d", lam, data.features))
    rows = data.features[lam > FACE * lam.max()][:, dual > (1 - FACE) * dual.max()]
    return _assembled(data, beta, lam, norm, np.abs(beta), dual, rows)


def _of_matrix(data: TokenData, K: np.ndarray, Q: np.ndarray, lam: np.ndarray, norm: str) -> SvmCertificate:
    within = MatrixConstraints.of(data)
    U, dual, Vt = np.linalg.svd(within.dual_matrix(within.scaled(lam)), full_matrices=False)
    size = np.linalg.svd(np.linalg.qr(K)[1] @ np.linalg.qr(Q)[1].T, compute_uv=False)
    if norm == "frobenius":  # strictly convex: no equations decide
        return _assembled(data, (K, Q), lam, norm, size, dual, np.empty((0, 0)))
    k = int(np.sum(dual > (1 - FACE) * dual[0]))
    held = (lam > FACE * lam.max()).ravel()
    alpha, beta = within.left[held] @ U[:, :k], within.right[held] @ Vt[:k].T
    first, second = np.triu_indices(k, 1)
    rows = np.concatenate(
        [alpha * beta, (alpha[:, first] * beta[:, second] + alpha[:, second] * beta[:, first]) / 2**0.5], axis=1
    )
    return _assembled(data, (K, Q), lam, norm, size, dual, rows)


def _bounds(
    data: TokenData,
    weights: np.ndarray | tuple[np.ndarray, np.ndarray],
    lam: np.ndarray,
    norm: str,
    size: np.ndarray,
) -> tuple[float, float]:
    """Return the upper and the lower bound, computed in extended precision and widened by its rounding."""
    wide = np.longdouble
    X, z, multipliers = data.X.astype(wide), data.z.astype(wide), lam.astype(wide)
    rows = np.arange(data.samples)
    D = X[rows, data.optimal][:, None] - X[rows[:, None], data.others]
    terms = [part.astype(wide) for part in weights] if isinstance(weights, tuple) else [weights.astype(wide)]

    def margins(D: np.ndarray, z: np.ndarray, terms: list[np.ndarray]) -> np.ndarray:
        if len(terms) == 1:
            return np.einsum("imd,id,d->im", D, z, terms[0])
        return np.einsum("imr,ir->im", D @ terms[0], z @ terms[1])

    unit = 4 * (data.dim + data.samples * data.tokens) * np.finfo(wide).eps  # of the sums, over those of the sizes
    error = unit * margins(np.abs(D), np.abs(z), [np.abs(term) for term in terms])
    margin = float(np.min(margins(D, z, terms) - error))
    pulled, sizes = (np.einsum("im,imd->id", multipliers, each) for each in (D, np.abs(D)))
    if norm == "l1":
        Z, rounding = (np.einsum("id,id->d", *pair) for pair in ((pulled, z), (sizes, np.abs(z))))
        dual_norm = float(np.max(np.abs(Z) + unit * rounding))
    else:
        dual_norm = float(_product_norm(pulled, z, norm) + unit * _product_norm(sizes, np.abs(z), "frobenius"))
    length = float(np.linalg.norm(size) if norm == "frobenius" else size.sum())
    upper = length / margin if margin > 0 else float("inf")
    return upper, float(lam.sum()) / dual_norm if dual_norm > 0 else float("inf")


def _product_norm(left: np.ndarray, right: np.ndarray, norm: str) -> np.longdouble:
    """Return an upper bound of the dual norm of left^T right (d, d), from bases of the spans of the rows (n, d).

    Rows on the right are taken to a size near 1, and those on the left inversely: samples may differ in size.
    """
    exponents = np.frexp(np.max(np.abs(right), axis=1, keepdims=True))[1]
    left, right = np.ldexp(left, exponents), np.ldexp(right, -exponents)
    (scale, A, E, off_left), (other, B, F, off_right) = _in_basis(left), _in_basis(right)
    stretch = (1 + _departure(E)) ** 0.5 * (1 + _departure(F)) ** 0.5
    inside = np.linalg.norm((A.T @ B).astype(float), 2 if norm == "nuclear" else None)
    outside = off_left * (np.linalg.norm(B) + off_right) + np.linalg.norm(A) * off_right
    return scale * other * stretch * (inside + outside)


def _in_basis(rows: np.ndarray) -> tuple[np.longdouble, np.ndarray, np.ndarray, np.longdouble]:
    """Return the largest entry of rows (n, d); of the rows over it coordinates, basis (d, k) and length outside it."""
    scale = np.max(np.abs(rows)) or np.longdouble(1)
    E = np.linalg.qr((rows / scale).astype(float).T)[0].astype(np.longdouble)
    inside = (rows / scale) @ E
    return scale, inside, E, np.linalg.norm(rows / scale - inside @ E.T)


def _departure(E: np.ndarray) -> np.longdouble:
    """Return how far E^T E is from the identity."""
    return np.linalg.norm(E.T @ E - np.eye(E.shape[1]))


def _least_singular_value(rows: np.ndarray) -> float:
    """Return the least singular value of rows scaled to length 1; 0 where they are fewer than columns."""
    if rows.shape[0] < rows.shape[1]:
        return 0.0
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return float(np.linalg.svd(rows / np.where(length > 0, length, 1.0), compute_uv=False)[-1])


def _assembled(
    data: TokenData,
    weights: np.ndarray | tuple[np.ndarray, np.ndarray],
    lam: np.ndarray,
    norm: str,
    size: np.ndarray,
    dual: np.ndarray,
    rows: np.ndarray,
) -> SvmCertificate:
    """Return the certificate, given the singular values of W and of Z, and the equations on the optimal face."""
    margin, (upper, lower) = float(data.margins(weights).min()), _bounds(data, weights, lam, norm, size)
    size = np.sort(size)[::-1] / (margin if margin > 0 else 1.0)
    gap = max(0.0, 1 - lower / upper)
    rounding = np.finfo(float).eps * (float(size[0]) * len(dual) + (upper if np.isfinite(upper) else 0.0))
    if norm == "frobenius":
        unique, threshold = True, upper * (2 * gap) ** 0.5 + rounding
    else:
        dual = np.sort(dual)[::-1] / (dual.max() or 1.0)
        below = dual[dual <= 1 - FACE]
        threshold = (gap * upper / (1 - float(below[0])) if len(below) else 0.0) + rounding
        unique = _least_singular_value(rows) > INJECTIVE
    rank = int(np.sum(size > threshold))
    return SvmCertificate(
        norm=norm,
        primal=upper,
        dual=lower,
        unique=unique,
        singular_values=tuple(size.tolist()),
        rank=rank,
        rank_threshold=float(threshold),
        largest_rank=rank if norm == "frobenius" else int(np.sum(dual > 1 - FACE)),
    )
