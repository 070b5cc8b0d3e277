"""Refinement of escape directions to machine precision: Newton's method with the kinks held fixed.

Descent ends near an escape direction, with some preactivations near 0 that are 0 at the direction itself. They are
guessed with a tolerance; dead neurons and copies are removed with the same tolerance. The remaining problem is smooth:
find weights theta and multipliers mu, nu with

    grad S(theta) = mu theta + sum_k nu_k grad z_k(theta),    |theta|^2 = L,    z_k(theta) = 0,

where S = -L_0 with the activation pattern held fixed, and z_k are the preactivations on a kink. The result is accepted
if its Clarke residual, for which the multipliers must be within their bounds, vanishes to machine precision. It does
not after a wrong guess, and the next tolerance is tried.
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
from saddlescope.theory.escape.speed import Matrix, Network, on_sphere, speed_of, validate_saddle, validate_weights

TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # for kinks, copies and dead neurons, the most simplifying one first
RESIDUAL = 1e-13  # Clarke residual below which a direction counts as converged, with |X| = |G| = 1


@dataclass(frozen=True, repr=False)
class RefinedDirection(ReprMixin):
    """Escape direction after refinement.

    Attributes:
        weights: of the given shapes, on the sphere |rho|^2 = L; the given ones, rescaled, if not converged.
        speed: s = -L_0(rho).
        residual: its Clarke residual; infinite if not converged.
        converged: the residual is 0 to machine precision.
    """

    weights: Network
    speed: float
    residual: float
    converged: bool


@validate_arguments
def refine_direction(weights: Sequence[ArrayLike], inputs: ArrayLike, gradients: ArrayLike) -> RefinedDirection:
    """Refine weights near an escape direction to machine precision.

    Args:
        weights: W_1, ..., W_L, near an escape direction, such as the end of a descent.
        inputs: (N, d_in), a row per sample.
        gradients: (N, d_out), the loss gradients at the zero output.

    Raises:
        InputError: invalid arguments of `escape_speed`, or weights that are all 0.
    """
    X, G = validate_saddle(inputs, gradients)
    return refined(validate_weights(weights, X, G), X, G)


def refined(weights: Network, X: Matrix, G: Matrix) -> RefinedDirection:
    """Refine valid weights, with X (d_in, N) and G (d_out, N)."""
    given = on_sphere(weights)
    scale = float(np.linalg.norm(X) * np.linalg.norm(G))
    unit_X, unit_G = rays(X / np.linalg.norm(X), G / np.linalg.norm(G))
    speed = speed_of(given, X, G)
    for tolerance in TOLERANCES if speed > 0 else ():
        small = reduce(given, unit_X, tolerance)
        if small is None:
            continue
        shallow, kept = collapse(small)
        found = _newton(shallow, unit_X, unit_G, tolerance)
        if found is None:
            continue
        full = on_sphere(expand(found, kept, given))
        reached = speed_of(full, X, G)
        if reached < (1 - 1e-4) * speed:  # another direction
            continue
        hull = limits(found, unit_X, unit_G, KINK)
        residual = hull.distance(reached / scale * np.concatenate([weight.ravel() for weight in found]))
        if residual <= RESIDUAL:
            return RefinedDirection(full, reached, scale * residual, True)
    return RefinedDirection(given, speed, float("inf"), False)


def _newton(weights: Network, X: Matrix, G: Matrix, tolerance: float) -> Network | None:
    """Solve the conditions above from these weights; return None if the iteration diverges."""
    pattern = pattern_of(weights, X, tolerance)
    system = _System(X, G, pattern, [weight.shape for weight in weights])
    theta = system.flat(weights) * np.sqrt(len(weights)) / np.linalg.norm(system.flat(weights))
    slope, jacobian = system.slope(theta, np.zeros(system.kinks)), system.kink_slopes(theta)
    mu = slope @ theta / len(weights)
    nu = np.linalg.lstsq(jacobian.T, slope - mu * theta)[0]
    best, least = None, np.inf
    for _ in range(12):  # it converges quadratically or not at all
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
    """Conditions and their derivatives, with the activation pattern held fixed; kinks count as inactive."""

    def __init__(self, X: Matrix, G: Matrix, pattern: Pattern, shapes: list[tuple[int, ...]]) -> None:
        self.X, self.G, self.shapes = X, G, shapes
        self.on = [active.astype(float) for active in pattern.active]
        self.where = pattern.kinks
        self.kinks = int(sum(kinks.sum() for kinks in pattern.kinks))
        self.size = sum(int(np.prod(shape)) for shape in shapes)
        # Every weight is moved by 1, one at a time: with the pattern fixed, all is polynomial in the weights.
        self.moves = self._split(np.eye(self.size))

    def flat(self, weights: Network) -> Float[np.ndarray, "p"]:
        """Return all weights as one vector."""
        return np.concatenate([weight.ravel() for weight in weights])

    def unflat(self, theta: Float[np.ndarray, "p"]) -> Network:
        """Return the network of a vector."""
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
        """Return the derivatives of preactivations and activations by every weight: (P, n_l, N)."""
        dz, dhidden = [], [np.zeros((self.size, *self.X.shape))]
        for layer, on in enumerate(self.on):
            dz.append(self.moves[layer] @ hidden[layer] + weights[layer] @ dhidden[-1])
            dhidden.append(on * dz[-1])
        return dz, dhidden

    def _sources(self, nu: np.ndarray) -> list[np.ndarray]:
        """Return the terms that the multipliers add in the backward pass: -nu_k at the kink k."""
        sources, used = [], 0
        for kinks in self.where:
            source = np.zeros(kinks.shape)
            source[kinks] = -nu[used : used + int(kinks.sum())]
            used += int(kinks.sum())
            sources.append(source)
        return sources

    def _back(self, weights: list[np.ndarray], sources: list[np.ndarray]) -> list[np.ndarray]:
        """Return the derivatives of S - sum nu_k z_k by the preactivations, of every layer."""
        found = [-self.G]
        for layer in reversed(range(len(self.on))):
            found.append(self.on[layer] * (weights[layer + 1].T @ found[-1]) + sources[layer])
        return found[::-1]

    def slope(self, theta: np.ndarray, nu: np.ndarray) -> np.ndarray:
        """Return the gradient of S - sum nu_k z_k."""
        weights = self._split(theta)
        _, hidden = self._forward(weights)
        back = self._back(weights, self._sources(nu))
        return np.concatenate([(d @ h.T).ravel() for d, h in zip(back, hidden, strict=True)])

    def kink_slopes(self, theta: np.ndarray) -> np.ndarray:
        """Return the gradients of the preactivations on a kink, (kinks, P)."""
        weights = self._split(theta)
        _, hidden = self._forward(weights)
        dz, _ = self._moved(weights, hidden)
        return np.concatenate([moved[:, kinks].T for moved, kinks in zip(dz, self.where, strict=True)])

    def conditions(self, theta: np.ndarray, mu: float, nu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the conditions, which must vanish, and their derivative by (theta, mu, nu)."""
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
