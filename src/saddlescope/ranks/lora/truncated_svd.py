"""Truncated singular value decomposition: the best approximation of a weight update at low rank (Eckart and Young)."""

from collections.abc import Sequence
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
        (left, one), (right, other) = scaled(left), scaled(right)
        size = one * other
        rounding = left.shape[1] * torch.finfo(left.dtype).eps * left.norm() * right.norm()
        if left.shape[1] >= min(left.shape[0], right.shape[1]):
            product = left @ right
            return cls.exactly(product * (product.norm() > rounding) * size)
        Q, R = torch.linalg.qr(left)
        P, S = torch.linalg.qr(right.T)
        U, values, Vh = torch.linalg.svd(R @ S.T, full_matrices=False)
        values = values.where(values > rounding, 0.0) * size
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


@dataclass(frozen=True)
class Truncation:
    """Rank at which updates are truncated: stated, or chosen by their singular values.

    Attributes:
        energy: fraction of the energy to keep, in (0, 1].
        rank: the rank, in place of `energy`; without both, all singular values above rounding are kept.
        max_rank: with `energy`, the largest rank.

    Raises:
        InputError: a number out of its range, or a largest rank without `energy`.
    """

    energy: float | None = None
    rank: int | None = None
    max_rank: int | None = None

    def __post_init__(self) -> None:
        if self.energy is not None and not 0 < self.energy <= 1:
            raise InputError(f"energy must be greater than 0 and at most 1; got {self.energy!r}.")
        if self.rank is not None and self.rank < 1:
            raise InputError(f"rank must be at least 1; got {self.rank!r}.")
        if self.max_rank is not None and (self.max_rank < 1 or self.energy is None):
            given = "rank, which is the rank of every layer" if self.energy is None else repr(self.max_rank)
            raise InputError(f"max_rank must be at least 1, and beside energy; got {given}.")

    @classmethod
    def stated(cls, energy: float | None, rank: int | None, max_rank: int | None) -> "Truncation":
        """Return a truncation; raise InputError unless energy or rank is given, and only one of them."""
        if (energy is None) == (rank is None):
            raise InputError(
                "energy or rank must be given, and only one of them. Pass --energy 0.95 or --rank 8, for example."
            )
        return cls(energy, rank, max_rank)

    def of(self, svds: Sequence[TruncatedSVD]) -> tuple[int, list[tuple[Tensor, Tensor]]]:
        """Return the largest rank of some updates, 0 if all are 0, and with it B and A of each."""
        rank = max(self._rank_of(svd.values) for svd in svds)
        return rank, [svd.truncate(rank) for svd in svds] if rank else []

    def _rank_of(self, values: Float[Tensor, " values"]) -> int:
        if not len(values) or not values[0] > 0:
            return 0
        if self.energy is not None:
            return min(int(energy_rank(values.numpy(), fraction=self.energy)), self.max_rank or len(values))
        return int((values > ROUNDING * values[0]).sum()) if self.rank is None else min(self.rank, len(values))
