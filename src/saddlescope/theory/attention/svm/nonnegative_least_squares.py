"""Quadratic programs over nonnegative multipliers: block principal pivoting, and its proximal-point iteration.

    minimise  lambda^T H lambda / 2 - h^T lambda  over  lambda >= 0

For a positive definite H, exchange all indices of the wrong sign at once (one Cholesky factor per exchange). When that
ceases to help, SciPy's `nnls` solves the program with an active set, whose objective falls at every step, so that it
ends. A semidefinite H, as of Gram matrices of dependent constraints, is a few such programs with a ridge about the last
multipliers.

Judice and Pires (1994), "A block principal pivoting algorithm for large-scale strictly monotone linear
complementarity problems"; Lawson and Hanson (1974), chapter 23; Rockafellar (1976), "Monotone operators and the
proximal point algorithm".
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular
from scipy.optimize import nnls

_RIDGE = 1e-10  # of the mean diagonal: far above the rounding of a Gram matrix, far below what slows the iteration
_PATIENCE = 3  # block exchanges that may leave as many wrong signs as before
_NOISE = 1e-14  # slack of the wrong sign, over the largest h, that is rounding


def nonnegative_minimum(
    H: Float[np.ndarray, "N N"], h: Float[np.ndarray, "N"], passive: Bool[np.ndarray, "N"]
) -> tuple[Float[np.ndarray, "N"], Bool[np.ndarray, "N"]]:
    """Return the minimiser for a positive definite H.

    Args:
        H: symmetric, positive definite.
        h: the linear term.
        passive: the indices expected to be positive, to start from.

    Returns:
        The multipliers, and the indices that are free to be positive.

    Raises:
        ArithmeticError: H is not positive definite, or too nearly singular for an active set to end.
    """
    fewest, patience = len(h) + 1, _PATIENCE
    noise = _NOISE * float(np.abs(h).max())
    while True:
        multipliers = _on(H, h, passive)
        wrong = np.where(passive, multipliers < 0, H @ multipliers - h < -noise)
        count = int(wrong.sum())
        if count == 0:
            return multipliers, passive
        patience = _PATIENCE if count < fewest else patience - 1
        fewest = min(fewest, count)
        if patience == 0:
            return _by_active_sets(H, h)
        passive = passive ^ wrong


def _by_active_sets(H: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the minimiser as that of |R lambda - R^-T h|, H = R^T R."""
    try:
        R = cholesky(H)
        multipliers, _ = nnls(R, solve_triangular(R, h, trans=1), maxiter=10 * len(h))
    except (LinAlgError, RuntimeError) as error:
        raise ArithmeticError(f"An active set of {len(h)} indices did not end: H is too nearly singular.") from error
    passive = multipliers > 0
    solved = _on(H, h, passive)  # SciPy's carry more rounding
    return (solved if solved.min() >= 0 else multipliers), passive


def _on(H: np.ndarray, h: np.ndarray, passive: np.ndarray) -> np.ndarray:
    """Return the minimiser with all other indices at 0, of any signs."""
    multipliers = np.zeros(len(h))
    free = np.flatnonzero(passive)
    if len(free):
        try:
            multipliers[free] = cho_solve(cho_factor(H[np.ix_(free, free)], lower=True), h[free])
        except LinAlgError as error:
            raise ArithmeticError("H must be positive definite; it has no Cholesky factor.") from error
    return multipliers


def proximal_minima(H: Float[np.ndarray, "N N"], h: Float[np.ndarray, "N"]) -> Iterator[Float[np.ndarray, "N"]]:
    """Yield multipliers that tend to a minimiser for a semidefinite H, or without one along a ray of H lambda -> 0."""
    ridge = _RIDGE * float(np.trace(H)) / len(h)
    convex = H + ridge * np.eye(len(h))
    multipliers, passive = np.zeros(len(h)), np.ones(len(h), bool)
    while True:
        multipliers, passive = nonnegative_minimum(convex, h + ridge * multipliers, passive)
        yield multipliers
