"""Ensembles of networks on which statements about all networks are tested, and their points in a picture.

random      weights and data drawn at random, all widths and sizes different
descended   after ten steps of descent on the sphere
fast        after four hundred steps, near an optimum
extreme     near equality in the sharper inequality: orthonormal inputs, permutations as weights, some with each row
            twice, with both signs, so that ReLU takes half; G = -Y; and noise of a size drawn between 1e-8 and 1
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import xarray as xr

from saddlescope.plot import Line

Case = tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]
"""Weights W_1, ..., W_L, inputs (N, d_in) and gradients (N, d_out)."""

KINDS = ("random", "descended", "fast", "extreme")

_STEPS = {"descended": 10, "fast": 400}

_DATA, _WIDTHS = (3, 8, 2), 6  # d_in, N and d_out of the searches, and their hidden widths: one compilation per depth

_STARTS = 25  # networks that descend on the same data


def describe_networks(cases: xr.DataArray) -> str:
    """Describe how many networks of which depths have a value."""
    return f"{cases.size} networks, depths {', '.join(str(int(depth)) for depth in cases.depth.values)}"


def network_points(groups: Mapping[str, tuple[np.ndarray, np.ndarray]], *, floor: float, opacity: float) -> list[Line]:
    """Draw one point per network (x, y) of each group; values below the floor are drawn there."""
    look = {"style": "points", "width": 0.8, "opacity": opacity}
    return [
        Line(x=x.ravel(), y=np.maximum(y, floor).ravel(), group=group, color=color, **look)
        for color, (group, (x, y)) in enumerate(groups.items())
    ]


def draw_networks(kind: str, *, depth: int, count: int, seed: int) -> Iterator[Case]:
    """Draw networks of one depth with inputs and gradients, all with a positive speed and |theta|^2 = L.

    Args:
        kind: one of KINDS.
        depth: L.
        count: number of networks.
        seed: seed of all draws, together with the kind and the depth.
    """
    from saddlescope.theory.escape.speed import escape_speed, on_sphere

    rng = np.random.default_rng([seed, depth, KINDS.index(kind)])
    make = {"random": _draw_random, "extreme": _draw_extreme}.get(kind)
    while count > 0:
        batch = [make(rng, depth)] if make else _draw_descended(rng, depth, _STEPS[kind])
        for weights, X, G in batch[:count]:
            weights = on_sphere(weights)
            if G.any() and escape_speed(weights, X, G) > 1e-12 * np.linalg.norm(X) * np.linalg.norm(G):
                count -= 1
                yield weights, X, G


def _draw_random(rng: np.random.Generator, depth: int) -> Case:
    widths, samples = rng.integers(1, 9, depth + 1), int(rng.integers(1, 12))
    weights = [rng.normal(size=(out, into)) for into, out in pairwise(widths)]
    if rng.random() < 0.5:  # deep networks of both signs are nearly dead
        weights = [np.abs(weight) for weight in weights[:-1]] + weights[-1:]
    weights = [weight / np.linalg.norm(weight) for weight in weights]
    return tuple(weights), rng.normal(size=(widths[0], samples)).T, rng.normal(size=(widths[-1], samples)).T


def _draw_extreme(rng: np.random.Generator, depth: int) -> Case:
    size = into = int(rng.integers(1, 5))
    noise, weights = 10 ** rng.uniform(-8, 0), []
    hidden = output = X = np.eye(size)
    for _ in range(depth):
        rows = np.eye(size, into)[rng.permutation(size)]  # of the living neurons
        weight = np.concatenate([rows, -rows]) if rng.random() < 0.3 else rows
        weight = weight + noise * rng.normal(size=weight.shape)
        weights.append(weight / np.linalg.norm(weight))
        output = weights[-1] @ hidden
        hidden, into = np.maximum(output, 0), len(weight)
    return tuple(weights), X.T, -output.T


def _draw_descended(rng: np.random.Generator, depth: int, steps: int) -> list[Case]:
    """Draw networks and let them descend on the sphere on one random data set."""
    d_in, samples, d_out = _DATA
    X, G = rng.normal(size=(d_in, samples)).T, rng.normal(size=(d_out, samples)).T
    found, _ = descend_from_random(rng, X, G, depth=depth, width=_WIDTHS, starts=_STARTS, steps=steps)
    return [(tuple(weight[start] for weight in found), X, G) for start in range(_STARTS)]


def descend_from_random(
    rng: np.random.Generator, X: np.ndarray, G: np.ndarray, *, depth: int, width: int, starts: int, steps: int
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Return W_1, ..., W_L with a leading axis of starts, and the speeds, after descent from random networks.

    Without refinement: for speeds that need at most six digits, and for weights that are not optima.
    """
    from saddlescope.theory.escape.sphere_descent import sphere_descent

    widths = [X.shape[1], *[width] * (depth - 1), G.shape[1]]
    weights = tuple(rng.normal(size=(starts, out, into)) for into, out in pairwise(widths))
    rate = 0.03 if depth <= 6 else 0.01  # larger steps make deeper networks diverge
    found, speeds = sphere_descent(weights, X, G, steps=steps, learning_rate=rate, record=np.array([steps]))
    return found, speeds[:, -1]
