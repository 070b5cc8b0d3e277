"""Eigenvectors of symmetric matrices, by another algorithm where the usual one does not converge."""

import numpy as np
import scipy.linalg
from jaxtyping import Float


def eigenvectors(H: Float[np.ndarray, "n n"]) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n n"]]:
    """Return the eigenvalues of a symmetric matrix, ascending, and its eigenvectors as columns.

    Raises:
        numpy.linalg.LinAlgError: neither divide and conquer nor relatively robust representations converge, as for NaN.
    """
    try:
        return np.linalg.eigh(H)
    except np.linalg.LinAlgError:
        return scipy.linalg.eigh(H, driver="evr", check_finite=False)
