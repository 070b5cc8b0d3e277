"""Equation 4.3: growth, suppression and noise terms of the symmetric two-layer network's map W = U U^T.

    a_p     strengths, eigenvalues of the second moment A = diag(a), (d,); at least 0
    G_ij    growth, w_ij (a_i + a_j)
    S_ij    suppression, w_ij [w_ii (3 a_i + a_j) + (w_jj (3 a_j + a_i) where i != j)] / 2
    N_ij    noise, the sum of w_ki w_kj (a_i + a_j + 2 a_k) / 2 over k other than i and j

Gradient flow of |(U U^T - I) A^(1/2)|_F^2 / 2 in U is dU/dt = -(A E + E A) U with E = W - I, so that

    dW/dt = 2 (G - S - N).

The paper's 4.3 and D.2 have no factor 2, though D.1, with the gradient of the same loss, has: their time is 2 t. All
times here are t. The noise is not small: two entries of size w produce one of size w^2, as large as the entry that the
two will suppress, and the stage times of `concept_stages` are wrong without it.

Where A is not diagonal, transform U and all points to its eigenvectors: U -> R^T U.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.reprs import ReprMixin
from saddlescope.theory.concepts.arguments import validate_map, validate_strengths


@dataclass(frozen=True, eq=False, repr=False)
class UpdateTerms(ReprMixin):
    """Terms G, S and N of every entry of W, each (d, d) and symmetric."""

    growth: Float[np.ndarray, "d d"]
    suppression: Float[np.ndarray, "d d"]
    noise: Float[np.ndarray, "d d"]

    @property
    def velocity(self) -> Float[np.ndarray, "d d"]:
        """Velocity dW/dt = 2 (G - S - N)."""
        return 2 * (self.growth - self.suppression - self.noise)


@validate_arguments
def update_terms(strengths: ArrayLike, W: ArrayLike) -> UpdateTerms:
    """Return the growth, suppression and noise terms of every entry of W.

    Args:
        strengths: a, (d,), at least 0.
        W: symmetric and positive semidefinite, (d, d).

    Raises:
        InputError: negative or infinite strengths, or a W of a wrong shape, or that is not symmetric or not positive
            semidefinite.
    """
    a = validate_strengths(strengths)
    w = validate_map(W, a, name="W")
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
