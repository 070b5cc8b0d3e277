"""Stationary points of narrow networks in wider ones: gradient, curvature, and the utility of one more unit.

A stationary point of m units is one of every wider network (Zhang, Saxe and Latham 2025, arXiv 2512.20607):

    silent units   theta_j = 0: no gradient, as the degree is at least 2
    split units    c^D theta and (1 - c)^D theta, where the unit scales by f(c^D theta) = c f(theta): one function.
                   D = 1 / kappa for homogeneous units; for a neuron a g(w . x), a is split and w is copied

It is a saddle of the wider network if a new unit has a positive utility, L(theta, eps u) = L - eps^kappa U(u) + ...,
or if the Hessian with a split unit has a negative eigenvalue, along which the copies separate.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Float, Int

from saddlescope.theory.units.stationary_point import NEWTON
from saddlescope.theory.units.unit_network import UnitNetwork

_STARTS = 64  # random directions of each kind from which U is maximised
_ASCENT = 400  # steps
_ALIKE = 1e-6  # distance of the directions of two outputs that are one; relative norm of a unit that is silent
_EXACT = 1e-9  # gradient, relative to curvature and weights, that is rounding


@dataclass(frozen=True, eq=False)
class Embedding:
    """Check of a stationary point in a wider network.

    Attributes:
        gradient: largest |dL/dtheta| with silent and with split units, relative to the largest eigenvalue of the
            Hessian times the norm of the weights.
        utility: largest U of a new unit of norm 1 found.
        descends: True if a new unit along it lowers the loss of the wider network.
        split_curvature: smallest eigenvalue of the Hessian with one split unit, relative to the largest; NaN without
            units or for units that cannot be split.
    """

    gradient: float
    utility: float
    descends: bool
    split_curvature: float

    @property
    def stationary(self) -> bool:
        """True if the gradient vanishes up to rounding."""
        return self.gradient <= _EXACT

    @property
    def saddle(self) -> bool:
        """True if the loss falls along some direction."""
        return self.stationary and (self.descends or self.split_curvature < -10 * NEWTON.flat)


def embed(
    network: UnitNetwork,
    thetas: Float[np.ndarray, "a p"],
    kinds: Int[np.ndarray, "a"],
    width: int,
    noise: float,
    seed: int,
) -> Embedding:
    """Check stationary units in a network of a larger width.

    Args:
        network: the network.
        thetas: weights of the units.
        kinds: their kinds.
        width: number of units of the wider network.
        noise: utilities below it count as zero.
        seed: of the directions from which U is maximised.
    """
    loss, residual = network.residual_of(thetas, kinds)
    utility, direction, kind = largest_utility(network, residual, seed)
    descends = False
    if utility > noise:
        with_new = np.append(kinds, kind)
        norm = network.norm_of_effect(thetas, kinds, direction, kind, utility) / 2
        below = network.residual_of(np.concatenate([thetas, norm * direction[None]]), with_new)[0]
        descends = loss - below > 0.25 * norm**network.degree * utility
    if not len(thetas):
        silent = network.loss_gradient(np.zeros((width, network.size)), np.full(width, kind))[1]
        return Embedding(float(np.linalg.norm(silent)), max(utility, 0.0), descends, np.nan)
    gradient, curvature = _with_silent_units(network, thetas, kinds, width), np.nan
    for n in range(len(thetas)):
        copy = network.parts(thetas[n], 1 + width - len(thetas))
        if copy is not None:
            slope, lowest = _with_a_split_unit(network, thetas, kinds, width, n, copy)
            gradient, curvature = max(gradient, slope), float(np.fmin(curvature, lowest))
    return Embedding(gradient, max(utility, 0.0), descends, curvature)


def _with_silent_units(network: UnitNetwork, thetas: np.ndarray, kinds: np.ndarray, width: int) -> float:
    more = width - len(thetas)
    slope = network.loss_gradient(np.pad(thetas, ((0, more), (0, 0))), np.pad(kinds, (0, more), mode="edge"))[1]
    largest = float(np.max(np.abs(np.linalg.eigvalsh(network.loss_hessian(thetas, kinds)))))
    return float(np.linalg.norm(slope)) / (largest * float(np.linalg.norm(thetas)))


def _with_a_split_unit(
    network: UnitNetwork, thetas: np.ndarray, kinds: np.ndarray, width: int, n: int, copy: Float[np.ndarray, "p"]
) -> tuple[float, float]:
    """Return relative gradient and smallest curvature with unit n in equal parts, as many as there is room for."""
    parts = 1 + width - len(thetas)
    copies = np.repeat(copy[None], parts, axis=0)
    wide = np.concatenate([np.delete(thetas, n, axis=0), copies])
    of_kind = np.concatenate([np.delete(kinds, n), np.full(parts, kinds[n])])
    slope = network.loss_gradient(wide, of_kind)[1]
    values = np.linalg.eigvalsh(network.loss_hessian(wide, of_kind))
    largest = float(np.max(np.abs(values)))
    return float(np.linalg.norm(slope)) / (largest * float(np.linalg.norm(wide))), float(values[0]) / largest


def largest_utility(network: UnitNetwork, residual: Array, seed: int) -> tuple[float, Float[np.ndarray, "p"], int]:
    """Return the largest U found among directions of all kinds, with direction and kind.

    Where U is a quadratic form, it is that of the first eigenvector; else the best of many ascents.
    """
    if network.quadratic:
        found = []
        for kind in range(network.kinds):
            values, vectors = np.linalg.eigh(network.utility_hessian(np.zeros(network.size), kind, residual))
            found.append((float(values[-1]) / 2, vectors[:, -1], kind))
        return max(found, key=lambda one: one[0])
    kinds = np.repeat(np.arange(network.kinds), _STARTS)
    directions = _on_sphere(np.random.default_rng(seed).standard_normal((len(kinds), network.size)))
    _, slopes = network.utilities(directions, kinds, residual)
    shift = float(np.max(np.linalg.norm(slopes, axis=1)))
    if shift == 0:
        return 0.0, directions[0], 0
    for _ in range(_ASCENT):
        directions = _on_sphere(network.utilities(directions, kinds, residual)[1] + shift * directions)
    values, _ = network.utilities(directions, kinds, residual)
    best = int(np.argmax(values))
    return float(values[best]), directions[best], int(kinds[best])


def largest_slope(network: UnitNetwork, seed: int) -> float:
    """Return the largest |grad U| at the origin among random directions of all kinds."""
    _, residual = network.origin
    kinds = np.repeat(np.arange(network.kinds), _STARTS)
    directions = _on_sphere(np.random.default_rng(seed).standard_normal((len(kinds), network.size)))
    return float(np.max(np.linalg.norm(network.utilities(directions, kinds, residual)[1], axis=1)))


def _on_sphere(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def distinct_units(network: UnitNetwork, thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "a"]) -> int:
    """Return the number of distinct units: those with outputs in proportion count as one, silent ones as none."""
    outputs = network.outputs(thetas, kinds) if len(thetas) else np.zeros((0, 1))
    sizes = np.linalg.norm(outputs, axis=1)
    shown = sizes > _ALIKE * np.max(sizes, initial=0.0)
    left = outputs[shown] / sizes[shown, None]
    count = 0
    while len(left):
        first = left[0] if left[0][np.argmax(np.abs(left[0]))] > 0 else -left[0]
        cosine = left @ first
        left = left[np.linalg.norm(left - np.sign(cosine)[:, None] * first, axis=1) > _ALIKE]
        count += 1
    return count
