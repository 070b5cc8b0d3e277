"""Token data whose l1 problem has many solutions, and the one of them that a start picks.

To data with the solution beta* a coordinate is added whose feature is the mean of two features of the support, with
the signs that beta* has there: B_c = (s_a B_a + s_b B_b) / 2. Moving |beta_a| and |beta_b| down by s/2 each and beta_c
up by s changes neither the margins nor the l1 norm, for any s up to twice the smaller of the two.

The flow ends at the solution of least entropy relative to omega_0^2,

    H(beta) = sum_j |beta_j| (ln(|beta_j| / omega_0,j^2) - 1),

since beta_j = +-(omega_0,j^2 / 2) e^|psi_j| late, with psi = B^T phi: its logarithms less those of omega_0^2 are linear
in as many numbers phi as there are margins, which is what makes H stationary. A factor common to all of omega_0 drops
out. The paper has no such statement: its theorem allows every solution.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.generators import conditioned_tokens
from saddlescope.theory.attention.svm import l1_svm


class DegenerateTokens(NamedTuple):
    """Data with a segment of l1 solutions.

    Attributes:
        data: the token data; the added coordinate is the last.
        beta: one end of the segment, with a last entry of 0, (d,).
        pair: the two coordinates that the last one can take from.
    """

    data: TokenData
    beta: Float[np.ndarray, "d"]
    pair: tuple[int, int]


def degenerate_tokens(samples: int, tokens: int, dim: int, seed: int) -> DegenerateTokens:
    """Return conditioned data in `dim` coordinates and one more, whose l1 problem has a segment of solutions."""
    data = conditioned_tokens(samples, tokens, dim, seed=seed)
    beta = l1_svm(data).beta
    a, b = (int(j) for j in np.argsort(-np.abs(beta))[:2])
    feature = (np.sign(beta[a]) * data.features[:, :, a] + np.sign(beta[b]) * data.features[:, :, b]) / 2
    added = np.zeros(data.X.shape[:2])
    np.put_along_axis(added, data.others, -feature, axis=1)  # so that x_opt - x_l has it, and z is 1 there
    wider = TokenData(
        np.concatenate([data.X, added[:, :, None]], axis=2),
        np.concatenate([data.z, np.ones((samples, 1))], axis=1),
        data.y,
        np.append(data.v, 0.0),
    )
    return DegenerateTokens(wider, np.append(beta, 0.0), (a, b))


def least_entropy(of: DegenerateTokens, scale: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
    """Return the l1 solution of least H for this omega_0."""
    first, second = (abs(of.beta[j]) for j in of.pair)
    prior = scale**2
    most = 2 * min(first, second)

    def slope(taken: float) -> float:
        halves = (np.log((size - taken / 2) / prior[j]) / 2 for size, j in zip((first, second), of.pair, strict=True))
        return float(np.log(taken / prior[-1]) - sum(halves))

    taken = float(brentq(slope, most * 1e-14, most * (1 - 1e-14), xtol=1e-15))  # pyright: ignore[reportArgumentType]
    beta = of.beta.copy()
    beta[-1] = taken
    for j in of.pair:
        beta[j] -= np.sign(beta[j]) * taken / 2
    return beta
