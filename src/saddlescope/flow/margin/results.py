"""Results of margin flows, one class per parametrisation: weights and directions over time."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.reprs import ReprMixin
from saddlescope.flow.margin.key_query_system import Reduction
from saddlescope.flow.margin.records import MarginFlow


@validate_arguments
@dataclass(frozen=True, repr=False)
class DiagonalMarginInit(ReprMixin):
    """Initial condition of the flow of diagonal weights, beta = xi_k * xi_q = (w+^2 - w-^2) / 2 (Lemma 4.1).

    Attributes:
        plus: w+(0), (d,).
        minus: w-(0), (d,).
    """

    plus: Float[np.ndarray, "d"]
    minus: Float[np.ndarray, "d"]

    @classmethod
    def at_scale(cls, omega0: ArrayLike, dim: int) -> "DiagonalMarginInit":
        """Return w+ = w- = omega_0, one for all coordinates or one for each: beta(0) = 0 (equation 5)."""
        scale = np.broadcast_to(np.asarray(omega0, float), (dim,)).copy()
        return cls(scale, scale)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DiagonalMarginFlow(MarginFlow):
    """Flow of diagonal weights.

    Attributes:
        phi: 2 int r dt (Lemma A.1), (k, n, m).
        features: B, (n, m, d).
        start: w+ and w- at time 0.
    """

    phi: Float[np.ndarray, "k n m"]
    features: Float[np.ndarray, "n m d"]
    start: DiagonalMarginInit

    @cached_property
    def psi(self) -> Float[np.ndarray, "k d"]:
        """B^T phi."""
        return np.einsum("knm,nmd->kd", self.phi, self.features)

    @cached_property
    def weights(self) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, "k d"]]:
        """w+ and w-, whose product is conserved."""
        return self.start.plus * np.exp(self.psi / 2), self.start.minus * np.exp(-self.psi / 2)

    @cached_property
    def beta(self) -> Float[np.ndarray, "k d"]:
        """W = diag(beta)."""
        plus, minus = self.weights
        return (plus**2 - minus**2) / 2

    @property
    def direction(self) -> Float[np.ndarray, "k d"]:
        """The direction beta / mu, NaN where mu is not positive."""
        return self.beta / _positive(self.margin)[:, None]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MatrixMarginFlow(MarginFlow):
    """Flow of W alone: W = W(0) + sum_il phi_il D_il z_i^T.

    Attributes:
        phi: int r dt, (k, n, m).
        differences: D, (n, m, d).
        queries: z, (n, d).
        start: W(0), (d, d), or None for 0.
    """

    phi: Float[np.ndarray, "k n m"]
    differences: Float[np.ndarray, "n m d"]
    queries: Float[np.ndarray, "n d"]
    start: Float[np.ndarray, "d d"] | None

    def weights(self, record: int) -> Float[np.ndarray, "d d"]:
        """Return W at one recorded time."""
        moved = np.einsum("nm,nmd->nd", self.phi[record], self.differences).T @ self.queries
        return moved if self.start is None else self.start + moved

    def direction(self, record: int) -> Float[np.ndarray, "d d"]:
        """Return W / mu at one recorded time, NaN where mu is not positive."""
        return self.weights(record) / _positive(self.margin)[record]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class KeyQueryMarginFlow(MarginFlow):
    """Flow of keys and queries, W = K Q^T.

    Attributes:
        reduced_keys: the part of K that moves, (k, m_x, r).
        reduced_queries: the part of Q that moves, (k, m_z, r).
        reduction: maps back to K and Q.
        conservation_defects: |K^T K - Q^T Q - its value at time 0| over |K^T K|, Frobenius norms of the parts that
            move, (k,). The flow conserves it; this solver does not enforce that.
    """

    reduced_keys: Float[np.ndarray, "k m_x r"]
    reduced_queries: Float[np.ndarray, "k m_z r"]
    reduction: Reduction
    conservation_defects: Float[np.ndarray, "k"]

    def keys(self, record: int) -> Float[np.ndarray, "d e"]:
        """Return K at one recorded time."""
        of = self.reduction
        return of.of_keys @ (self.reduced_keys[record] @ of.columns) + of.resting_keys

    def queries(self, record: int) -> Float[np.ndarray, "d e"]:
        """Return Q at one recorded time."""
        of = self.reduction
        return of.of_queries @ (self.reduced_queries[record] @ of.columns) + of.resting_queries

    def direction(self, record: int) -> tuple[Float[np.ndarray, "d e"], Float[np.ndarray, "d e"]]:
        """Return K / sqrt(mu) and Q / sqrt(mu), factors of W / mu at one record, NaN where mu is not positive."""
        root = np.sqrt(_positive(self.margin)[record])
        return self.keys(record) / root, self.queries(record) / root

    def spectrum(self, record: int) -> Float[np.ndarray, "s"]:
        """Return the singular values of W = K Q^T at one recorded time, descending, from its factors."""
        left, right = (np.asarray(np.linalg.qr(of(record), mode="r")) for of in (self.keys, self.queries))
        return np.linalg.svd(left @ right.T, compute_uv=False)


def _positive(margin: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
    return np.where(margin > 0, margin, np.nan)
