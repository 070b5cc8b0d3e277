"""Equation 4.3: what makes an entry of the symmetric two-layer network's map W = U U^T grow, and what holds it back.

    a_p     strengths, eigenvalues of the second moment A = diag(a), (d,); at least 0
    G_ij    growth, w_ij (a_i + a_j)
    S_ij    suppression, w_ij [w_ii (3 a_i + a_j) + (w_jj (3 a_j + a_i) where i != j)] / 2
    N_ij    noise, the sum of w_ki w_kj (a_i + a_j + 2 a_k) / 2 over k other than i and j

Gradient flow of |(U U^T - I) A^(1/2)|_F^2 / 2 in U is dU/dt = -(A E + E A) U with E = W - I, so that

    dW/dt = 2 (G - S - N).

The paper's 4.3 and D.2 have no factor 2, though D.1, with the gradient of the same loss, has: their time is 2 t. All
times here are t. The noise is not small: two entries of size w make one of size w^2, as large as the entry that the
two will suppress, and the stage times of `concept_stages` come out wrong without it.

Where A is not diagonal, take U and all points into its eigenvectors: U -> R^T U.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.models import symmetric_factor


@dataclass(frozen=True, eq=False, repr=False)
class UpdateTerms(ReprMixin):
    """G, S and N of every entry of W, each (d, d) and symmetric."""

    growth: Float[np.ndarray, "d d"]
    suppression: Float[np.ndarray, "d d"]
    noise: Float[np.ndarray, "d d"]

    @property
    def velocity(self) -> Float[np.ndarray, "d d"]:
        """dW/dt = 2 (G - S - N)."""
        return 2 * (self.growth - self.suppression - self.noise)


@validate_arguments
def update_terms(strengths: ArrayLike, W: ArrayLike) -> UpdateTerms:
    """The growth, suppression and noise terms of every entry of W.

    Args:
        strengths: a, (d,), at least 0.
        W: symmetric and positive semidefinite, (d, d).

    Raises:
        InputError: negative or infinite strengths, or a W of another shape, or that is not symmetric or not positive
            semidefinite.
    """
    a = checked_strengths(strengths)
    w = np.array(W, float)
    symmetric_factor(w)
    if len(w) != len(a):
        raise InputError(f"W must have shape {(len(a), len(a))!r}, as there are {len(a)} strengths; got {w.shape!r}.")
    pair = a[:, None] + a[None, :]
    heavy = np.diag(w)[:, None] * (3 * a[:, None] + a[None, :])  # w_ii (3 a_i + a_j)
    off = ~np.eye(len(a), dtype=bool)
    others = off[:, :, None] & off[:, None, :]  # k, i, j: neither i nor j is k
    weights = np.where(others, pair[None, :, :] + 2 * a[:, None, None], 0.0)
    return UpdateTerms(
        growth=w * pair,
        suppression=w * (heavy + np.where(off, heavy.T, 0.0)) / 2,
        noise=np.einsum("ki,kj,kij->ij", w, w, weights) / 2,
    )


def checked_strengths(strengths: ArrayLike) -> Float[np.ndarray, "d"]:
    """The strengths as an array.

    Raises:
        InputError: none, or one that is negative, NaN or infinite.
    """
    a = np.array(strengths, float)
    if a.ndim != 1 or a.size == 0 or not np.all((a >= 0) & (a < np.inf)):
        raise InputError(f"strengths must be a list of finite numbers of at least 0; got {strengths!r}.")
    return a


def checked_rows(factor: ArrayLike, strengths: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d width"]:
    """The weights U as an array with a row for each strength.

    Raises:
        InputError: another shape, or entries that are not finite.
    """
    U = np.array(factor, float)
    if U.ndim != 2 or len(U) != len(strengths) or U.shape[1] == 0:
        raise InputError(f"U must have a row for each of the {len(strengths)} strengths; got shape {U.shape!r}.")
    if not np.all(np.isfinite(U)):
        raise InputError(f"U must be finite; got {int(np.sum(~np.isfinite(U)))!r} entries that are not.")
    return U
