"""Distance of a network from an escape direction: the smallest Clarke subgradient, not the gradient.

At the fastest escape directions some preactivations are 0, and the localised loss is not differentiable there. The
gradient of automatic differentiation is then one of many limits and stays of the order of 1. The condition of an escape
direction is 0 in dL_0(rho) + s rho, where dL_0 is Clarke's subdifferential: the convex hull of the limits of gradients
nearby. In a limit of gradients each preactivation that is 0 is either active or not.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import nnls

from saddlescope.theory.escape.activation_pattern import Pattern, opposite, pattern_of, rays
from saddlescope.theory.escape.speed import Matrix, Network, on_sphere, speed_of

KINK = 1e-10  # default tolerance of kinks, for directions known to machine precision; see `clarke_residual`
MOST_KINKS = 6  # of one sample above the first layer: each doubles the number of limits


def clarke_residual(weights: Network, X: Matrix, G: Matrix, tolerance: float = KINK) -> float:
    """Return the distance of 0 from dL_0(rho) + s rho, with the weights rescaled to |rho|^2 = L and s = -L_0(rho).

    It is 0 at an escape direction and, where no preactivation is 0, the norm of the gradient along the sphere.

    The limits of gradients are formed sample by sample; two opposite samples together, since a neuron of the first
    layer is active on exactly one of them nearby. This is Clarke's subdifferential if the samples at which one neuron
    has preactivation 0 have linearly independent inputs (except opposite ones), as always in the plane; otherwise a
    set that contains it, so that the residual may be too small. Where more than six neurons above the first layer are
    on a kink at one sample, those of one layer are taken to be active together, as copies may be: the residual may
    then be too large.

    Args:
        weights: W_1, ..., W_L, valid and not all 0.
        X: inputs (d_in, N).
        G: gradients (d_out, N).
        tolerance: a preactivation counts as 0 below this share of the largest that the norms of the weights allow.
            Directions that are known to few digits need a larger one, and then have a residual of that order.
    """
    direction = on_sphere(weights)
    hull = limits(direction, *rays(X, G), tolerance)
    return hull.distance(speed_of(direction, X, G) * np.concatenate([weight.ravel() for weight in direction]))


@dataclass(frozen=True)
class Hull:
    """Subdifferential of -L_0 as {fixed + columns y: y >= 0, sums y = totals}.

    Attributes:
        fixed: (P,), the gradient from the samples without kinks.
        columns: (P, variables).
        sums, totals: (rows, variables), (rows,).
    """

    fixed: Float[np.ndarray, "p"]
    columns: Float[np.ndarray, "p variables"]
    sums: Float[np.ndarray, "rows variables"]
    totals: Float[np.ndarray, "rows"]

    def distance(self, point: Float[np.ndarray, "p"]) -> float:
        """Return the distance from the point to the set."""
        target = point - self.fixed
        if not self.columns.shape[1]:
            return float(np.linalg.norm(target))
        # Active set: the sums are imposed with a large weight, then exactly on the support found.
        weight = 1e3 * max(1.0, float(np.abs(self.columns).max()))
        stacked = np.vstack([self.columns, weight * self.sums])
        y, _ = nnls(stacked, np.concatenate([target, weight * self.totals]), maxiter=100 * stacked.shape[1])
        support = y > 0
        exact = np.zeros_like(y)
        exact[support] = _least_squares(self.columns[:, support], target, self.sums[:, support], self.totals)
        allowed = exact.min() >= -1e-9 and np.allclose(self.sums @ exact, self.totals, rtol=0, atol=1e-9)
        return float(np.linalg.norm(self.columns @ (exact if allowed else y) - target))


def _least_squares(A: Matrix, b: np.ndarray, E: Matrix, t: np.ndarray) -> np.ndarray:
    """Return the y with E y = t of least |A y - b|, by the null space of E."""
    _, values, right = np.linalg.svd(E)
    rank = int(np.sum(values > 1e-12 * values[0])) if len(values) else 0
    free = right[rank:].T
    particular = np.linalg.lstsq(E, t)[0]
    return particular + free @ np.linalg.lstsq(A @ free, b - A @ particular)[0]


def limits(weights: Network, X: Matrix, G: Matrix, tolerance: float) -> Hull:
    """Return the subdifferential of -L_0 at the weights.

    Args:
        weights: W_1, ..., W_L, not rescaled.
        X: samples of unit norm, no two on one ray: see `rays`.
        G: their gradients.
        tolerance: of kinks.
    """
    pattern = pattern_of(weights, X, tolerance)
    builder = _Builder(weights, X, G, pattern)
    for samples in opposite(X):
        builder.add(samples)
    return builder.hull()


class _Builder:
    """Builder of the hull of the limits of gradients, one group of samples at a time.

    With every kink above the first layer decided, the limits are the corners of a box, with a side for each neuron of
    the first layer on a kink. Each such decision v has a share lambda_v >= 0, of sum 1, and each side a length from 0
    to lambda_v.
    """

    def __init__(self, weights: Network, X: Matrix, G: Matrix, pattern: Pattern) -> None:
        self.weights, self.X, self.G, self.pattern = weights, X, G, pattern
        self.fixed = np.zeros(sum(weight.size for weight in weights))
        self.columns: list[np.ndarray] = []
        self.rows: list[tuple[dict[int, float], float]] = []  # equations: coefficients of variables, right-hand side

    def hull(self) -> Hull:
        """Return the hull of the limits added so far."""
        sums = np.zeros((len(self.rows), len(self.columns)))
        for row, (coefficients, _) in enumerate(self.rows):
            for variable, coefficient in coefficients.items():
                sums[row, variable] = coefficient
        columns = np.stack(self.columns, axis=1) if self.columns else np.zeros((len(self.fixed), 0))
        return Hull(self.fixed, columns, sums, np.array([total for _, total in self.rows]))

    def add(self, samples: tuple[int, ...]) -> None:
        """Add all limits of the gradients of these samples."""
        free = [place for sample in samples for place in self._undecided(sample)]
        groups = [[place] for place in free]
        if len(free) > MOST_KINKS:  # those of one layer together
            groups = [list(group) for _, group in itertools.groupby(free, key=lambda place: (place[2], place[0]))]
        decisions = list(itertools.product((False, True), repeat=len(groups)))
        shares: dict[int, float] = {}
        for decision in decisions:
            decided = {place: on for group, on in zip(groups, decision, strict=True) for place in group}
            base, sides = self._box(samples, decided)
            if len(decisions) == 1:
                self.fixed = self.fixed + base
                share = None
            else:
                share = self._variable(base)
                shares[share] = 1.0
            for side in sides:
                length, slack = self._variable(side), self._variable(np.zeros_like(side))
                below = {length: 1.0, slack: 1.0} if share is None else {length: 1.0, slack: 1.0, share: -1.0}
                self.rows.append((below, 1.0 if share is None else 0.0))
        if shares:
            self.rows.append((shares, 1.0))

    def _variable(self, column: np.ndarray) -> int:
        self.columns.append(column)
        return len(self.columns) - 1

    def _undecided(self, sample: int) -> list[tuple[int, int, int]]:
        """Return the kinks (layer, neuron, sample) above the first layer at which both sides are reached.

        Above neurons none of which is active, a preactivation near 0 has the sign of its weights from those on a kink.
        """
        return [
            (layer, int(neuron), sample)
            for layer in range(1, len(self.weights) - 1)
            for neuron in np.flatnonzero(self.pattern.kinks[layer][:, sample])
            if self._sign(layer, int(neuron), sample) == 0
        ]

    def _sign(self, layer: int, neuron: int, sample: int) -> int:
        below, weights = self.pattern, self.weights[layer][neuron]
        if (below.active[layer - 1][:, sample] & (weights != 0)).any():
            return 0
        signs = np.unique(np.sign(weights[below.kinks[layer - 1][:, sample] & (weights != 0)]))
        return int(signs[0]) if len(signs) == 1 else 0

    def _box(
        self, samples: tuple[int, ...], decided: dict[tuple[int, int, int], bool]
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the corner with all first-layer kinks at the first sample inactive, and the sides that start there."""
        base = np.zeros_like(self.fixed)
        sides: dict[int, np.ndarray] = {}
        for place, sample in enumerate(samples):
            slopes, into_first = self._backward(sample, decided)
            x = self.X[:, sample]
            active, kinks = self.pattern.active[0][:, sample], self.pattern.kinks[0][:, sample]
            # Of two opposite samples a neuron on a kink is active on the second where it is not on the first.
            first = np.where(active | (kinks & (place == 1)), into_first, 0.0)
            base += np.concatenate([np.outer(first, x).ravel(), *slopes])
            for neuron in np.flatnonzero(kinks):
                side = np.zeros(self.weights[0].shape)
                side[neuron] = into_first[neuron] * x * (-1 if place else 1)
                whole = np.concatenate([side.ravel(), np.zeros(len(base) - side.size)])
                sides[int(neuron)] = sides.get(int(neuron), 0.0) + whole
        return base, list(sides.values())

    def _backward(self, sample: int, decided: dict[tuple[int, int, int], bool]) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the slopes of W_2, ..., W_L at one sample, flat, and that of the activations of the first layer."""
        back, slopes = -self.G[:, sample], []
        for layer in reversed(range(1, len(self.weights))):
            slopes.append(np.outer(back, self.pattern.hidden[layer][:, sample]).ravel())
            back = self.weights[layer].T @ back
            if layer > 1:
                on = self.pattern.active[layer - 1][:, sample].copy()
                for neuron in np.flatnonzero(self.pattern.kinks[layer - 1][:, sample]):
                    place = (layer - 1, int(neuron), sample)
                    on[neuron] = decided[place] if place in decided else self._sign(*place) > 0
                back = np.where(on, back, 0.0)
        return list(reversed(slopes)), back
