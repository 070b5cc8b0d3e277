"""Activation pattern and kinks of a network at a saddle, and its samples as rays from the origin."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from saddlescope.theory.escape.speed import Matrix, Network

SAME_RAY = 1e-12  # distance of unit vectors below which two samples count as on one ray, or as opposite


@dataclass(frozen=True)
class Pattern:
    """Active neurons and kinks of each hidden layer on each sample.

    Attributes:
        hidden: Zs_0 = X, Zs_1, ..., Zs_{L-1}, with 0 at kinks.
        active: for each hidden layer, (n_l, N): the preactivation is positive, by more than the tolerance.
        kinks: for each hidden layer, (n_l, N): the preactivation is 0 within the tolerance, and the neuron has inputs
            there that are not 0, or that are on a kink themselves; elsewhere its activation makes no difference.
    """

    hidden: tuple[Float[np.ndarray, "_ n"], ...]
    active: tuple[Bool[np.ndarray, "_ n"], ...]
    kinks: tuple[Bool[np.ndarray, "_ n"], ...]


def pattern_of(weights: Network, X: Matrix, tolerance: float) -> Pattern:
    """Return the pattern; a preactivation below `tolerance` times the largest that the norms allow counts as 0."""
    hidden, active, kinks = [X], [], []
    bound = np.linalg.norm(X, axis=0)
    reached = bound[None] > 0  # (n_{l-1}, N) in the first layer broadcast: neurons below that are active or on a kink
    for weight in weights[:-1]:
        z = weight @ hidden[-1]
        zero = np.abs(z) <= tolerance * np.linalg.norm(weight, axis=1)[:, None] * bound
        lively = (weight != 0).astype(float) @ np.broadcast_to(reached, hidden[-1].shape) > 0
        active.append(~zero & (z > 0))
        kinks.append(zero & lively)
        hidden.append(np.where(active[-1], z, 0.0))
        reached = active[-1] | kinks[-1]
        bound = bound * np.linalg.norm(weight, 2)
    return Pattern(tuple(hidden), tuple(active), tuple(kinks))


def rays(X: Matrix, G: Matrix) -> tuple[Matrix, Matrix]:
    """Return the same saddle with one sample of unit norm on each ray from the origin.

    A network without biases is homogeneous in x: samples on one ray are active together, at any weights, and their
    gradients add up, weighted by their norms. Samples at 0 have no effect.
    """
    norms = np.linalg.norm(X, axis=0)
    X, G = X[:, norms > 0] / norms[norms > 0], G[:, norms > 0] * norms[norms > 0]
    columns: list[np.ndarray] = []
    sums: list[np.ndarray] = []
    for x, g in zip(X.T, G.T, strict=True):
        same = [k for k, column in enumerate(columns) if np.linalg.norm(column - x) <= SAME_RAY]
        if same:
            sums[same[0]] = sums[same[0]] + g
        else:
            columns.append(x)
            sums.append(g)
    return np.stack(columns, axis=1), np.stack(sums, axis=1)


def opposite(X: Matrix) -> list[tuple[int, ...]]:
    """Group the samples of unit norm: pairs of opposite samples together, all others alone."""
    groups: list[tuple[int, ...]] = []
    for j, x in enumerate(X.T):
        partner = [n for n, (k, *rest) in enumerate(groups) if not rest and np.linalg.norm(X[:, k] + x) <= SAME_RAY]
        if partner:
            groups[partner[0]] = (*groups[partner[0]], j)
        else:
            groups.append((j,))
    return groups
