"""Quadratic programmes over nonnegative multipliers: block principal pivoting, and its proximal-point iteration.

    minimise  lambda^T H lambda / 2 - h^T lambda  over  lambda >= 0

For a positive definite H, exchange all indices of the wrong sign at once (a Cholesky factor an exchange, few of them),
and when that ceases to help, the last one alone, which ends after finitely many (Murty's rule). A semidefinite H, as of
Gram matrices of dependent constraints, is a few such programmes with a ridge about the last multipliers.

Judice and Pires (1994), "A block principal pivoting algorithm for large-scale strictly monotone linear
complementarity problems"; Rockafellar (1976), "Monotone operators and the proximal point algorithm".
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import LinAlgError, cho_factor, cho_solve

_RIDGE = 1e-10  # of the mean diagonal: far above the rounding of a Gram matrix, far below what slows the iteration
_PATIENCE = 3  # block exchanges that may leave as many wrong signs as before
_MOST_EXCHANGES = 2000


def nonnegative_minimum(
    H: Float[np.ndarray, "N N"], h: Float[np.ndarray, "N"], passive: Bool[np.ndarray, "N"]
) -> tuple[Float[np.ndarray, "N"], Bool[np.ndarray, "N"]]:
    """The minimiser for a positive definite H.

    Args:
        H: symmetric, positive definite.
        h: the linear term.
        passive: the indices expected to be positive, to start from.

    Returns:
        The multipliers, and the indices that are free to be positive.

    Raises:
        ArithmeticError: H is not positive definite, or the exchanges did not end.
    """
    fewest, patience = len(h) + 1, _PATIENCE
    slack_noise = 1e-14 * float(np.abs(h).max())
    for _ in range(_MOST_EXCHANGES):
        multipliers = np.zeros(len(h))
        free = np.flatnonzero(passive)
        if len(free):
            try:
                multipliers[free] = cho_solve(cho_factor(H[np.ix_(free, free)], lower=True), h[free])
            except LinAlgError as error:
                raise ArithmeticError(
                    "H must be positive definite for block pivoting; it has no Cholesky factor."
                ) from error
        wrong = np.where(passive, multipliers < 0, H @ multipliers - h < -slack_noise)
        count = int(wrong.sum())
        if count == 0:
            return multipliers, passive
        if count < fewest:
            fewest, patience = count, _PATIENCE
        elif patience > 0:
            patience -= 1
        else:  # Murty's rule: the last index alone
            wrong = np.arange(len(h)) == np.flatnonzero(wrong)[-1]
        passive = passive ^ wrong
    raise ArithmeticError(f"Block pivoting did not end within {_MOST_EXCHANGES} exchanges of {len(h)} indices.")


def proximal_minima(H: Float[np.ndarray, "N N"], h: Float[np.ndarray, "N"]) -> Iterator[Float[np.ndarray, "N"]]:
    """Multipliers tending to a minimiser for a semidefinite H; without one, they grow along a ray of H lambda -> 0."""
    ridge = _RIDGE * float(np.trace(H)) / len(h)
    convex = H + ridge * np.eye(len(h))
    multipliers, passive = np.zeros(len(h)), np.ones(len(h), bool)
    while True:
        multipliers, passive = nonnegative_minimum(convex, h + ridge * multipliers, passive)
        yield multipliers
