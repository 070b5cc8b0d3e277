"""Limit W(infinity) of the symmetric two-layer network from any start, of full rank or not.

The weights obey dU/dt = M U with some matrix M(t), so that the rank of U and the zero blocks of W are conserved at all
finite times. Along the flow

    d/dt log det W = 4 tr(A (I - W)),

which is positive at every projection W that omits a direction of positive strength: a start of full rank, with
log det W0 > -infinity, cannot end there. It ends at W = I on all of them. So a network that fails to learn a concept
(Figure 10 of the paper) starts from a deficient rank, or is still on a plateau, or its run failed numerically; no other
limit exists.

A start of rank r has the stationary points where W is a projection onto r eigenvectors of A, in each block of concepts
that W0 couples, with the rank that this block has. The only attracting one has the r strongest. The others are strict
saddles, reached from a set of starts of measure zero among those with these blocks and ranks.

    A       diag(a), the second moment in its eigenvectors; a_p strengths, (d,)
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import connected_components

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.theory.concepts.arguments import validate_factor, validate_strengths


@dataclass(frozen=True, eq=False, repr=False)
class PredictedLimit(ReprMixin):
    """Limit of gradient flow.

    Attributes:
        strengths: a, (d,).
        learned: the directions of positive strength that are learned, ascending.
        rank: of the start.
    """

    strengths: Float[np.ndarray, "d"]
    learned: tuple[int, ...]
    rank: int

    @property
    def complete(self) -> bool:
        """True if every direction of positive strength is learned."""
        return len(self.learned) == int(np.sum(self.strengths > 0))

    @property
    def loss(self) -> float:
        """Loss of equation 4.1 at the limit: half the sum of the strengths that are not learned."""
        return float(np.sum(np.delete(self.strengths, list(self.learned)))) / 2

    def output(self, point: ArrayLike) -> Float[np.ndarray, "d"]:
        """Return W(infinity) z at a point without components along directions of strength 0.

        The block of W between such directions depends on the whole path, so it is not predicted.

        Raises:
            InputError: a point of a wrong shape, not finite, or with such components.
        """
        z = np.array(point, float)
        if z.shape != self.strengths.shape or not np.all(np.isfinite(z)) or np.any(z[self.strengths == 0] != 0):
            raise InputError(
                f"point must be {len(self.strengths)} finite numbers, 0 where the strength is 0; got {point!r}."
            )
        return np.where(np.isin(np.arange(len(z)), self.learned), z, 0.0)

    def test_loss(self, point: ArrayLike) -> float:
        """Return |W(infinity) z - z|^2 / 2 at a point, as for `output`."""
        return float(np.sum((self.output(point) - np.array(point, float)) ** 2)) / 2


@validate_arguments
def predicted_limit(strengths: ArrayLike, factor: ArrayLike) -> PredictedLimit:
    """Predict the limit of gradient flow from almost every start with the blocks and ranks of this one.

    Args:
        strengths: a, (d,), at least 0.
        factor: U0, (d, d'), any width; of a given W0 by `saddlescope.models.symmetric_factor`. Entries of U0 U0^T that
            are 0 within rounding separate blocks; singular values that are, lower the rank.

    Raises:
        InputError: inconsistent shapes, values that are not finite; or a rank that divides equal strengths, of which
            any combination may be learned.
    """
    a = validate_strengths(strengths)
    U = validate_factor(factor, a)
    sizes = np.linalg.norm(U, axis=1)
    units = U / np.where(sizes > 0, sizes, 1.0)[:, None]
    rounding = 4 * max(U.shape) * np.finfo(float).eps
    blocks, block = connected_components(np.abs(units @ units.T) > rounding, directed=False)
    learned: list[int] = []
    total = 0
    for members in (np.flatnonzero(block == b) for b in range(blocks)):
        values = np.linalg.svd(units[members], compute_uv=False)
        rank = int(np.sum(values > rounding * max(1.0, values[0])))
        order = members[np.argsort(-a[members], kind="stable")]
        taken, left = order[:rank], order[rank:]
        if rank and len(left) and a[taken[-1]] == a[left[0]] > 0:
            raise InputError(
                f"strengths must differ where the rank of U0 ends, {rank} in the block {members.tolist()!r}; got "
                f"{a.tolist()!r}, of which equal ones are learned in any combination."
            )
        learned += [int(k) for k in taken if a[k] > 0]
        total += rank
    return PredictedLimit(a, tuple(sorted(learned)), total)
