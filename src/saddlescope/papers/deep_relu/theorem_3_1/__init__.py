"""Theorem 3.1: deeper layers are nearer rank one, but the bound is empty at practical depth.

The theorem bounds tail(W_l), tail(Zs_l) and |Zs_l - Z_l|^2 / |Z_l|^2 of an optimal escape direction, at every depth, by
8 c l^(-1/2) / (1 - c l^(-1/2)) with c = (|X||G|/s*) sqrt(2 log(|X||G|/s*)). All three are at most 1 anyway, and the
bound is below 1 for l > 81 c^2 only. The proof finds activations near rank one among the layers 1 to l, and says
nothing about the weights W_l before them: for weights and ReLUs the theorem holds with l - 1 in place of l.

    tail(A)      1 - |A|_op^2 / |A|_F^2, 0 at rank one
    first layer  81 c^2: from there on the bound is below 1
    budget       2 log(|X||G|/s*), the most that all layers together can spend on rank and ReLU (see proposition_3_4):
                 at most budget / log(1/(1 - tau)) of them can have a tail above tau, at any depth

Two kinds of data: circles as in Example 1, and inputs u v^T + E near rank one with G = -v + noise of that size, which
bring |X||G|/s* arbitrarily near 1. Where G has one sign, the optimum is one neuron at every depth, so that s* is
known exactly: there the theorem is tested. Elsewhere s* is taken from depth 3, where it is certified, and the network
is deepened at no loss.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle
from saddlescope.papers.deep_relu.theorem_3_1.claims import claims
from saddlescope.papers.deep_relu.theorem_3_1.figures import figures
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """The paper proves the theorem and evaluates it nowhere."""

    depth: int = param(64, "L of the networks that are compared with the bounds", ge=3)
    circles: tuple[int, ...] = param((4, 8, 12), "numbers of points, even, 8 among them")
    log10_distances: tuple[float, ...] = param(
        (
            -1.0,
            -2.0,
            -3.0,
            -4.0,
        ),
        "log10 of |E|_F of the data near rank one, decreasing",
    )
    count: int = param(25, "data sets near rank one at each distance", ge=1)
    points: int = param(8, "inputs of each", ge=2)
    seed: int = param(0, "of all draws", ge=0)

    def check(self) -> None:
        if 8 not in self.circles or any(n < 4 or n % 2 for n in self.circles):
            raise InputError(f"circles must be even numbers of at least 4, 8 among them; got {self.circles!r}.")
        given = self.log10_distances
        if len(given) < 2 or max(given) > 0 or min(given) < -7 or tuple(sorted(set(given), reverse=True)) != given:
            raise InputError(
                f"log10_distances must be two or more between 0 and -7, decreasing, such as -1,-2,-4; got {given!r}."
            )


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Evaluate the circles, then the data near rank one, distance by distance; data sets along one dimension."""
    parts = [context.cached("circles", partial(_measure_circles, params))]
    total = len(params.log10_distances)
    for k, log10 in enumerate(params.log10_distances):
        part = context.part((k + 1) / (total + 1), (k + 2) / (total + 1))
        parts.append(context.cached(f"distance-{k}", partial(_measure_near_rank_one, k, log10, params, part)))
    context.report(1.0, "done")
    layers = np.unique(np.rint(np.geomspace(1, 1e6, 121)))
    together = xr.concat(parts, dim="data")
    x = together.constant / np.sqrt(xr.DataArray(layers, dims="l", coords={"l": layers}))
    return together.assign(curve=(8 * x / (1 - x)).where(x < 1))


def _measure_circles(params: Params) -> xr.Dataset:
    sets = [_measure(f"circle, N = {n}", *alternating_circle(n), params.depth) for n in params.circles]
    return xr.concat(sets, dim="data")


def _measure_near_rank_one(number: int, log10: float, params: Params, report: Report) -> xr.Dataset:
    rng = np.random.default_rng([params.seed, number])
    sets: list[xr.Dataset] = []
    for n in range(params.count):
        report(n / params.count, f"|E| = 1e{log10:g}")
        u, v = rng.normal(size=2), np.abs(rng.normal(size=params.points))
        u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
        E, turn = rng.normal(size=(2, params.points)), rng.normal(size=params.points)
        X = np.outer(u, v) + 10.0**log10 * E / np.linalg.norm(E)
        G = -v + 10.0**log10 * turn / np.linalg.norm(turn)
        sets.append(_measure(f"|E| = 1e{log10:g}", X.T, G[:, None], params.depth))
    return xr.concat(sets, dim="data")


def _measure(name: str, X: np.ndarray, G: np.ndarray, depth: int) -> xr.Dataset:
    """Compare the optimum of one data set, as deep as asked, with the bounds, layer by layer."""
    from saddlescope.theory.escape.bounds import (
        first_layer_with_content,
        layer_deficits,
        layer_ratios,
        optimal_layer_bound,
        speed_deficit,
    )
    from saddlescope.theory.escape.certificate import certified_escape_speed
    from saddlescope.theory.escape.deeper_network import deepen

    best = certified_escape_speed(X, G)
    weights = deepen(best.weights, X, G, depth=depth)
    ratios, spent = layer_ratios(weights, X, G), layer_deficits(weights, X, G)
    layers = np.arange(1, depth)
    return xr.Dataset(
        {
            "speed": best.lower,
            "one_sign": bool(np.all(G <= 0) or np.all(G >= 0)),
            "first_layer": first_layer_with_content(X, G, speed=best.lower),
            "constant": np.sqrt(first_layer_with_content(X, G, speed=best.lower) / 81),
            "budget": speed_deficit(X, G, speed=best.lower),
            "spent": spent.total,
            "bound": ("layer", [optimal_layer_bound(X, G, speed=best.lower, layer=int(layer)) for layer in layers]),
            "weights": ("layer", ratios.weights[:-1]),
            "activations": ("layer", ratios.activations[1:]),
            "relu": ("layer", ratios.relu),
        },
        coords={"layer": layers, "data": name},
    )


entry = Entry(
    "deep-relu/theorem-3-1",
    "Theorem 3.1: deeper layers are nearer rank one, but the bound is empty at practical depth",
    citation=CITATION,
    source="Theorem 3.1",
    params=Params,
    quick=dict(depth=16, circles=(4, 8), log10_distances=(-1.0, -3.0), count=5),
    paper=dict(depth=256, count=250),
    run=run,
    claims=claims,
    figures=figures,
)
