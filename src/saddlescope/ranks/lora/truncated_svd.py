"""Truncated singular value decomposition: the best approximation of a weight update at low rank (Eckart and Young)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from saddlescope.ranks.randomized_svd import pays, randomized_svd, scaled

TOLERANCE = 1e-3  # largest error of a randomised decomposition beyond the best one's, over |D|_F


@dataclass(frozen=True, eq=False)
class TruncatedSVD:
    """Singular value decomposition of an update D, m x n, for truncation.

    Attributes:
        values: singular values, descending; only the leading ones if the decomposition is randomised.
        energy: |D|_F^2, of all singular values.
        excess: bound on the error beyond the best one's, over |D|_F, at the rank of a randomised decomposition; 0 of an
            exact one.
    """

    values: Float[Tensor, " values"]
    energy: float
    excess: float
    _left: Float[Tensor, "m values"] | None
    _right: Float[Tensor, "values n"] | None
    _update: Float[Tensor, "m n"]

    @classmethod
    def of(cls, update: Float[Tensor, "m n"], rank: int | None = None) -> "TruncatedSVD":
        """Decompose an update.

        At a low rank of a large matrix the decomposition is randomised, and its error is at most `TOLERANCE` |D|_F
        above that of the best approximation; where the certificate of `randomized_svd` does not show that, and for all
        other ranks, everything is computed, by `exactly`.

        Args:
            update: D, finite; converted to float64.
            rank: the only rank at which it will be truncated; None if all singular values are needed.
        """
        if rank is None or not pays(update.shape, rank):
            return cls.exactly(update)
        D, size = scaled(update)
        found = randomized_svd(D, rank, tolerance=TOLERANCE)
        if found.excess > TOLERANCE:
            return cls.exactly(update)
        return cls(found.values * size, found.energy * size**2, found.excess, found.left, found.right, update.double())

    @classmethod
    def exactly(cls, update: Float[Tensor, "m n"]) -> "TruncatedSVD":
        """Decompose D D^T or D^T D in float64, whose eigenvectors are singular vectors of D.

        Values far below the largest, s_1, have errors up to 1e-8 s_1: less than the float32 rounding of the weights,
        and in the energy the square of that. This takes a fraction of the time of a singular value decomposition.

        Args:
            update: D, finite; converted to float64.
        """
        D, size = scaled(update)
        wide = D.shape[0] <= D.shape[1]
        short = D if wide else D.T
        squares, vectors = torch.linalg.eigh(short @ short.T)
        values, vectors = squares.flip(0).clamp(min=0).sqrt() * size, vectors.flip(1)
        energy = float((D * D).sum()) * size**2
        left, right = (vectors, None) if wide else (None, vectors.T)
        return cls(values, energy, 0.0, left, right, update.double())

    def truncate(self, rank: int) -> tuple[Float[Tensor, "m rank"], Float[Tensor, "rank n"]]:
        """Return B and A of the best approximation B A of this rank, balanced: B^T B = A A^T = diag(values)."""
        root = self.values[:rank].sqrt()
        inverse = torch.where(root > 0, 1 / root, 0.0)
        if self._left is not None and self._right is not None:
            return self._left[:, :rank] * root, root[:, None] * self._right[:rank]
        if self._left is not None:
            basis = self._left[:, :rank]
            return basis * root, inverse[:, None] * (basis.T @ self._update)
        assert self._right is not None
        basis = self._right[:rank]
        return (self._update @ basis.T) * inverse, root[:, None] * basis
