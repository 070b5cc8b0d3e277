"""Constraints D_il^T W z_i >= 1 of the matrix SVMs, in coordinates of span(D) x span(z) and dimensionless.

Every solution has its columns in span(D) and its rows in span(z): with orthonormal bases E_x (d, p), E_z (d, q) it is
W = E_x M E_z^T with p <= nm, q <= n, and D_il = E_x a_il, z_i = E_z b_i. The vectors a_il and b_i are then scaled to
length 1, and the right-hand sides to 1 in the mean, so that data in any units lead to the same problem:

    a_il^T M' b_i >= h_il,    h_il = 1 / (unit |D_il| |z_i|),    M' = M / unit,    lambda_il = lambda'_il unit h_il.

Samples of large tokens have right-hand sides so small that the rounding of a_il^T M' b_i would decide whether they
hold. These are solved with h_il + 1e-10, which changes the optimum by about 1e-10 of itself.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.row_scales import of_unit_size
from saddlescope.models.tokens.separability import require_separable


@dataclass(frozen=True, eq=False)
class MatrixConstraints:
    """Reduced constraints; a row for each non-optimal token, N = nm of them, sample by sample.

    Attributes:
        left_basis, right_basis: E_x (d, p), E_z (d, q).
        left, right: unit vectors a_il (N, p), b_i (N, q).
        least: h_il, those below 1e-5 raised by 1e-10, (N,).
        exact: h_il, (N,).
        unit: unit of M: M' = M / unit.
        shape: (n, m).
    """

    left_basis: Float[np.ndarray, "d p"]
    right_basis: Float[np.ndarray, "d q"]
    left: Float[np.ndarray, "N p"]
    right: Float[np.ndarray, "N q"]
    least: Float[np.ndarray, "N"]
    exact: Float[np.ndarray, "N"]
    unit: float
    shape: tuple[int, int]

    @classmethod
    def of(cls, data: TokenData) -> "MatrixConstraints":
        """Return the constraints of token data.

        Raises:
            InputError: a query z_i is zero, so that no W has positive margins in that sample.
        """
        n, m, d = data.differences.shape
        (left, long_by), (right, wide_by) = of_unit_size(data.differences.reshape(n * m, d)), of_unit_size(data.z)
        left_basis, left_factor = np.linalg.qr(left.T)
        right_basis, right_factor = np.linalg.qr(right.T)
        a, b = left_factor.T, np.repeat(right_factor.T, m, axis=0)
        long, wide = np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)
        if not np.all(long * wide > 0):
            raise not_solved(data)
        logs = long_by + np.repeat(wide_by, m)
        largest = -int(logs.min())  # of the right-hand sides, as a power of 2
        least = np.ldexp(1 / (long * wide), np.maximum(-logs - largest, _SMALLEST))
        mean = float(least.mean())
        exact = least / mean
        return cls(
            left_basis=left_basis,
            right_basis=right_basis,
            left=a / long[:, None],
            right=b / wide[:, None],
            least=raised(exact, _RAISED),
            exact=exact,
            unit=float(np.ldexp(mean, largest)),
            shape=(n, m),
        )

    @cached_property
    def left_gram(self) -> Float[np.ndarray, "N N"]:
        """Products a_il . a_jk."""
        return self.left @ self.left.T

    @cached_property
    def right_gram(self) -> Float[np.ndarray, "N N"]:
        """Products b_i . b_j."""
        return self.right @ self.right.T

    @cached_property
    def gram(self) -> Float[np.ndarray, "N N"]:
        """Gram matrix of the constraints, (a_il . a_jk) (b_i . b_j), (N, N)."""
        return self.left_gram * self.right_gram

    def dual_matrix(self, multipliers: Float[np.ndarray, "N"]) -> Float[np.ndarray, "p q"]:
        """Return Z = sum_il lambda'_il a_il b_i^T; Z of the data is E_x Z E_z^T, in any units."""
        return (self.left * multipliers[:, None]).T @ self.right

    def margins(self, M: Float[np.ndarray, "p q"]) -> Float[np.ndarray, "N"]:
        """Return a_il^T M b_i."""
        return np.einsum("kq,kq->k", self.left @ M, self.right)

    def lifted(
        self, M_left: Float[np.ndarray, "p r"], M_right: Float[np.ndarray, "q r"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (K, Q), each (d, r), with K Q^T the matrix of the data for M' = M_left M_right^T."""
        root = self.unit**0.5
        return root * (self.left_basis @ M_left), root * (self.right_basis @ M_right)

    def multipliers(self, scaled: Float[np.ndarray, "N"]) -> Float[np.ndarray, "n m"]:
        """Return lambda_il of the constraints D_il^T W z_i >= 1."""
        return (scaled * self.exact * self.unit).reshape(self.shape)

    def scaled(self, multipliers: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "N"]:
        """Return lambda'_il of these constraints, the inverse of `multipliers`."""
        return multipliers.ravel() / (self.exact * self.unit)


def raised(least: Float[np.ndarray, "N"], by: float) -> Float[np.ndarray, "N"]:
    """Return right-hand sides of mean 1, with those added to that are near rounding."""
    return np.where(least < _NEAR_ROUNDING, least + by, least)


_NEAR_ROUNDING = 1e-5
_RAISED = 1e-10
_SMALLEST = -900  # exponent of 2 below which a right-hand side counts as that, so that it is above 0
_ALIKE = 1e6  # ratio of sizes of constraints up to which the SVMs are solved unless their margin is small


def not_solved(data: TokenData, *, diagonal: bool = False) -> ArithmeticError:
    """Return the error for data for which no separating weights were found, after a search for the reason.

    Raises:
        InputError: the data are not separable; the message names the samples of a Farkas certificate.
    """
    require_separable(data, diagonal=diagonal)
    features = data.differences[..., None, :] * data.z[:, None, :, None]
    sizes = np.linalg.norm(data.features, axis=-1) if diagonal else np.linalg.norm(features, axis=(-2, -1))
    ratio = float(sizes.max() / sizes.min())
    if ratio > _ALIKE:
        return ArithmeticError(
            f"The data are separable, but their differences of tokens times queries differ by {ratio:.1e} in size, so"
            " that the SVM was not solved in float64. Divide the tokens and the query of each sample by their size:"
            " weights that separate the data stay the same."
        )
    return ArithmeticError(
        "The data are separable, but by so small a margin that the SVM was not solved in float64. Remove the samples or"
        " tokens that nearly conflict, or embed them in more dimensions."
    )
