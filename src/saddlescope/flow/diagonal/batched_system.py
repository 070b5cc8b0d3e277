"""Many gradient flows as stiff systems, in the mirror coordinates of `saddlescope.flow.diagonal.coordinates`."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from saddlescope.flow.diagonal.coordinates import MirrorCoordinates
from saddlescope.loss.batched import LossBatch
from saddlescope.numerics.ndf_batched import AbstractSystems

_NEGLIGIBLE = 1e-2  # columns of the Jacobian, times the step: they slow Newton's method by about this rate
_DENSE = 0.6  # share of active columns above which a full inverse is faster
# Relative change of the gradient that a step may cause before its length is limited. With 1, Newton's method fails
# again and again at each transition: at 1e-1024, twice the gradients.
_REACH = 0.003


class MirrorSystems(AbstractSystems):
    """Losses in mirror coordinates: y' = -rate dL/dbeta(beta(y)), with the Jacobians -rate H(beta) diag(dbeta/dy).

    Attributes:
        rates: of all flows, running or not.
        gradients, hessians, products: numbers of evaluations for each flow, of products with vectors for the last.
    """

    def __init__(self, losses: LossBatch, coordinates: list[MirrorCoordinates]) -> None:
        self.losses = losses
        self._coordinates = stacked(coordinates)
        self.rates = np.array([each.rate for each in coordinates])
        self._rate = self.rates
        size = self._coordinates.p.shape
        self._hessian, self._pull = np.zeros((*size, size[1])), np.zeros(size)  # pull: largest entry of each column
        self._system = np.arange(size[0])
        self.gradients, self.hessians, self.products = np.zeros((3, size[0]), int)

    def slope(self, y: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n p"]:
        """Return the right-hand sides, rate * g."""
        self.gradients[self._system] += 1
        return -self._rate[:, None] * self.losses.gradients(self._coordinates.point(y))

    def refresh(self, rows: Int[np.ndarray, "r"], y: Float[np.ndarray, "r p"]) -> None:
        """Evaluate Hessians."""
        self.hessians[self._system[rows]] += 1
        hessian = self.losses.hessians(rows, self._part(rows).point(y))
        hessian = np.where(np.isfinite(hessian), hessian, 0.0)
        self._hessian[rows], self._pull[rows] = hessian, np.abs(hessian).max(axis=1)

    def newton_inverse(
        self, rows: Int[np.ndarray, "r"], y: Float[np.ndarray, "r p"], c: Float[np.ndarray, "r"]
    ) -> Float[np.ndarray, "r p p"]:
        """Return the inverses of 1 + c rate H diag(metric), without negligible columns."""
        factor = (c * self._rate[rows])[:, None] * self._part(rows).metric(y)
        weight = factor * self._pull[rows]
        factor = np.where(weight > _NEGLIGIBLE, factor, 0.0)  # flow by flow, though the largest block decides the size
        active = np.count_nonzero(factor, axis=1)
        dense = active > _DENSE * y.shape[1]
        if dense.all():
            return self._full_inverse(rows, factor)
        if not dense.any():
            return self._block_inverse(rows, factor, weight, int(active.max()))
        inverse, sparse = np.empty((*y.shape, y.shape[1])), ~dense
        inverse[dense] = self._full_inverse(rows[dense], factor[dense])
        inverse[sparse] = self._block_inverse(rows[sparse], factor[sparse], weight[sparse], int(active[sparse].max()))
        return inverse

    def _full_inverse(self, rows: np.ndarray, factor: np.ndarray) -> np.ndarray:
        return _or_nan(np.linalg.inv, _plus_one(self._hessian[rows] * factor[:, None, :]))

    def _block_inverse(self, rows: np.ndarray, factor: np.ndarray, weight: np.ndarray, count: int) -> np.ndarray:
        """Invert 1 + K with active columns A of K: 1 - K_A (1 + K_AA)^-1 in these, and 1 in the others."""
        p = factor.shape[1]
        inverse = np.zeros((len(rows), p, p))
        if count:
            active = np.argpartition(-weight, count - 1, axis=1)[:, :count]
            every = np.arange(len(rows))[:, None]
            columns = np.swapaxes(self._hessian[rows[:, None], active], 1, 2) * factor[every, active][:, None, :]
            block = _plus_one(columns[every, active])
            right = _or_nan(np.linalg.solve, np.swapaxes(block, 1, 2), np.swapaxes(columns, 1, 2))
            np.swapaxes(inverse, 1, 2)[every, active] = -right
        return _plus_one(inverse)

    def shorten(
        self,
        rows: Int[np.ndarray, "r"],
        y: Float[np.ndarray, "r p"],
        moved: Float[np.ndarray, "r p"],
        slope: Float[np.ndarray, "r p"],
    ) -> Float[np.ndarray, "r"]:
        """Shorten a step in which a product would change the gradient by more than a small part, by the last Hessian.

        On a plateau the state moves along a straight line, so that steps grow until one overshoots the transition by
        many e-folds; this finds the transition without evaluating the gradient.
        """
        fraction = np.ones(len(rows))
        far = np.flatnonzero(np.abs(moved).max(axis=1) > 1)
        if len(far) == 0:
            return fraction
        rows, y, moved = rows[far], y[far], moved[far]
        coordinates, rate = self._part(rows), self._rate[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            allowed = np.log(_REACH * np.abs(slope[far]).max(axis=1) / rate)[:, None] - np.log(self._pull[rows])
            # e^(exponent + 2 f |moved|) - e^exponent = e^allowed, for the half of the product that grows
            exponent = np.where(moved > 0, coordinates.p + 2 * y, coordinates.q - 2 * y)
            reach = np.logaddexp(exponent, allowed) - exponent
            share = np.fmin.reduce(reach / (2 * np.abs(moved)), axis=1)
        fraction[far] = np.where(share > 0.9, 1.0, np.maximum(share, 1e-3))
        return fraction

    def keep(self, rows: Int[np.ndarray, "r"]) -> None:
        """Drop all flows but these."""
        self.losses.keep(rows)
        self._coordinates, self._rate = self._part(rows), self._rate[rows]
        self._hessian, self._pull, self._system = self._hessian[rows], self._pull[rows], self._system[rows]

    def _part(self, rows: np.ndarray) -> MirrorCoordinates:
        return part(self._coordinates, rows)


def _plus_one(matrix: np.ndarray) -> np.ndarray:
    """Add the identity, in place."""
    diagonal = np.einsum("rii->ri", matrix)
    diagonal += 1
    return matrix


def _or_nan(operation: Callable[..., np.ndarray], *stacks: np.ndarray) -> np.ndarray:
    """Apply an operation to stacks of matrices; NaN where one is singular, so that only its Newton iteration fails."""
    try:
        return operation(*stacks)
    except np.linalg.LinAlgError:
        if len(stacks[0]) == 1:
            return np.full_like(stacks[-1], np.nan)
        return np.concatenate([_or_nan(operation, *each) for each in zip(*(s[:, None] for s in stacks), strict=True)])


def stacked(coordinates: list[MirrorCoordinates]) -> MirrorCoordinates:
    """Stack coordinates for states with the flow as the first axis; rates and signs differ and are left out."""
    p, q = np.stack([each.p for each in coordinates]), np.stack([each.q for each in coordinates])
    return replace(coordinates[0], p=p, q=q, rate=np.nan)


def part(coordinates: MirrorCoordinates, rows: np.ndarray) -> MirrorCoordinates:
    """Select the coordinates of some flows; rows may repeat."""
    return replace(coordinates, p=coordinates.p[rows], q=coordinates.q[rows])
