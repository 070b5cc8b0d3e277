"""Data of Assumptions 2 to 4, variants that break one part of Assumption 4, and starts of K and Q that are aligned.

p_i, q_i   x_i,opt / |x_i,opt| and z_i / |z_i|: the first n columns of U_K and U_Q; the others complete the bases
xi_k, xi_q diagonals of Lambda_K, Lambda_Q: xi_k * xi_q = 0, xi_k^2 + xi_q^2 = 2 omega^2 (equation 5), none of
           them absent, so that the columns beyond the n-th take part, too
"""

from dataclasses import dataclass

import numpy as np

from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.generators import aligned_tokens
from saddlescope.papers.softmax_attention.shared.aligned_params import KINDS

_RATIO = 0.3  # c of all pairs, one for all samples so that Assumption 3 holds

_NUDGE = 0.1  # what unpairs tokens, in units of a normal deviation


@dataclass(frozen=True, eq=False)
class AlignedStart:
    """K(0) = U_K Lambda_K V^T and Q(0) = U_Q Lambda_Q V^T.

    Attributes:
        left, right: U_K and U_Q, (d, d).
        columns: V, (d_e, d_e).
        keys, queries: xi_k and xi_q, (d,).
    """

    left: np.ndarray
    right: np.ndarray
    columns: np.ndarray
    keys: np.ndarray
    queries: np.ndarray

    @property
    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """K(0) and Q(0), (d, d_e)."""
        rows = self.columns[:, : len(self.keys)].T
        return (self.left * self.keys) @ rows, (self.right * self.queries) @ rows

    def coordinates(self, K: np.ndarray, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Lambda_K and Lambda_Q of any K and Q, (d, d_e): diagonal where they are aligned."""
        return self.left.T @ K @ self.columns, self.right.T @ Q @ self.columns


def draw_instance(kind: str, samples: int, tokens: int, dim: int, seed: int) -> TokenData:
    """Draw data that meet Assumptions 2 to 4 except as the kind says; queries point along their tokens or against them.

    Without (ii), all queries are turned by one orthogonal matrix. Without (iii), tokens that are not optimal are moved
    at random, orthogonal to v.
    """
    data = aligned_tokens(samples, tokens, dim, seed=seed, ratio=_RATIO, signed=True)
    rng = np.random.default_rng((seed, 1))
    if kind == KINDS[1]:
        return TokenData(data.X, data.z @ np.linalg.qr(rng.standard_normal((dim, dim)))[0], data.y, data.v)
    if kind == KINDS[2]:
        moved = _NUDGE * rng.standard_normal(data.X.shape)
        moved[np.arange(samples), data.optimal] = 0.0
        unit = data.v / np.linalg.norm(data.v)
        return TokenData(data.X + moved - (moved @ unit)[..., None] * unit, data.z, data.y, data.v)
    return data


def draw_aligned_start(data: TokenData, columns: int, scales: tuple[float, float], seed: int) -> AlignedStart:
    """Draw an aligned start, with omega_j log-uniform between two scales and d_e columns, at least d."""
    rng = np.random.default_rng((seed, 2))
    d = data.dim
    optimal = data.X[np.arange(data.samples), data.optimal]
    omega = np.exp(rng.uniform(np.log(scales[0]), np.log(scales[1]), d)) * 2**0.5 * rng.choice((-1.0, 1.0), d)
    of_keys = rng.permutation(d) % 2 == 0  # half of them, so that neither K nor Q is 0
    return AlignedStart(
        left=_complete_basis(optimal, rng),
        right=_complete_basis(data.z, rng),
        columns=np.linalg.qr(rng.standard_normal((columns, columns)))[0],
        keys=np.where(of_keys, omega, 0.0),
        queries=np.where(of_keys, 0.0, omega),
    )


def _complete_basis(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an orthogonal matrix whose first columns have the directions of orthogonal rows."""
    n, d = rows.shape
    first = rows.T / np.linalg.norm(rows, axis=1)
    basis = np.linalg.qr(np.concatenate([first, rng.standard_normal((d, d - n))], axis=1))[0]
    basis[:, :n] = first  # QR fixes signs by its algorithm
    return basis
