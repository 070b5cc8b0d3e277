"""Minima that lie on kinks, by Newton's method on the surfaces where the switches of units are 0.

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

_STEPS = 40
_REACH = 0.1  # how far Newton's method may move, relative to the norm of the weights
_FLAT = 1e-7  # eigenvalues below this share of the largest are flat directions
_EXACT = 1e-11  # relative gradient at a stationary point
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


class KinkedMinimum(NamedTuple):
    """A minimum on kinks.

    Attributes:
        thetas: shape (b, p).
        pattern: shape (b, N, k).
        curvature: smallest eigenvalue along the surfaces that is not flat; infinite if there is none.
        flat: number of flat directions.
    """

    thetas: Float[np.ndarray, "b p"]
    pattern: Float[np.ndarray, "b N k"]
    curvature: float
    flat: int


def minimum_on_kinks(
    pieces: Callable[[Float[np.ndarray, "b p"], Float[np.ndarray, "b N k"]], Pieces],
    start: Float[np.ndarray, "b p"],
    pattern: Float[np.ndarray, "b N k"],
    active: Bool[np.ndarray, "b N k"],
) -> KinkedMinimum | None:
    """Return the minimum near a point on some of the kinks next to it; None if there is none.

    Args:
        pieces: the objective at weights and a pattern.
        start: the weights.
        pattern: of all switches; a first guess for those next to it.
        active: which switches are next to it.
    """
    at = pieces(start, pattern)
    active = active & (np.linalg.norm(at.jumps, axis=-1) > _FLAT * np.max(np.abs(at.hessian)))
    for _ in range(int(active.sum()) + 1):
        found = _newton(pieces, start, pattern, active)
        if found is None:
            return None
        minimum, convex = found
        outside = active & ((minimum.pattern < -_INSIDE) | (minimum.pattern > 1 + _INSIDE))
        if not outside.any():
            return minimum if convex else None
        pattern = np.where(outside, (minimum.pattern > 0.5).astype(float), pattern)  # it leaves this kink
        active &= ~outside
    return None


def _newton(
    pieces: Callable[[Float[np.ndarray, "b p"], Float[np.ndarray, "b N k"]], Pieces],
    start: Float[np.ndarray, "b p"],
    pattern: Float[np.ndarray, "b N k"],
    active: Bool[np.ndarray, "b N k"],
) -> tuple[KinkedMinimum, bool] | None:
    """Return the stationary point on the active kinks, and whether the gradient jumps upwards across each."""
    thetas, pattern, allowed = start, pattern.copy(), np.inf
    reach = float(np.linalg.norm(start))
    for _ in range(_STEPS):
        at = pieces(thetas, pattern)
        N, B, tangent = _surfaces(at, active)
        back = -np.linalg.lstsq(N.T, at.switches[active], rcond=_DEPENDENT)[0]
        values, vectors = np.linalg.eigh(tangent.T @ at.hessian @ tangent)
        largest = float(np.max(np.abs(at.hessian)))
        curved = np.abs(values) > _FLAT * largest
        slope = at.slope + at.hessian @ back
        along = vectors.T @ (tangent.T @ slope)
        step = back - tangent @ (vectors[:, curved] @ (along[curved] / values[curved]))
        shift = -np.linalg.lstsq(B, at.slope + at.hessian @ step, rcond=_DEPENDENT)[0]
        left = np.linalg.norm(at.slope + B @ shift)
        moved = float(np.linalg.norm(step)) / reach
        if left <= _EXACT * largest * reach and moved <= 1e-8 and allowed <= 1e-6:
            thetas = thetas + step.reshape(thetas.shape)
            pattern[active] += shift
            if np.any(values < -_FLAT * largest):
                return None
            flattest = float(np.min(values[curved], initial=np.inf))
            upwards = np.sum(N * B, axis=0) >= -_FLAT * largest * np.sum(N**2, axis=0) ** 0.5
            return KinkedMinimum(thetas, pattern, flattest, int(np.sum(~curved))), bool(np.all(upwards))
        if moved > _REACH or (moved > 0.9 * allowed and moved > 1e-9):
            return None
        thetas, allowed = thetas + step.reshape(thetas.shape), max(moved, 1e-16)
        pattern[active] += shift
        others = (pieces(thetas, pattern).switches > 0).astype(float)
        pattern = np.where(active, pattern, others)
        if np.linalg.norm(thetas - start) > _REACH * reach:
            return None
    return None


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
    found[active] -= np.linalg.lstsq(at.jumps[active].T, at.slope, rcond=_DEPENDENT)[0]
    return found


def step_to_switches(
    at: Pieces, chosen: Bool[np.ndarray, "b N k"], values: Float[np.ndarray, "m"]
) -> Float[np.ndarray, "q"]:
    """Return the shortest step that changes the chosen switches by these values, to first order."""
    return np.linalg.lstsq(_surfaces(at, chosen)[0].T, values, rcond=_DEPENDENT)[0]


def _surfaces(at: Pieces, active: Bool[np.ndarray, "b N k"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return N, B, and an orthonormal basis of the directions along the surfaces."""
    units, size = np.nonzero(active)[0], at.normals.shape[-1]
    N = np.zeros((len(at.slope), len(units)))
    for m, (unit, normal) in enumerate(zip(units, at.normals[active], strict=True)):
        N[unit * size : (unit + 1) * size, m] = normal
    U, sizes, _ = np.linalg.svd(N)
    rank = int(np.sum(sizes > _DEPENDENT * np.max(sizes, initial=0.0)))
    return N, at.jumps[active].T, U[:, rank:]
