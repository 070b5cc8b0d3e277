"""Singular vectors of tracked updates, and the overlap of their leading subspaces from record to record."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from saddlescope._shared.errors import InputError, unknown
from saddlescope._shared.reprs import ReprMixin
from saddlescope.measure import subspace_overlap
from saddlescope.ranks.tracker.records import SIDES


@dataclass(frozen=True, eq=False)
class Bases:
    """Leading singular vectors of a member at one record.

    Attributes:
        left, right: (..., rows, k), orthonormal columns in the order of the singular values; of all heads, or of one
            matrix.
        counted: (...), number of them above the noise floor.
    """

    left: Float[np.ndarray, "*heads left_rows k"]
    right: Float[np.ndarray, "*heads right_rows k"]
    counted: Int64[np.ndarray, "*heads"]

    def leading(self, k: int) -> "Bases":
        """Return the first k vectors."""
        return Bases(self.left[..., :k], self.right[..., :k], np.minimum(self.counted, k))

    def single(self) -> "Bases":
        """Return the vectors in single precision, as records keep them."""
        return Bases(self.left.astype(np.float32), self.right.astype(np.float32), self.counted)

    def tensors(self) -> list[Tensor]:
        """Return the arrays as tensors, for checkpoints."""
        return [torch.from_numpy(np.asarray(part)) for part in (self.left, self.right, self.counted)]

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> "Bases":
        """Return the vectors in the tensors of a checkpoint."""
        return cls(*(part.numpy().copy() for part in tensors))


@dataclass(frozen=True, eq=False, repr=False)
class SingularVectors(ReprMixin):
    """Leading singular vectors of the update of one product of a layer, or of one matrix.

    Attributes:
        steps: number of optimiser steps at each record that has vectors.
        left: left singular vectors in columns, (records, heads, rows, k); without the axis of heads for a matrix. Of a
            product W_K W_Q^T they are in the space of the inputs of keys. NaN for vectors below the noise floor.
        right: right singular vectors, likewise; of W_K W_Q^T in the space of the inputs of queries.
    """

    steps: Int64[np.ndarray, " records"]
    left: Float[np.ndarray, "records *heads left_rows k"]
    right: Float[np.ndarray, "records *heads right_rows k"]

    @classmethod
    def of(cls, steps: list[int], bases: list[Bases]) -> "SingularVectors":
        """Combine the vectors of several records."""

        def stacked(side: str) -> np.ndarray:
            found = [np.where(np.arange(getattr(one, side).shape[-1]) < one.counted[..., None, None],
                              getattr(one, side), np.nan) for one in bases]  # fmt: skip
            return np.stack(found)

        return cls(np.array(steps, dtype=np.int64), stacked("left"), stacked("right"))

    def overlap(self, side: str = "left", *, k: int | None = None) -> Float[np.ndarray, "records records *heads"]:
        """Return the overlaps of the leading subspaces at all pairs of records, from 0 (orthogonal) to 1 (the same).

        Args:
            side: "left" or "right".
            k: dimension of the subspaces; None takes all recorded vectors. Pairs of which one has fewer vectors above
                the noise floor are compared in the smaller dimension, and are NaN if it is 0.

        Raises:
            InputError: another side, or k above the number of recorded vectors.
        """
        if side not in SIDES:
            raise unknown("side", side, SIDES)
        vectors: np.ndarray = getattr(self, side)
        most = vectors.shape[-1]
        if k is not None and not 1 <= k <= most:
            raise InputError(f"k must be from 1 to {most}, the number of recorded vectors; got {k!r}.")
        kept = vectors[..., : most if k is None else k].astype(np.float64)
        counted = np.isfinite(kept).all(axis=-2).sum(axis=-1)
        found = np.full((len(kept), *kept.shape[:-2]), np.nan)
        for at in np.ndindex(counted.shape[1:]):
            for one, other in np.ndindex(len(kept), len(kept)):
                size = int(min(counted[(one, *at)], counted[(other, *at)]))
                if size:
                    pair = (kept[(record, *at)][:, :size] for record in (one, other))
                    found[(one, other, *at)] = subspace_overlap(*pair)
        return found
