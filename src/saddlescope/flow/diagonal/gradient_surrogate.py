"""A surrogate of the gradient G(x) = dL/dx near the points that a flow has passed through.

    G(x)  ~  G_0 + H d + sum_k w_k K(d_k . d),    d = x - x_0,    K(z) = e^z - 1 = z + z^2/2 + ...

    x_0, G_0    the anchor: a point whose gradient is known
    H           columns of the Hessian, for the entries that move
    d_k         the nodes: other points with known gradients, relative to the anchor
    w_k         weights such that the surrogate is exact at every node

The sum is the mean of a Gaussian process with kernel K that interpolates the residual of G_0 + H d at the nodes:
secant corrections of H along the directions passed through, as in Broyden's method, and curvature of G in products of
two and more of them, as in the tensor methods of Schnabel and Frank (1984), "Tensor methods for nonlinear equations".
Its standard deviation, `spread`, vanishes at the nodes and grows in directions that no node has explored: it measures
the trust in the surrogate. Displacements in K are in units of the distance of the farthest node.
"""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SurrogatePolicy:
    """Policy of a surrogate; lengths are those over which the gradient changes by as much as itself.

    Attributes:
        nodes: points with known gradients that are kept beside the anchor.
        near: lengths: points nearer to each other than this would only add rounding errors.
        independent: share of a node's variance that newer nodes leave to it; one with less is skipped.
        shortest: lengths: the least unit of displacements in the kernel.
        resting: of the distance of the farthest node: of a shorter move nodes say nothing, but errors of theirs, small
            beside the Hessian, would decide what grows in so long a time as a flow rests.
        rounding: of the terms of a gradient.
        largest: argument of the kernel at which it is cut off, far outside the trusted region.
    """

    nodes: int = 8
    near: float = 1e-7
    independent: float = 1e-8
    shortest: float = 0.1
    resting: float = 1e-3
    rounding: float = 1e-13
    largest: float = 30.0


