"""Networks on which statements about all networks are tried: random, on their way down, near the optimum, and extreme.

random      weights and data drawn at random, all widths and sizes different
descended   after ten steps of descent on the sphere
fast        after four hundred steps, near an optimum
extreme     near equality in the sharper inequality: orthonormal inputs, permutations as weights, some with each row
            twice, with both signs, so that ReLU takes half; G = -Y; and noise of a size drawn between 1e-8 and 1
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    Case = tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]

KINDS = ("random", "descended", "fast", "extreme")
_STEPS = {"descended": 10, "fast": 400}
_DATA, _WIDTHS = (3, 8, 2), 6  # d_in, N and d_out of the searches, and their hidden widths: one compilation a depth
_STARTS = 25  # networks that descend on the same data


def networks(kind: str, *, depth: int, count: int, seed: int) -> "Iterator[Case]":
    """So many networks of that depth with their X and G, all with a positive speed and |theta|^2 = L.

    Args:
        kind: one of KINDS.
        depth: L.
        count: how many.
        seed: of all draws, together with the kind and the depth.
    """
    from saddlescope.theory.escape.speed import escape_speed, on_sphere

    rng = np.random.default_rng([seed, depth, KINDS.index(kind)])
    make = {"random": _random, "extreme": _extreme}.get(kind)
    while count > 0:
        batch = [make(rng, depth)] if make else _descended(rng, depth, _STEPS[kind])
        for weights, X, G in batch[:count]:
            weights = on_sphere(weights)
            if G.any() and escape_speed(weights, X, G) > 1e-12 * np.linalg.norm(X) * np.linalg.norm(G):
                count -= 1
                yield weights, X, G


def _random(rng: np.random.Generator, depth: int) -> "Case":

    widths, samples = rng.integers(1, 9, depth + 1), int(rng.integers(1, 12))
    weights = [rng.normal(size=(out, into)) for into, out in pairwise(widths)]
    if rng.random() < 0.5:  # deep networks of both signs are nearly dead
        weights = [np.abs(weight) for weight in weights[:-1]] + weights[-1:]
    weights = [weight / np.linalg.norm(weight) for weight in weights]
    return tuple(weights), rng.normal(size=(widths[0], samples)), rng.normal(size=(widths[-1], samples))


def _extreme(rng: np.random.Generator, depth: int) -> "Case":

    size = into = int(rng.integers(1, 5))
    noise, weights = 10 ** rng.uniform(-8, 0), []
    hidden = output = X = np.eye(size)
    for _ in range(depth):
        rows = np.eye(size, into)[rng.permutation(size)]  # of those that are alive
        weight = np.concatenate([rows, -rows]) if rng.random() < 0.3 else rows
        weight = weight + noise * rng.normal(size=weight.shape)
        weights.append(weight / np.linalg.norm(weight))
        output = weights[-1] @ hidden
        hidden, into = np.maximum(output, 0), len(weight)
    return tuple(weights), X, -output


def _descended(rng: np.random.Generator, depth: int, steps: int) -> "list[Case]":
    """Networks that descend on the sphere on one random data set."""
    d_in, samples, d_out = _DATA
    X, G = rng.normal(size=(d_in, samples)), rng.normal(size=(d_out, samples))
    found, _ = descended(rng, X, G, depth=depth, width=_WIDTHS, starts=_STARTS, steps=steps)
    return [(tuple(weight[start] for weight in found), X, G) for start in range(_STARTS)]


def descended(
    rng: np.random.Generator, X: np.ndarray, G: np.ndarray, *, depth: int, width: int, starts: int, steps: int
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """W_1, ..., W_L with a leading axis of starts, and the speeds, after descent from random networks.

    No polish: for speeds that need no more than six digits, and for weights that are no optima.
    """
    from saddlescope.theory.escape.sphere_descent import sphere_descent

    widths = [len(X), *[width] * (depth - 1), len(G)]
    weights = tuple(rng.normal(size=(starts, out, into)) for into, out in pairwise(widths))
    rate = 0.03 if depth <= 6 else 0.01  # deeper networks are lost at larger steps
    found, speeds = sphere_descent(weights, X, G, steps=steps, rate=rate, marks=1)
    return found, speeds[:, -1]
