"""Stationary points of units, on kinks too, by Newton's method on the surfaces where switches of units are 0.

    theta     weights of all units, q numbers
    lambda    pattern of the switches; between 0 and 1 for those that are 0
    L         the objective for a pattern: smooth, and on the surfaces independent of lambda
    N         gradients of the switches that are 0, shape (q, m)
    B         derivatives of grad L by their lambda: each is a multiple of a column of N, the jump of grad L

A point is stationary if grad L = 0 for some lambda in [0, 1] (Clarke 1983): gradient flow slides along kinks to such
points. It is a minimum if grad L jumps upwards across each kink, and the Hessian is positive along the surfaces.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from saddlescope._shared.symmetric_matrices import eigenvectors
from saddlescope.theory.saddle.newton import Linearised, NewtonPolicy, newton

NEWTON = NewtonPolicy()
_INSIDE = 1e-7  # by so much lambda may leave [0, 1]
_DEPENDENT = 1e-9  # singular values of N below this share of the largest


class Pieces(NamedTuple):
    """An objective for a pattern, and the switches of its units.

    Attributes:
        slope: grad L, shape (q,).
        hessian: of L, shape (q, q).
        switches: shape (b, N, k).
        normals: their derivatives by the weights of their unit, shape (b, N, k, p).
        jumps: derivatives of grad L by the pattern, shape (b, N, k, q).
    """

    slope: Float[np.ndarray, "q"]
    hessian: Float[np.ndarray, "q q"]
    switches: Float[np.ndarray, "b N k"]
    normals: Float[np.ndarray, "b N k p"]
    jumps: Float[np.ndarray, "b N k q"]


class StationaryWeights(NamedTuple):
    """A stationary point, possibly on kinks.

    Attributes:
        thetas: shape (b, p).
        pattern: shape (b, N, k).
        values: eigenvalues of the Hessian along the surfaces, ascending.
        vectors: its eigenvectors, as columns of weights.
        flat: True for eigenvalues that are 0 but for rounding.
        upwards: True if the gradient jumps upwards across each kink.
    """

    thetas: Float[np.ndarray, "b p"]
    pattern: Float[np.ndarray, "b N k"]
    values: Float[np.ndarray, "e"]
    vectors: Float[np.ndarray, "q e"]
    flat: Bool[np.ndarray, "e"]
    upwards: bool

    @property
    def curvature(self) -> float:
        """Smallest eigenvalue that is not flat; infinite if there is none."""
        return float(np.min(self.values[~self.flat], initial=np.inf))


def minimum_on_kinks(
    pieces: Callable[[Float[np.ndarray, "b p"], Float[np.ndarray, "b N k"]], Pieces],
    start: Float[np.ndarray, "b p"],
    pattern: Float[np.ndarray, "b N k"],
    active: Bool[np.ndarray, "b N k"],
) -> StationaryWeights | None:
    """Return the minimum near a point on some of the kinks next to it; None if there is none.

    Args:
        pieces: the objective at weights and a pattern.
        start: the weights.
        pattern: of all switches; a first guess for those next to it.
        active: which switches are next to it.
    """
    at = pieces(start, pattern)
    active = active & (np.linalg.norm(at.jumps, axis=-1) > NEWTON.flat * np.max(np.abs(at.hessian)))
    for _ in range(int(active.sum()) + 1):
        minimum = stationary_point(pieces, start, pattern, active, minimum=True)
        if minimum is None:
            return None
        outside = active & ((minimum.pattern < -_INSIDE) | (minimum.pattern > 1 + _INSIDE))
        if not outside.any():
            return minimum if minimum.upwards else None
        pattern = np.where(outside, (minimum.pattern > 0.5).astype(float), pattern)  # it leaves this kink
        active &= ~outside
    return None


def stationary_point(
    pieces: Callable[[Float[np.ndarray, "b p"], Float[np.ndarray, "b N k"]], Pieces],
    start: Float[np.ndarray, "b p"],
    pattern: Float[np.ndarray, "b N k"],
    active: Bool[np.ndarray, "b N k"],
    *,
    minimum: bool,
) -> StationaryWeights | None:
    """Return the stationary point next to a start on the active kinks; None if there is none.

    Args:
        pieces: the objective at weights and a pattern.
        start: the weights.
        pattern: of all switches; a first guess for the active ones.
        active: switches that stay at 0.
        minimum: True if the Hessian along the surfaces may have no negative eigenvalue.
    """
    pattern, shift = pattern.copy(), np.zeros(int(active.sum()))

    def linearised(flat: Float[np.ndarray, "q"]) -> Linearised[StationaryWeights | None]:
        nonlocal pattern, shift
        thetas = flat.reshape(start.shape)
        pattern[active] += shift
        if active.size:
            pattern = np.where(active, pattern, pieces(thetas, pattern).switches > 0)
        at = pieces(thetas, pattern)
        N, B, tangent = _surfaces(at, active)
        back = -_least_squares(N.T, at.switches[active])
        values, along = eigenvectors(tangent.T @ at.hessian @ tangent)
        vectors = tangent @ along
        largest = float(np.max(np.abs(values), initial=0.0)) or float(np.max(np.abs(at.hessian))) or 1.0
        flat_ones = np.abs(values) <= NEWTON.flat * largest
        slope = (at.slope + at.hessian @ back) @ vectors
        step = back - vectors[:, ~flat_ones] @ (slope[~flat_ones] / values[~flat_ones])
        shift = -_least_squares(B, at.slope + at.hessian @ step)
        norm = float(np.linalg.norm(flat))
        rest = at.slope + B @ -_least_squares(B, at.slope)
        left = max(float(np.linalg.norm(rest)) / (largest * norm), float(np.linalg.norm(back)) / norm)
        upwards = np.sum(N * B, axis=0) >= -NEWTON.flat * largest * np.sum(N**2, axis=0) ** 0.5
        # Next to a minimum with flat directions the gradient still bends them.
        bent = NEWTON.flat * largest * (1 if left <= NEWTON.stalled else 10)
        if minimum and left <= NEWTON.near and values.size and values[0] < -bent:
            return Linearised(np.inf, lambda: None, None)  # close to a stationary point that is no minimum
        settled = pattern.copy()
        settled[active] += shift
        found = StationaryWeights(thetas, settled, values, vectors, flat_ones, bool(np.all(upwards)))
        return Linearised(left, lambda: step, found)

    found = newton(linearised, start.ravel(), NEWTON)
    return None if found is None else found[1]


def _least_squares(matrix: Float[np.ndarray, "n m"], right: Float[np.ndarray, "n"]) -> Float[np.ndarray, "m"]:
    """Return the shortest solution of least squares; none of the columns that depend on others counts."""
    return np.linalg.lstsq(matrix, right, rcond=_DEPENDENT)[0]


def curvatures_on_kinks(
    pieces: Callable[[Float[np.ndarray, "b p"], Float[np.ndarray, "b N k"]], Pieces],
    thetas: Float[np.ndarray, "b p"],
    pattern: Float[np.ndarray, "b N k"],
    active: Bool[np.ndarray, "b N k"],
) -> Float[np.ndarray, "c"]:
    """Return the eigenvalues of the Hessian along the active kinks, for the pattern with the least gradient."""
    at = pieces(thetas, pattern)
    tangent = _surfaces(at, active)[2]
    return np.linalg.eigvalsh(tangent.T @ pieces(thetas, stationary_pattern(at, pattern, active)).hessian @ tangent)


def stationary_pattern(
    at: Pieces, pattern: Float[np.ndarray, "b N k"], active: Bool[np.ndarray, "b N k"]
) -> Float[np.ndarray, "b N k"]:
    """Return the pattern of the active switches with the least gradient."""
    found = pattern.copy()
    found[active] -= _least_squares(at.jumps[active].T, at.slope)
    return found


def step_to_switches(
    at: Pieces, chosen: Bool[np.ndarray, "b N k"], values: Float[np.ndarray, "m"]
) -> Float[np.ndarray, "q"]:
    """Return the shortest step that changes the chosen switches by these values, to first order."""
    return _least_squares(_surfaces(at, chosen)[0].T, values)


def _surfaces(at: Pieces, active: Bool[np.ndarray, "b N k"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return N, B, and an orthonormal basis of the directions along the surfaces."""
    units, size = np.nonzero(active)[0], at.normals.shape[-1]
    N = np.zeros((len(at.slope), len(units)))
    for m, (unit, normal) in enumerate(zip(units, at.normals[active], strict=True)):
        N[unit * size : (unit + 1) * size, m] = normal
    U, sizes, _ = np.linalg.svd(N)
    rank = int(np.sum(sizes > _DEPENDENT * np.max(sizes, initial=0.0)))
    return N, at.jumps[active].T, U[:, rank:]
