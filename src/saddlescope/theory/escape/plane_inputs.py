"""Inputs that span at most a plane, where maxima over one neuron's direction have a closed form.

    x_j     inputs in coordinates of the plane: unit vectors of different directions
    u       a unit vector of the plane: the incoming weights of a neuron
    h_j(u)  max(u.x_j, 0), the activation of that neuron

The lines u.x_j = 0 cut the circle of all u into arcs. Inside an arc every h_j is linear or 0, so that sum_j mu_j h_j(u)
is m.u with m the sum of mu_j x_j over the inputs active there: its maximum is |m|, if m points into the arc, or is at
an end. All bounds hold up to rounding, which `PlaneSaddle.slack` covers.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from saddlescope._shared.errors import InputError
from saddlescope.theory.escape.speed import Matrix

_ALIKE = 1e-12  # radians: inputs whose directions differ by less are merged, at a cost included in `slack`
_SAME_END = 1e-15  # radians: arcs shorter than this are rounding
_WIDEST = 2.0  # radians: wider arcs are cut, so that the ends of an arc span it


@dataclass(frozen=True)
class Arcs:
    """Arcs of directions u between the lines u.x_j = 0.

    Attributes:
        inputs: (2, n) unit vectors x_j.
        ends: (k, 2) unit vectors; arc i goes anticlockwise from end i to end i + 1, and the last one to end 0.
        active: (k, n), true where u.x_j > 0 inside the arc.
    """

    inputs: Matrix
    ends: Matrix
    active: np.ndarray

    @classmethod
    def of(cls, inputs: Matrix) -> "Arcs":
        """Return the arcs of these unit inputs (2, n)."""
        turn = 2 * np.pi
        angles = np.arctan2(inputs[1], inputs[0])
        kinks = np.sort(np.concatenate([angles + np.pi / 2, angles - np.pi / 2]) % turn)
        kinks = kinks[np.diff(kinks, prepend=kinks[-1] - turn) > _SAME_END]
        widths = np.diff(kinks, append=kinks[0] + turn)
        pieces = np.maximum(1, np.ceil(widths / _WIDEST)).astype(int)
        starts = np.concatenate([a + w * np.arange(m) / m for a, w, m in zip(kinks, widths, pieces, strict=True)])
        middle = starts + np.diff(starts, append=starts[0] + turn) / 2
        ends, middles = (np.stack([np.cos(angle), np.sin(angle)], axis=1) for angle in (starts, middle))
        return cls(inputs, ends, middles @ inputs > 0)

    @cached_property
    def at_ends(self) -> Matrix:
        """Activations h_j(u) at the ends, (k, n)."""
        return self.activations(self.ends)

    def activations(self, directions: Float[np.ndarray, "m 2"]) -> Float[np.ndarray, "m n"]:
        """Return h_j(u) of directions u."""
        return np.maximum(directions @ self.inputs, 0.0)

    def contain(self, directions: Float[np.ndarray, "k 2"], leeway: float = 1e-9) -> np.ndarray:
        """Test if direction i, of length at most 1, points into arc i or misses it by at most the leeway, (k,)."""
        after = np.roll(self.ends, -1, axis=0)
        ahead = np.sum((self.ends + after) * directions, axis=1) > 0  # opposite directions miss thin arcs by little too
        return ahead & (_cross(self.ends, directions) >= -leeway) & (_cross(directions, after) >= -leeway)

    def maxima(self, mu: Float[np.ndarray, "n"]) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m 2"]]:
        """Return upper bounds on sum_j mu_j h_j(u), exact up to rounding, and the directions u that attain them.

        First for the ends, then for those arcs whose maximum is inside; the largest bound is that of the circle.
        """
        inside = (self.active * mu) @ self.inputs.T
        lengths = np.hypot(inside[:, 0], inside[:, 1])
        units = inside / np.where(lengths > 0, lengths, 1.0)[:, None]
        # Within the leeway of an end |m| exceeds the true maximum by its square: still a bound, wrong by 1e-18.
        hit = (lengths > 0) & self.contain(units)
        return np.concatenate([self.at_ends @ mu, lengths[hit]]), np.concatenate([self.ends, units[hit]])


@dataclass(frozen=True)
class PlaneSaddle:
    """Saddle whose inputs span at most a plane, reduced to unit inputs of different directions.

    Inputs that are positive multiples of one direction act as one, since outputs are homogeneous in the input: their
    gradients, times their lengths, add. Inputs 0 have no effect.

    Attributes:
        basis: (d_in, 2); basis^T x are the coordinates of an input x, and basis u the weights of a neuron.
        inputs: (2, n), the directions.
        gradients: (d_out, n), the gradients that belong to them.
        slack: largest change of the speed of a network with |theta|^2 <= L by the reduction and rounding: such a
            network is 1-Lipschitz, so it is at most the sum of |G_j| times the distance by which input j was moved.
    """

    basis: Matrix
    inputs: Matrix
    gradients: Matrix
    slack: float

    @classmethod
    def of(cls, X: Matrix, G: Matrix) -> "PlaneSaddle":
        """Reduce a saddle.

        Args:
            X: inputs (d_in, N), finite and not all 0.
            G: gradients (d_out, N).

        Raises:
            InputError: the inputs span more than a plane.
        """
        basis = _basis(X)
        flat = basis.T @ X
        lengths = np.hypot(flat[0], flat[1])
        kept = np.flatnonzero(lengths > 0)
        angles = np.arctan2(flat[1, kept], flat[0, kept])
        order = np.argsort(angles, kind="stable")
        gaps = np.diff(angles[order], append=angles[order[0]] + 2 * np.pi)
        cut = int(np.argmax(gaps)) + 1  # begin after the widest gap, so that no direction is at both ends
        kept, gaps = kept[np.roll(order, -cut)], np.roll(gaps, -cut)
        group = np.concatenate([[0], np.cumsum(gaps[:-1] > _ALIKE)])
        first = np.searchsorted(group, np.arange(group[-1] + 1))
        directions = flat[:, kept[first]] / lengths[kept[first]]
        weighted = G[:, kept] * lengths[kept]
        gradients = np.stack([np.bincount(group, row) for row in weighted])
        moved = X[:, kept] - basis @ (directions[:, group] * lengths[kept])
        size = np.linalg.norm(G, axis=0)
        rounding = (X.shape[1] + 8) * np.finfo(float).eps * float(size @ np.linalg.norm(X, axis=0))
        return cls(basis, directions, gradients, float(size[kept] @ np.linalg.norm(moved, axis=0)) + rounding)


def _basis(X: Matrix) -> Matrix:
    """Return two orthonormal columns that span the inputs (the second is 0 where one is enough)."""
    if len(X) <= 2:
        return np.eye(2)[: len(X)]
    left, spectrum, _ = np.linalg.svd(X / np.abs(X).max(), full_matrices=False)
    if len(spectrum) > 2 and spectrum[2] > _ALIKE * spectrum[0]:
        raise InputError(
            f"inputs must span at most a plane to be certified; got singular values {spectrum[:3].tolist()!r}, "
            f"three of which are not 0. Use escape_directions instead."
        )
    return np.pad(left[:, :2], ((0, 0), (0, max(0, 2 - left.shape[1]))))


def _cross(a: Float[np.ndarray, "k 2"], b: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, "k"]:
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
