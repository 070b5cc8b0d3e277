"""Escape directions to machine precision: Newton's method with the kinks held where they are.

Descent ends near an escape direction, with some preactivations near 0 that are 0 at the direction itself. Which ones is
guessed with a tolerance; neurons that have died out or are copies are taken away with the same tolerance. What is left
is smooth: find weights theta and multipliers mu, nu with

    grad S(theta) = mu theta + sum_k nu_k grad z_k(theta),    |theta|^2 = L,    z_k(theta) = 0,

where S = -L_0 with the activation pattern held fixed, and z_k are the preactivations on a kink. The result counts if
its Clarke residual, for which the multipliers must lie in their bounds, vanishes to machine precision: a wrong guess
shows there, and the next tolerance is tried.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.reprs import ReprMixin
from saddlescope.theory.escape.activation_pattern import Pattern, pattern_of, rays
from saddlescope.theory.escape.clarke_subgradient import KINK, limits
from saddlescope.theory.escape.network_reduction import collapse, expand, reduce
from saddlescope.theory.escape.speed import Matrix, Network, checked_saddle, checked_weights, escape_speed, on_sphere

TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # for guessing kinks, copies and the dead, the most simplifying one first
RESIDUAL = 1e-13  # Clarke residual below which a direction counts as polished, with |X| = |G| = 1
LOSS = 1e-4  # share of the speed that polishing may lose: more, and it has found something else
STEPS = 12  # of Newton's method, which converges quadratically or not at all


@dataclass(frozen=True, repr=False)
class Polished(ReprMixin):
    """A direction after polishing.

    Attributes:
        weights: of the shapes given, on the sphere |rho|^2 = L; as they were, brought to the sphere, if not converged.
        speed: s = -L_0(rho).
        residual: its Clarke residual; infinite if not converged.
        converged: the residual is 0 to machine precision.
    """

    weights: Network
    speed: float
    residual: float
    converged: bool


@validate_arguments
def polish(weights: Sequence[ArrayLike], inputs: ArrayLike, gradients: ArrayLike) -> Polished:
    """The escape direction near the given weights, to machine precision.

    Args:
        weights: W_1, ..., W_L, near an escape direction, such as what descent ends in.
        inputs: X (d_in, N).
        gradients: G (d_out, N).

    Raises:
        InputError: what `escape_speed` refuses, and weights that are all 0.
    """
    X, G = checked_saddle(inputs, gradients)
    given = on_sphere(checked_weights(weights, X, G))
    scale = float(np.linalg.norm(X) * np.linalg.norm(G))
    unit_X, unit_G = rays(X / np.linalg.norm(X), G / np.linalg.norm(G))
    speed = escape_speed(given, X, G)
    for tolerance in TOLERANCES if speed > 0 else ():
        small = reduce(given, unit_X, tolerance)
        if small is None:
            continue
        shallow, kept = collapse(small)
        found = _newton(shallow, unit_X, unit_G, tolerance)
        if found is None:
            continue
        full = on_sphere(expand(found, kept, given))
        polished = escape_speed(full, X, G)
        if polished < (1 - LOSS) * speed:
            continue
        hull = limits(found, unit_X, unit_G, KINK)
        residual = hull.distance(polished / scale * np.concatenate([weight.ravel() for weight in found]))
        if residual <= RESIDUAL:
            return Polished(full, polished, scale * residual, True)
    return Polished(given, speed, float("inf"), False)


def _newton(weights: Network, X: Matrix, G: Matrix, tolerance: float) -> Network | None:
    """Solves the conditions above from here; None if the iteration leads away."""
    pattern = pattern_of(weights, X, tolerance)
    system = _System(X, G, pattern, [weight.shape for weight in weights])
    theta = system.flat(weights) * np.sqrt(len(weights)) / np.linalg.norm(system.flat(weights))
    slope, jacobian = system.slope(theta, np.zeros(system.kinks)), system.kink_slopes(theta)
    mu = slope @ theta / len(weights)
    nu = np.linalg.lstsq(jacobian.T, slope - mu * theta)[0]
    best, least = None, np.inf
    for _ in range(STEPS):
        error, matrix = system.conditions(theta, mu, nu)
        size = np.linalg.norm(error)
        if not np.isfinite(size) or size > 1e3 * least:
            return None
        if size < least:
            best, least = theta, size
        if size < 1e-15:
            break
        step = np.linalg.lstsq(matrix, -error, rcond=1e-10)[0]  # redundant kinks and flat directions: shortest step
        theta = theta + step[: len(theta)]
        mu, nu = mu + step[len(theta)], nu + step[len(theta) + 1 :]
    return None if best is None or least > 1e-12 else system.unflat(best)


class _System:
    """The conditions and their derivatives, with the activation pattern held fixed; kinks count as inactive."""

    def __init__(self, X: Matrix, G: Matrix, pattern: Pattern, shapes: list[tuple[int, ...]]) -> None:
        self.X, self.G, self.shapes = X, G, shapes
        self.on = [active.astype(float) for active in pattern.active]
        self.where = pattern.kinks
        self.kinks = int(sum(kinks.sum() for kinks in pattern.kinks))
        self.size = sum(int(np.prod(shape)) for shape in shapes)
        # Every weight is moved by 1, one at a time: with the pattern fixed, all is polynomial in the weights.
        self.moves = self._split(np.eye(self.size))

    def flat(self, weights: Network) -> Float[np.ndarray, "p"]:
        """All weights as one vector."""
        return np.concatenate([weight.ravel() for weight in weights])

    def unflat(self, theta: Float[np.ndarray, "p"]) -> Network:
        """The network of a vector."""
        return tuple(self._split(theta))

    def _split(self, theta: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in self.shapes])[:-1]
        return [
            part.reshape(*theta.shape[:-1], *shape)
            for part, shape in zip(np.split(theta, ends, axis=-1), self.shapes, strict=True)
        ]

    def _forward(self, weights: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        z, hidden = [], [self.X]
        for weight, on in zip(weights[:-1], self.on, strict=True):
            z.append(weight @ hidden[-1])
            hidden.append(on * z[-1])
        return z, hidden

    def _moved(self, weights: list[np.ndarray], hidden: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Derivatives of preactivations and activations by every weight: (P, n_l, N)."""
        dz, dhidden = [], [np.zeros((self.size, *self.X.shape))]
        for layer, on in enumerate(self.on):
            dz.append(self.moves[layer] @ hidden[layer] + weights[layer] @ dhidden[-1])
            dhidden.append(on * dz[-1])
        return dz, dhidden

    def _sources(self, nu: np.ndarray) -> list[np.ndarray]:
        """Where the multipliers enter on the way back: -nu_k at the kink k."""
        sources, used = [], 0
        for kinks in self.where:
            source = np.zeros(kinks.shape)
            source[kinks] = -nu[used : used + int(kinks.sum())]
            used += int(kinks.sum())
            sources.append(source)
        return sources

    def _back(self, weights: list[np.ndarray], sources: list[np.ndarray]) -> list[np.ndarray]:
        """Derivatives of S - sum nu_k z_k by the preactivations, of every layer."""
        found = [-self.G]
        for layer in reversed(range(len(self.on))):
            found.append(self.on[layer] * (weights[layer + 1].T @ found[-1]) + sources[layer])
        return found[::-1]

    def slope(self, theta: np.ndarray, nu: np.ndarray) -> np.ndarray:
        """The gradient of S - sum nu_k z_k."""
        weights = self._split(theta)
        _, hidden = self._forward(weights)
        back = self._back(weights, self._sources(nu))
        return np.concatenate([(d @ h.T).ravel() for d, h in zip(back, hidden, strict=True)])

    def kink_slopes(self, theta: np.ndarray) -> np.ndarray:
        """The gradients of the preactivations on a kink, (kinks, P)."""
        weights = self._split(theta)
        _, hidden = self._forward(weights)
        dz, _ = self._moved(weights, hidden)
        return np.concatenate([moved[:, kinks].T for moved, kinks in zip(dz, self.where, strict=True)])

    def conditions(self, theta: np.ndarray, mu: float, nu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What must vanish, and its derivative by (theta, mu, nu)."""
        weights = self._split(theta)
        z, hidden = self._forward(weights)
        dz, dhidden = self._moved(weights, hidden)
        back = self._back(weights, self._sources(nu))
        dback = [np.zeros((self.size, *self.G.shape))]
        for layer in reversed(range(len(self.on))):
            turned = np.swapaxes(self.moves[layer + 1], 1, 2) @ back[layer + 1] + weights[layer + 1].T @ dback[-1]
            dback.append(self.on[layer] * turned)
        dback = dback[::-1]
        curvature = np.concatenate(
            [
                (db @ h.T + b @ np.swapaxes(dh, 1, 2)).reshape(self.size, -1)
                for b, db, h, dh in zip(back, dback, hidden, dhidden, strict=True)
            ],
            axis=1,
        )
        kinks = np.concatenate([values[where] for values, where in zip(z, self.where, strict=True)])
        slopes = np.concatenate([moved[:, where].T for moved, where in zip(dz, self.where, strict=True)])
        gradient = np.concatenate([(d @ h.T).ravel() for d, h in zip(back, hidden, strict=True)])
        error = np.concatenate([gradient - mu * theta, [(theta @ theta - len(weights)) / 2], kinks])
        corner = np.zeros((1 + self.kinks, 1 + self.kinks))
        edge = np.vstack([theta, slopes])
        left = np.vstack([curvature - mu * np.eye(self.size), edge])
        right = np.vstack([-edge.T, corner])
        return error, np.hstack([left, right])
