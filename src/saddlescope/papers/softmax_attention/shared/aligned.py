"""Data of Assumptions 2 to 4, data that break one part of Assumption 4, and aligned starts of K and Q.

p_i, q_i   x_i,opt / |x_i,opt| and z_i / |z_i|: the first n columns of U_K and U_Q; the others complete the bases
ξ_k, ξ_q   diagonals of Λ_K and Λ_Q, with ξ_k ⊙ ξ_q = 0 and ξ_k² + ξ_q² = 2ω² (equation 5). No entry of ω is 0, so that
           the columns beyond the n-th take part, too
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData

KINDS = ("Assumption 4", "without (ii)", "without (iii)")  # the last two break one part of Assumption 4

_RATIO = 0.3  # c of all pairs; one value for all samples, so that Assumption 3 holds

_NUDGE = 0.1  # move of the tokens that breaks their pairs, as standard deviation of its entries


class AlignedParams(EntryParams):
    """Sizes of the data and of K and Q."""

    samples: int = param(4, "number of samples n", ge=2)
    tokens: int = param(5, "number of tokens per sample L, an odd number", ge=3)
    dim: int = param(8, "dimension d of the tokens, from n to the columns of K and Q", ge=3)
    columns: int = param(9, "number of columns of K and Q", ge=3)
    seed: int = param(0, "seed of the first instance; the others count up", ge=0)

    def check(self) -> None:
        if self.tokens % 2 == 0:
            raise InputError(f"tokens must be odd; got {self.tokens!r}.")
        if not self.samples <= self.dim <= self.columns:
            raise InputError(
                f"dim must be between samples={self.samples!r} and columns={self.columns!r}; got {self.dim!r}."
            )


@dataclass(frozen=True, eq=False)
class AlignedStart:
    """K(0) = U_K Λ_K Vᵀ and Q(0) = U_Q Λ_Q Vᵀ.

    Attributes:
        left, right: U_K and U_Q, (d, d).
        columns: V, (d_e, d_e).
        keys, queries: ξ_k and ξ_q, (d,).
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
        """Return Λ_K and Λ_Q of any K and Q, (d, d_e); they are diagonal if K and Q are aligned."""
        return self.left.T @ K @ self.columns, self.right.T @ Q @ self.columns


def draw_instance(kind: str, samples: int, tokens: int, dim: int, seed: int) -> "TokenData":
    """Draw data that meet Assumptions 2 to 4 except as the kind says; queries point along their tokens or against them.

    Without (ii), one orthogonal matrix turns all queries. Without (iii), all tokens that are not optimal move at
    random, orthogonal to v.
    """
    from saddlescope.models.tokens.data import TokenData
    from saddlescope.models.tokens.generators import aligned_tokens

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


def draw_aligned_start(data: "TokenData", columns: int, scales: tuple[float, float], seed: int) -> AlignedStart:
    """Draw an aligned start, with |ω_j| log-uniform between two scales and at least d columns."""
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
    basis[:, :n] = first  # QR chooses the signs of its columns
    return basis
