"""Reduction of a network to the smallest with its function: without dead neurons, copies and layers of one neuron.

A layer of one neuron above another multiplies a nonnegative number by its positive weight: it can be removed, and
restored with weight 1. All layers are normalized to |W_l| = 1, as at every escape direction, where layers are balanced.
"""

import numpy as np

from saddlescope.theory.escape.activation_pattern import pattern_of
from saddlescope.theory.escape.speed import Matrix, Network


def equalised(weights: Network) -> Network:
    """Normalize every layer to |W_l| = 1; no layer may be 0.

    The speed on the sphere |theta|^2 = L does not fall: by the inequality of the means, the product of the layers'
    norms is largest when they are equal.
    """
    return tuple(weight / np.linalg.norm(weight) for weight in weights)


def reduce(weights: Network, X: Matrix, tolerance: float) -> Network | None:
    """Remove dead neurons and merge copies; return the result with |W_l| = 1.

    Args:
        weights: W_1, ..., W_L.
        X: inputs of unit norm.
        tolerance: a neuron is dead if it is active nowhere by more than this, or if the product of the norms of its
            incoming and outgoing weights is below this share of its layer's sum; neurons are copies of each other if
            their incoming weights point in the same direction to within this angle.

    Returns:
        The network, or None if no neuron is left, since its output is 0.
    """
    net = list(weights)
    for _ in range(sum(weight.shape[0] for weight in weights)):
        if not all(np.linalg.norm(weight) > 0 for weight in net):
            return None
        net = list(equalised(tuple(net)))
        before = [weight.shape for weight in net]
        for layer in range(len(net) - 1):
            active = pattern_of(tuple(net), X, tolerance).active[layer].any(axis=1)
            into, out = np.linalg.norm(net[layer], axis=1), np.linalg.norm(net[layer + 1], axis=0)
            strength = into * out
            alive = active & (strength > tolerance * strength.sum())
            if not alive.any():
                return None
            net[layer], net[layer + 1] = _merge(net[layer][alive], net[layer + 1][:, alive], tolerance)
        if [weight.shape for weight in net] == before:
            break
    return equalised(tuple(net))


def _merge(below: Matrix, above: Matrix, angle: float) -> tuple[Matrix, Matrix]:
    """Merge neurons whose incoming weights point in one direction; balance each one's incoming and outgoing weights."""
    norms = np.linalg.norm(below, axis=1)
    unit, out = below / norms[:, None], above * norms
    strength = np.linalg.norm(out, axis=0)
    left = list(np.argsort(-strength))
    rows, columns = [], []
    while left:
        near = [i for i in left if np.linalg.norm(unit[i] - unit[left[0]]) <= angle]
        left = [i for i in left if i not in near]
        direction, column = strength[near] @ unit[near], out[:, near].sum(axis=1)
        size = np.sqrt(np.linalg.norm(column))
        if size > 0:
            rows.append(direction / np.linalg.norm(direction) * size)
            columns.append(column / size)
    if not rows:
        return below, above
    return np.stack(rows), np.stack(columns, axis=1)


def collapse(weights: Network) -> tuple[Network, tuple[int, ...]]:
    """Remove each layer of one neuron that follows a layer of one neuron with a positive weight.

    Returns:
        The shallower network, and the indices of its layers, counted from 0.
    """
    kept = tuple(
        layer
        for layer, weight in enumerate(weights)
        if not (0 < layer < len(weights) - 1 and weight.shape == (1, 1) and weight[0, 0] > 0)
    )
    return tuple(weights[layer] for layer in kept), kept


def expand(weights: Network, kept: tuple[int, ...], like: Network) -> Network:
    """Undo `collapse`, with weights 1, and add neurons without weights up to the shapes of `like`."""
    full = []
    for layer, shape in enumerate(weight.shape for weight in like):
        padded = np.zeros(shape)
        weight = weights[kept.index(layer)] if layer in kept else np.ones((1, 1))
        padded[: weight.shape[0], : weight.shape[1]] = weight
        full.append(padded)
    return tuple(full)
