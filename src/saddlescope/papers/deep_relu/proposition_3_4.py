"""Proposition 3.4 and a sharper inequality: a fast network has few layers of high rank.

Both are tested on networks that are random, partly descended on the localised loss, near an optimum, and extreme. For
any weights with |theta|^2 <= L and a speed s > 0:

    B         2 log(|X| |G| / s), the budget
    spent     sum over l = 0..L-1 of log(|Zs_l|_F^2 / |Zs_l|_op^2), Zs_0 = X, and
              sum over l = 1..L-1 of log(|Z_l|^2 / |Zs_l|^2): the cost of rank and ReLU; never more than B
    tail      1 - |Zs_l|_op^2 / |Zs_l|_F^2, 0 at rank one
    p         a share of layers: at least (1 - p) L of the layers l = 0..L-1 have a tail of at most B / (p L)
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.shared.network_ensembles import (
    KINDS,
    describe_networks,
    draw_networks,
    network_points,
)
from saddlescope.plot import Axis, Figure, Figures, Line, Panel, lines
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

_ROUNDING = 1e-9  # of the logarithms: speeds down to 1e-12 of |X||G| lose digits


class Params(EntryParams):
    """Thousands of networks; the paper proves the proposition without experiments."""

    depths: tuple[int, ...] = param((2, 3, 4, 6, 8, 12, 16), "numbers of layers L", ge=2, order="distinct")
    count: int = param(250, "networks of each kind at each depth", ge=1)
    shares: tuple[float, ...] = param((0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9), "shares p of layers", gt=0, lt=1)
    seed: int = param(0, "seed of the networks", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Evaluate networks depth by depth, kind by kind."""
    return context.over({"depth": params.depths}, partial(_evaluate_depth, params))


def _evaluate_depth(params: Params, depth: int, step: RunContext) -> xr.Dataset:
    from saddlescope.theory.escape.bounds import layer_deficits, layer_ratios, low_rank_activations, speed_deficit
    from saddlescope.theory.escape.speed import escape_speed

    budget, spent = np.zeros((2, len(KINDS), params.count))
    missing = np.zeros((len(KINDS), params.count, len(params.shares)))
    for k, kind in enumerate(KINDS):
        for n, (weights, X, G) in enumerate(draw_networks(kind, depth=depth, count=params.count, seed=params.seed)):
            speed = escape_speed(weights, X, G)
            budget[k, n] = speed_deficit(X, G, speed=speed)
            spent[k, n] = layer_deficits(weights, X, G).total
            tails = layer_ratios(weights, X, G).activations
            for p, share in enumerate(params.shares):
                bound, least = low_rank_activations(X, G, speed=speed, depth=depth, share=share)
                missing[k, n, p] = least - np.sum(tails <= bound + _ROUNDING)
        step.report((k + 1) / len(KINDS), kind)
    case = ("kind", "case")
    variables = {"budget": (case, budget), "spent": (case, spent), "missing": ((*case, "share"), missing)}
    return xr.Dataset(variables, {"kind": list(KINDS), "share": list(params.shares)})


claims = Claims(
    limits="The paper does not state whether the input is one of its L layers; its proof counts it, and so does this "
    "entry. Of the hidden layers alone the proof gives (1-p)L rounded down. Slow networks, whose bound is above 1, "
    "test nothing; the extreme ones, built from permutations, come near equality."
)


@claims.printed(
    "proposition-3-4",
    "With |θ|² ≤ L and speed s > 0, for any p in (0, 1) at least (1-p)L layers, the input among them, have "
    "1 - |Zσ|_op²/|Zσ|_F² ≤ 2 log(|X||G|/s)/(pL)",
    "Proposition 3.4, as its proof counts: layer 0 is the input",
    high=0.0,
)
def count_missing(run: xr.Dataset) -> Estimate:
    """Number of networks with too few such layers, for some of seven p ≥ 1/L."""
    short = (run.missing.where(run.share * run.depth >= 1) > 0).any("share")
    by_kind = ", ".join(f"{kind} {int(short.sel(kind=kind).sum())}" for kind in run.kind.values)
    return Estimate.number(short, f"of {short.size}; by kind: {by_kind}", over="networks")


@claims.extension(
    "sharper",
    "If |θ|² ≤ L and the speed is s > 0, the logs of |Zσ|_F²/|Zσ|_op² over layers 0 (the input) to L - 1 and of "
    "|Z|²/|Zσ|² over layers 1 to L - 1 sum to at most 2 log(|X||G|/s)",
    "this project's theorem, from the proof of Proposition 3.4 with its ReLU terms kept",
    high=0.0,
)
def count_over_budget(run: xr.Dataset) -> Estimate:
    """Number of networks with a larger sum."""
    used = float((run.spent / run.budget).max())
    remark = f"{describe_networks(run.budget)}; at most {used:.6f} of the bound is used"
    return Estimate.number(run.spent > run.budget + _ROUNDING, remark, over="networks")


def figures(run: xr.Dataset) -> Figures:
    """Draw the spent part against the budget, and the largest share spent by depth."""
    used, largest = run.spent / run.budget, float(run.budget.max())
    groups = {
        kind: (np.maximum(run.budget.sel(kind=kind).values, 1e-9), run.spent.sel(kind=kind).values) for kind in KINDS
    }
    ends = np.array([0.05, largest])
    equality = Line(x=ends, y=ends, label="equality", style="dashed", color=6)
    points = network_points(groups, floor=1e-9, opacity=0.5)
    shares = lines(used.max("case"), x="depth", hue="kind", grouped=True)
    x, y = (Axis(label, scale="log", range=(0.05, 2 * largest)) for label in ("budget", "spent on rank and ReLU"))
    yield Figure(
        name="budget",
        title="Cost of rank and ReLU against the budget",
        caption="Left: each point is a network: the cost of its layers' ranks and ReLUs against its budget "
        "2 log(|X| |G| / s). The inequality allows points below the dashed line. Right: the largest share of a "
        f"budget that was spent, by depth; over all networks it is {float(used.max()):.4f}.",
        panels=(
            Panel(title=describe_networks(run.budget), x=x, y=y, marks=(*points, equality)),
            Panel(title="how tight", x=Axis("depth L"), y=Axis("largest share spent"), marks=shares),
        ),
    )


entry = Entry(
    "deep-relu/proposition-3-4",
    "Proposition 3.4: a fast network has few layers of high rank",
    source="Proposition 3.4",
    quick=dict(depths=(4,), count=60),
    paper=dict(count=2500),
)
