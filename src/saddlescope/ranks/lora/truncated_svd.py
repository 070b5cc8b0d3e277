"""Truncated singular value decomposition: the best approximation of a weight update at low rank (Eckart and Young)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope.measure import energy_rank
from saddlescope.ranks.randomized_svd import pays, randomized_svd, scaled

TOLERANCE = 1e-3  # largest error of a randomised decomposition beyond the best one's, over |D|_F
ROUNDING = 1e-7  # share of the largest singular value below which one is rounding of factors stored in float32


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
    _update: Float[Tensor, "m n"] | None  # where one side of the vectors is computed from the other

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
        return cls(found.values * size, found.energy * size**2, found.excess, found.left, found.right, None)

    @classmethod
    def exactly(cls, update: Float[Tensor, "m n"]) -> "TruncatedSVD":
        """Decompose D D^T or D^T D in float64, whose eigenvectors are singular vectors of D.

        Values far below the largest, s_1, have errors up to 1e-8 s_1: less than the float32 rounding of the weights,
        and in the energy the square of that. This takes a fraction of the time of a singular value decomposition.
        """
        D, size = scaled(update)
        wide = D.shape[0] <= D.shape[1]
        short = D if wide else D.T
        squares, vectors = torch.linalg.eigh(short @ short.T)
        values, vectors = squares.flip(0).clamp(min=0).sqrt() * size, vectors.flip(1)
        energy = float((D * D).sum()) * size**2
        left, right = (vectors, None) if wide else (None, vectors.T)
        return cls(values, energy, 0.0, left, right, update.double())

    @classmethod
    def of_product(cls, left: Float[Tensor, "m k"], right: Float[Tensor, "k n"]) -> "TruncatedSVD":
        """Decompose L R, which is not formed if it is larger than its factors; all that is rounding of its terms is 0.

        Args:
            left: L, finite; converted to float64.
            right: R, finite; converted to float64.
        """
        left, right = left.double(), right.double()
        rounding = left.shape[1] * torch.finfo(left.dtype).eps * left.norm() * right.norm()
        if left.shape[1] >= min(left.shape[0], right.shape[1]):
            product = left @ right
            return cls.exactly(product * (product.norm() > rounding))
        Q, R = torch.linalg.qr(left)
        P, S = torch.linalg.qr(right.T)
        U, values, Vh = torch.linalg.svd(R @ S.T, full_matrices=False)
        values = values.where(values > rounding, 0.0)
        return cls(values, float((values**2).sum()), 0.0, Q @ U, Vh @ P.T, None)

    def truncate(self, rank: int) -> tuple[Float[Tensor, "m rank"], Float[Tensor, "rank n"]]:
        """Return B and A of the best approximation B A of this rank, balanced: B^T B = A A^T = diag(values)."""
        root = self.values[:rank].sqrt()
        inverse = torch.where(root > 0, 1 / root, 0.0)
        if self._left is not None and self._right is not None:
            return self._left[:, :rank] * root, root[:, None] * self._right[:rank]
        assert self._update is not None
        if self._left is not None:
            basis = self._left[:, :rank]
            return basis * root, inverse[:, None] * (basis.T @ self._update)
        assert self._right is not None
        basis = self._right[:rank]
        return (self._update @ basis.T) * inverse, root[:, None] * basis


def truncation(values: Float[Tensor, " values"], energy: float | None, rank: int | None, most: int | None) -> int:
    """Return the rank at which an update is truncated; 0 if it is 0.

    Args:
        values: its singular values, descending.
        energy: fraction of the energy to keep.
        rank: the rank, in place of `energy`; without both, all singular values above rounding are kept.
        most: with `energy`, the largest rank.
    """
    if not len(values) or not values[0] > 0:
        return 0
    if energy is not None:
        return min(int(energy_rank(values.numpy(), fraction=energy)), most or len(values))
    return min(rank, len(values)) if rank is not None else int((values > ROUNDING * values[0]).sum())


def require_ranks(energy: float | None, rank: int | None, max_rank: int | None) -> None:
    """Raise InputError unless a rank is stated in one way, and in its range."""
    if (energy is None) == (rank is None):
        raise InputError(
            "energy or rank must be given, and only one of them. Pass --energy 0.95 or --rank 8, for example."
        )
    if energy is not None and not 0 < energy <= 1:
        raise InputError(f"energy must be greater than 0 and at most 1; got {energy!r}.")
    if rank is not None and rank < 1:
        raise InputError(f"rank must be at least 1; got {rank!r}.")
    if max_rank is not None and (max_rank < 1 or energy is None):
        given = "rank, which is the rank of every layer" if energy is None else repr(max_rank)
        raise InputError(f"max_rank must be at least 1, and beside energy; got {given}.")