class GradientSurrogate:
    """Surrogate of a gradient by Gaussian process regression; see the module's docstring.

    Args:
        point: the first anchor, shape (n,).
        gradient: the gradient there.
        length: distance over which the gradient changes by as much as itself; roughly.
        policy: of the surrogate.

    Attributes:
        columns: the entries whose columns of the Hessian are known.
    """

    def __init__(
        self,
        point: np.ndarray,
        gradient: np.ndarray,
        length: float,
        policy: SurrogatePolicy = SurrogatePolicy(),
    ) -> None:
        self._policy = policy
        self._anchor, self._of_anchor = point, gradient
        self._nodes, self._of_nodes = np.zeros((2, 0, point.size))  # the newest last
        self._length, self._moved = length, math.inf
        self.set_columns(np.zeros(0, int), np.zeros((point.size, 0)))

    @property
    def anchor(self) -> np.ndarray:
        """Point of the anchor."""
        return self._anchor

    @property
    def length(self) -> float:
        """The length given, or the largest entry of a point added since, if that is larger."""
        return self._length

    @property
    def age(self) -> float:
        """Part of itself by which the Hessian may have changed since it was set, of nodes and anchor by now."""
        return self._bent * float(np.linalg.norm(self._anchor - self._of_hessian)) / self._length

    @property
    def creeps(self) -> bool:
        """True if the anchor moves by too little to become a node, and is not where the Hessian was set.

        Long windows follow, in which a small error of the Hessian would let something grow.
        """
        return self._moved <= self._policy.near * self._length and not np.array_equal(self._anchor, self._of_hessian)

    def set_columns(self, columns: np.ndarray, hessian: np.ndarray) -> None:
        """Replace the known columns of the Hessian."""
        self.columns, self._hessian, self._of_hessian = columns, hessian, self._anchor
        self._fit()

    def add_columns(self, columns: np.ndarray, hessian: np.ndarray) -> None:
        """Add columns of the Hessian."""
        self.set_columns(np.concatenate([self.columns, columns]), np.concatenate([self._hessian, hessian], 1))

    def learn(self, point: np.ndarray, gradient: np.ndarray) -> None:
        """Move the anchor to a point. The old anchor becomes a node, and the oldest node is dropped."""
        nodes, of_nodes = np.vstack([self._nodes, self._anchor]), np.vstack([self._of_nodes, self._of_anchor])
        self._keep(nodes, of_nodes, _distances(nodes, point) > self._policy.near * self._length, self._policy.nodes)
        self._moved = float(np.linalg.norm(point - self._anchor))
        self._anchor, self._of_anchor = point, gradient
        self._length = max(self._length, float(np.max(np.abs(point))))
        self._fit()

    def hold(self, point: np.ndarray, gradient: np.ndarray) -> bool:
        """Add a point as a node and keep the present anchor; return False if that is too near for more than rounding.

        Nearer points are taken for the anchor unless their gradients differ from it by more than rounding.
        """
        near = self._policy.near * self._length
        if not np.linalg.norm(self._anchor - point) > near:
            terms = np.abs(self._hessian) @ np.abs(point[self.columns])
            rounding = self._policy.rounding * float(np.max(terms, initial=0.0))
            return float(np.max(np.abs(gradient - self.gradient(point)))) <= rounding
        self._keep(self._nodes, self._of_nodes, _distances(self._nodes, point) > near, self._policy.nodes - 1)
        self._nodes, self._of_nodes = np.vstack([self._nodes, point]), np.vstack([self._of_nodes, gradient])
        self._fit()
        return True

    def drop(self, distance: float) -> None:
        """Drop the nodes that are farther away from the anchor."""
        kept = _distances(self._nodes, self._anchor) < distance
        self._keep(self._nodes, self._of_nodes, kept, self._policy.nodes)
        self._fit()

    def forget(self) -> bool:
        """Drop all nodes if the anchor's last move was far shorter than they are away; return True if so."""
        rests = self._moved < self._policy.resting * float(_distances(self._nodes, self._anchor).max(initial=0.0))
        if rests:
            self._keep(self._nodes, self._of_nodes, np.zeros(len(self._nodes), bool), self._policy.nodes)
            self._fit()
        return rests

    def gradient(self, point: np.ndarray) -> np.ndarray:
        """Return the surrogate's gradient at a point."""
        away = point - self._anchor
        linear = self._of_anchor + self._hessian @ away[self.columns]
        z = np.minimum(self._directions @ away, self._policy.largest)
        return linear + np.expm1(z) @ self._weights

    def hessian(self, point: np.ndarray) -> np.ndarray:
        """Return the derivative of the surrogate's gradient by the entries `columns`."""
        z = np.minimum(self._directions @ (point - self._anchor), self._policy.largest)
        return self._hessian + (self._weights.T * np.exp(z)) @ self._directions[:, self.columns]

    def spread(self, point: np.ndarray) -> float:
        """Return the standard deviation of the Gaussian process at a point, for a prior slope of 1: a length."""
        away = point - self._anchor
        prior = np.expm1(min(away @ away / self._unit**2, self._policy.largest))
        known = self._whitening @ np.expm1(np.minimum(self._directions @ away, self._policy.largest))
        return self._unit * float(np.sqrt(max(0.0, prior - known @ known)))

    def _keep(self, nodes: np.ndarray, of_nodes: np.ndarray, kept: np.ndarray, most: int) -> None:
        """Keep some nodes and their gradients, at most so many and the newest."""
        newest = np.flatnonzero(kept)[-most:]
        self._nodes, self._of_nodes = nodes[newest], of_nodes[newest]

    def _fit(self) -> None:
        aways = self._nodes[::-1] - self._anchor
        changes = self._of_nodes[::-1] - self._of_anchor
        left = changes - aways[:, self.columns] @ self._hessian.T
        most = max(float(np.max(np.abs(changes), initial=0.0)), np.finfo(float).tiny)  # its square may overflow
        self._bent = float(np.linalg.norm(left / most)) / max(float(np.linalg.norm(changes / most)), 1.0)
        gram = aways @ aways.T
        far = math.sqrt(gram.diagonal().max(initial=0.0))
        self._unit = max(far, self._policy.shortest * self._length) if far else self._length
        matrix = np.expm1(gram / self._unit**2)
        chosen, whitening = _whitened(matrix, self._policy.independent)
        self._directions, self._whitening = aways[chosen] / self._unit**2, whitening
        self._weights = whitening.T @ (whitening @ left[chosen])


def _distances(points: np.ndarray, point: np.ndarray) -> np.ndarray:
    return np.linalg.norm(points - point, axis=1)


def _whitened(matrix: np.ndarray, independent: float) -> tuple[list[int], np.ndarray]:
    """Choose independent rows of a covariance matrix; return them and W with W C W^T = 1 for their covariance C."""
    chosen: list[int] = []
    whitening = np.zeros_like(matrix)
    for k in range(len(matrix)):
        size = len(chosen)
        known = whitening[:size, :size] @ matrix[chosen, k]
        variance = matrix[k, k] - known @ known
        if variance > independent * matrix[k, k]:
            root = np.sqrt(variance)
            whitening[size, :size] = -(known @ whitening[:size, :size]) / root
            whitening[size, size] = 1 / root
            chosen.append(k)
    return chosen, whitening[: len(chosen), : len(chosen)]
