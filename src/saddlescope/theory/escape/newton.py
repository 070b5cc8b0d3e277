"""Refinement of escape directions to machine precision: Newton's method with the kinks held fixed.

Descent ends near an escape direction, with some preactivations near 0 that are 0 at the direction itself. They are
guessed with a tolerance; dead neurons and copies are removed with the same tolerance. The remaining problem is smooth:
find weights theta and multipliers mu, nu with

    grad S(theta) = mu theta + sum_k nu_k grad z_k(theta),    |theta|^2 = L,    z_k(theta) = 0,

where S = -L_0 with the activation pattern held fixed, and z_k are the preactivations on a kink. The result is accepted
if its Clarke residual, for which the multipliers must be within their bounds, vanishes to machine precision. It does
not after a wrong guess, and the next tolerance is tried.
"""

import numpy as np
from jaxtyping import Float

from saddlescope.theory.escape.activation_pattern import Pattern, pattern_of, rays
from saddlescope.theory.escape.clarke_subgradient import KINK, limits
from saddlescope.theory.escape.network_reduction import collapse, expand, reduce
from saddlescope.theory.escape.speed import Matrix, Network, on_sphere, speed_of

TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # for kinks, copies and dead neurons, the most simplifying one first
RESIDUAL = 1e-13  # Clarke residual below which a direction counts as converged, with |X| = |G| = 1


def refined(weights: Network, X: Matrix, G: Matrix) -> tuple[Network, float] | None:
    """Refine weights near an escape direction, such as the end of a descent, to machine precision.

    Args:
        weights: W_1, ..., W_L.
        X: inputs (d_in, N).
        G: gradients (d_out, N).

    Returns:
        The weights, of the given shapes on the sphere |rho|^2 = L, and their Clarke residual; None unless that is 0 to
        machine precision.
    """
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
            return full, scale * residual
    return None


def _newton(weights: Network, X: Matrix, G: Matrix, tolerance: float) -> Network | None:
    """Solve the conditions above from these weights; return None if the iteration diverges."""
    pattern = pattern_of(weights, X, tolerance)
    system = _System(X, G, pattern, [weight.shape for weight in weights])
    theta = system.flat(weights) * np.sqrt(len(weights)) / np.linalg.norm(system.flat(weights))
    (slope, _), jacobian = system.slope(theta, np.zeros(system.kinks)), system.kink_slopes(theta)
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
    """Conditions and their derivatives, with the activation pattern held fixed; kinks count as inactive.

    With the pattern fixed, S and z are linear in each single weight, and so are their gradients: their derivatives by a
    weight are differences at two values of it, exactly. Arrays of weights may have leading axes.
    """

    def __init__(self, X: Matrix, G: Matrix, pattern: Pattern, shapes: list[tuple[int, ...]]) -> None:
        self.X, self.G, self.shapes = X, G, shapes
        self.on = [active.astype(float) for active in pattern.active]
        self.where = pattern.kinks
        self.kinks = int(sum(kinks.sum() for kinks in pattern.kinks))

    def flat(self, weights: Network) -> Float[np.ndarray, "p"]:
        """Return all weights as one vector."""
        return np.concatenate([weight.ravel() for weight in weights])

    def unflat(self, theta: Float[np.ndarray, "... p"]) -> tuple[np.ndarray, ...]:
        """Return the network of a vector."""
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in self.shapes])[:-1]
        parts = zip(np.split(theta, ends, axis=-1), self.shapes, strict=True)
        return tuple(part.reshape(*theta.shape[:-1], *shape) for part, shape in parts)

    def slope(
        self, theta: Float[np.ndarray, "... p"], nu: Float[np.ndarray, "k"]
    ) -> tuple[Float[np.ndarray, "... p"], Float[np.ndarray, "... k"]]:
        """Return the gradient of S - sum nu_k z_k, and the z_k."""
        weights, z, hidden = self.unflat(theta), [], [self.X]
        for weight, on in zip(weights[:-1], self.on, strict=True):
            z.append(weight @ hidden[-1])
            hidden.append(on * z[-1])
        back, left = [-self.G], nu
        for layer in reversed(range(len(self.on))):
            kinks = self.where[layer]
            source, left = np.zeros(kinks.shape), np.split(left, [len(left) - int(kinks.sum())])
            source[kinks], left = -left[1], left[0]
            back.append(self.on[layer] * (np.swapaxes(weights[layer + 1], -1, -2) @ back[-1]) + source)
        slopes = [d @ np.swapaxes(h, -1, -2) for d, h in zip(back[::-1], hidden, strict=True)]
        flat = np.concatenate([slope.reshape(*theta.shape[:-1], -1) for slope in slopes], axis=-1)
        return flat, np.concatenate([values[..., kinks] for values, kinks in zip(z, self.where, strict=True)], axis=-1)

    def kink_slopes(self, theta: Float[np.ndarray, "p"]) -> Float[np.ndarray, "k p"]:
        """Return the gradients of the preactivations on a kink."""
        kinks = self.slope(_each_moved(theta), np.zeros(self.kinks))[1]
        return (kinks[1:] - kinks[0]).T

    def conditions(self, theta: np.ndarray, mu: float, nu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the conditions, which must vanish, and their derivative by (theta, mu, nu)."""
        (gradient, *gradients), (kinks, *moved_kinks) = self.slope(_each_moved(theta), nu)
        error = np.concatenate([gradient - mu * theta, [(theta @ theta - len(self.shapes)) / 2], kinks])
        edge = np.vstack([theta, (moved_kinks - kinks).T])
        left = np.vstack([gradients - gradient - mu * np.eye(len(theta)), edge])
        right = np.vstack([-edge.T, np.zeros((1 + self.kinks, 1 + self.kinks))])
        return error, np.hstack([left, right])


def _each_moved(theta: Float[np.ndarray, "p"]) -> Float[np.ndarray, "moved p"]:
    """Return the weights, and the weights with each of them moved by 1."""
    return theta + np.eye(len(theta) + 1, len(theta), -1)
