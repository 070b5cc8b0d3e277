"""Flow of the symmetric two-layer network with equal strengths, in closed form.

With A = a I, W = U U^T keeps its eigenvectors, and each eigenvalue is logistic in the time t of gradient flow,
v' = 4 a v (1 - v).
"""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope.models import symmetric_factor
from saddlescope.theory.concepts.arguments import validate_strengths, validate_times


@validate_arguments
def proportional_map(strength: float, start: ArrayLike, times: ArrayLike) -> Float[np.ndarray, "times d d"]:
    """Return W(t) where all directions are equally strong, A = a I.

    Args:
        strength: a, at least 0.
        start: W0, symmetric and positive semidefinite, (d, d).
        times: t, (times,), of either sign as long as the solution exists.

    Raises:
        InputError: a value out of its range, a start that is not symmetric or not positive semidefinite.
    """
    (a,), t = validate_strengths([strength]), validate_times(times, negative=True)
    # The eigenvalues are squared singular values of U, which are accurate next to 0; its zero columns, from a deficient
    # rank, are omitted, since e^(4 a t) would amplify their rounding errors.
    U = symmetric_factor(start, name="start")
    vectors, sizes, _ = np.linalg.svd(U[:, np.any(U != 0, axis=0)], full_matrices=False)
    grown = logistic(sizes**2, 4 * a * t[:, None])
    return (vectors * grown[:, None, :]) @ vectors.T


def logistic(start: Float[np.ndarray, "d"], phase: Float[np.ndarray, "times #d"]) -> Float[np.ndarray, "times d"]:
    """Return v(x) with v' = v (1 - v) at the phases x, from any v(0) of at least 0; exactly 0 from 0."""
    with np.errstate(over="ignore"):
        return np.where(start > 0, start / np.where(start > 0, start + (1 - start) * np.exp(-phase), 1.0), 0.0)
