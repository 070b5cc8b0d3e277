"""Proposition 3.2: deeper networks escape at least as fast as shallower ones.

A network of depth L and positive speed is made deeper: its last two layers are replaced by their best single neuron,
and the new layers multiply the one activation by 1. It is built here for networks that are random, partly descended,
near an optimum, and extreme. It follows that the largest speed s*(L) does not fall with depth. For inputs in the plane
and one output s* is certified at depths 2 and 3.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle
from saddlescope.papers.deep_relu.shared.network_ensembles import (
    KINDS,
    describe_networks,
    draw_networks,
    network_points,
)
from saddlescope.plot import Axis, Figure, Figures, Panel
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param


class Params(EntryParams):
    """Parameters: thousands of networks to deepen, and a few data sets in the plane."""

    depths: tuple[int, ...] = param(
        (2, 3, 4, 6, 8, 12, 16), "numbers of layers L of the networks that are deepened", ge=2, order="distinct"
    )
    count: int = param(250, "networks of every kind at every depth", ge=1, scale="log")
    added: int = param(8, "largest number of added layers, which is drawn at random from 1 on", ge=1)
    data: int = param(3, "moved circles, beside the one of Example 1", ge=1)
    points: int = param(10, "inputs of each moved circle", ge=4)
    seed: int = param(1, "seed of the networks and the data", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Deepen the networks, depth by depth, then certify s*(2) and s*(3), data set by data set."""
    deepening, certified = context.split(0.8, 0.2)
    networks = deepening.over({"depth": params.depths}, partial(_deepen_networks, params))
    data = {"data": range(params.data + 1)}
    return networks.merge(certified.over(data, partial(_certify_speeds, params)))


def _deepen_networks(params: Params, depth: int, step: RunContext) -> xr.Dataset:
    """Deepen networks of one depth; return their gain in speed."""
    from saddlescope.theory.escape.deeper_network import deepen
    from saddlescope.theory.escape.speed import escape_speed

    rng = np.random.default_rng([params.seed, depth])
    gain = np.zeros((len(KINDS), params.count))
    for k, kind in enumerate(KINDS):
        for n, (weights, X, G) in enumerate(draw_networks(kind, depth=depth, count=params.count, seed=params.seed)):
            deeper = deepen(weights, X, G, depth=depth + int(rng.integers(1, params.added + 1)))
            gain[k, n] = escape_speed(deeper, X, G) / escape_speed(weights, X, G) - 1
        step.report((k + 1) / len(KINDS), kind)
    return xr.Dataset({"gain": (("kind", "case"), gain)}, {"kind": list(KINDS)})


def _certify_speeds(params: Params, number: int, step: RunContext) -> xr.Dataset:
    """Bound s*(2) above and s*(3) below on Example 1's circle (0), or on one with points and gradients moved."""
    from saddlescope.theory.escape.certificate import certified_escape_speed
    from saddlescope.theory.escape.rank_one import rank_one_escape_speed

    X, G = alternating_circle(params.points if number else 8)
    if number:
        rng = np.random.default_rng([params.seed, number])
        X = (X.T + rng.normal(0, 0.05, X.T.shape)).T
        G = G * rng.uniform(0.9, 1.1, G.shape)
    shallow, best = rank_one_escape_speed(X, G, depth=2), certified_escape_speed(X, G)
    return xr.Dataset({"shallow_upper": shallow.upper, "lower": best.lower})


claims = Claims(
    limits="At most 8 layers are added. The construction has one neuron in each new layer, so that its rank and ReLU "
    "there are right by construction. Our code rescales the result to |θ|² = L + k, where the proof has at most that; "
    "a larger norm only helps. `not-falling` is judged on four circles with one output; the smallest rise is 17 %."
)


@claims.printed(
    "not-slower",
    "A network of depth L ≥ 2, |θ|² = L and speed s > 0 can be deepened by k layers, to |θ|² = L + k and rank one from "
    "layer L on, and then escapes no slower",
    "Proposition 3.2, for L >= 2; 1e-12 for rounding",
    high=0.0,
)
def count_slower(run: xr.Dataset) -> Estimate:
    """Number of networks with a lower escape speed after deepening."""
    return Estimate.number(run.gain < -1e-12, describe_networks(run.gain), over="networks")


@claims.printed(
    "not-falling",
    "The optimal escape speed does not fall from depth 2 to depth 3",
    "Proposition 3.2, on circles, where both speeds are certified; 1e-9 for rounding",
    high=1e-9,
)
def largest_fall(run: xr.Dataset) -> Estimate:
    """Largest fall of the optimal speed, relative to that of depth 3; negative where it rises."""
    fall = (run.shallow_upper - run.lower) / run.lower
    return Estimate.largest(fall, f"it rises by up to {-float(fall.min()):.3g} of that of depth 3", over="data sets")


def figures(run: xr.Dataset) -> Figures:
    """Draw the gains by depth."""
    gain = run.gain.transpose("kind", "depth", "case")
    depths = np.repeat(run.depth.values, run.sizes["case"])
    groups = {kind: (depths + 0.12 * (k - 1.5), gain.sel(kind=kind).values) for k, kind in enumerate(KINDS)}
    x, y = Axis("depth L"), Axis("relative gain in speed", scale="log")
    marks = tuple(network_points(groups, floor=1e-16, opacity=0.4))
    yield Figure(
        name="depth",
        title="Gain in speed of deeper networks",
        caption="How much faster the constructed deeper network is than the original, by depth of the original; "
        "exactly as fast is drawn at 1e-16.",
        panels=(Panel(title=describe_networks(run.gain), x=x, y=y, marks=marks),),
    )


entry = Entry(
    "deep-relu/proposition-3-2",
    "Proposition 3.2: deeper networks escape at least as fast as shallower ones",
    source="Proposition 3.2",
    quick=dict(depths=(3,), count=40, data=1),
    paper=dict(count=2500, data=8),
)
