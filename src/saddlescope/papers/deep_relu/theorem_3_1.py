"""Theorem 3.1: deeper layers are nearer rank one, but the bound is empty at practical depth   (Theorem 3.1)

The theorem bounds tail(W_l), tail(Zs_l) and |Zs_l - Z_l|^2 / |Z_l|^2 of an optimal escape direction, at every depth, by
8 c l^(-1/2) / (1 - c l^(-1/2)) with c = (|X||G|/s*) sqrt(2 log(|X||G|/s*)). All three are at most 1 anyway, and the
bound is below 1 for l > 81 c^2 only. The proof finds activations near rank one among the layers 1 to l, and says
nothing of the weights W_l before them: for weights and ReLUs the theorem holds with l - 1 in place of l.

    tail(A)      1 - |A|_op^2 / |A|_F^2, 0 at rank one
    first layer  81 c^2: from there on the bound is below 1
    budget       2 log(|X||G|/s*), what all layers together can spend on rank and ReLU (see proposition_3_4): at most
                 budget / log(1/(1 - tau)) of them can have a tail above tau, whatever the depth

Two kinds of data: circles as in Example 1, and inputs u v^T + E near rank one with G = -v + noise of that size, which
make |X||G|/s* as near 1 as one likes. Where G has one sign, the optimum is one neuron at every depth, so that s* is
known exactly: there the theorem is tried. Elsewhere s* is taken from depth 3, where it is certified, and the network is
made deeper at no loss.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext

EXAMPLE = "circle, N = 8"
PRACTICAL = 100  # layers: a depth that networks in use do not exceed by much
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Params:
    """The paper proves the theorem and evaluates it nowhere."""

    depth: int = 64  # L of the networks that are held against the bounds
    circles: tuple[int, ...] = (4, 8, 12)  # numbers of points, even, 8 among them
    log10_distances: tuple[float, ...] = (
        -1.0,
        -2.0,
        -3.0,
        -4.0,
    )  # log10 of |E|_F of the data near rank one, decreasing
    count: int = 25  # data sets near rank one at each distance
    points: int = 8  # inputs of each
    seed: int = 0  # of all draws

    def __post_init__(self) -> None:
        if 8 not in self.circles or any(n < 4 or n % 2 for n in self.circles):
            raise InputError(f"circles must be even numbers of at least 4, 8 among them; got {self.circles!r}.")
        given = self.log10_distances
        if len(given) < 2 or max(given) > 0 or min(given) < -7 or tuple(sorted(set(given), reverse=True)) != given:
            raise InputError(
                f"log10_distances must be two or more between 0 and -7, decreasing, such as -1,-2,-4; got {given!r}."
            )
        parameter_checks.at_least(3, self, "depth")
        parameter_checks.at_least(1, self, "count")
        parameter_checks.at_least(2, self, "points")
        parameter_checks.at_least(0, self, "seed")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: shallower and fewer."""
        return cls(depth=16, circles=(4, 8), log10_distances=(-1.0, -3.0), count=5)

    @classmethod
    def paper(cls) -> "Params":
        """Deeper, and ten times as many data sets as the default."""
        return cls(depth=256, count=250)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """The circles, then the data near rank one, distance by distance; data sets along one dimension."""
    parts = [context.cached("circles", partial(_circles, params))]
    total = len(params.log10_distances)
    for k, log10 in enumerate(params.log10_distances):
        part = context.part((k + 1) / (total + 1), (k + 2) / (total + 1))
        parts.append(context.cached(f"distance-{k}", partial(_near_rank_one, k, log10, params, part)))
    context.report(1.0, "done")
    layers = np.unique(np.rint(np.geomspace(1, 1e6, 121)))
    together = xr.concat(parts, dim="data")
    x = together.constant / np.sqrt(xr.DataArray(layers, dims="l", coords={"l": layers}))
    return together.assign(curve=(8 * x / (1 - x)).where(x < 1))


def _circles(params: Params) -> xr.Dataset:

    sets = [_measured(f"circle, N = {n}", *alternating_circle(n), params.depth) for n in params.circles]
    return xr.concat(sets, dim="data")


def _near_rank_one(number: int, log10: float, params: Params, report: Callable[[float, str], None]) -> xr.Dataset:

    rng = np.random.default_rng([params.seed, number])
    sets: list[xr.Dataset] = []
    for n in range(params.count):
        report(n / params.count, f"|E| = 1e{log10:g}")
        u, v = rng.normal(size=2), np.abs(rng.normal(size=params.points))
        u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
        E, turn = rng.normal(size=(2, params.points)), rng.normal(size=params.points)
        X = np.outer(u, v) + 10.0**log10 * E / np.linalg.norm(E)
        G = -v + 10.0**log10 * turn / np.linalg.norm(turn)
        sets.append(_measured(f"|E| = 1e{log10:g}", X, G[None], params.depth))
    return xr.concat(sets, dim="data")


def _measured(name: str, X: np.ndarray, G: np.ndarray, depth: int) -> xr.Dataset:
    """The optimum of one data set, as deep as asked, against the bounds, layer by layer."""
    from saddlescope.theory.escape.bounds import (
        budget,
        first_layer_with_content,
        layer_ratios,
        optimal_layer_bound,
        spent_budget,
    )
    from saddlescope.theory.escape.certificate import certified_escape_speed
    from saddlescope.theory.escape.deeper_network import deepen

    best = certified_escape_speed(X, G)
    weights = deepen(best.weights, X, G, depth=depth)
    ratios, spent = layer_ratios(weights, X, G), spent_budget(weights, X, G)
    layers = np.arange(1, depth)
    return xr.Dataset(
        {
            "speed": best.lower,
            "one_sign": bool(np.all(G <= 0) or np.all(G >= 0)),
            "first_layer": first_layer_with_content(X, G, speed=best.lower),
            "constant": np.sqrt(first_layer_with_content(X, G, speed=best.lower) / 81),
            "budget": budget(X, G, speed=best.lower),
            "spent": spent.total,
            "bound": ("layer", [optimal_layer_bound(X, G, speed=best.lower, layer=int(layer)) for layer in layers]),
            "weights": ("layer", ratios.weights[:-1]),
            "activations": ("layer", ratios.activations[1:]),
            "relu": ("layer", ratios.relu),
        },
        coords={"layer": layers, "data": name},
    )


# The bounds. A theorem is not to be violated; where it begins to speak follows from its own formula.
def _example(run: xr.Dataset) -> xr.Dataset:
    return run.sel(data=EXAMPLE)


def _first_layer(run: xr.Dataset) -> Estimate:
    return Estimate(float(_example(run).first_layer))


def _speaks(run: xr.Dataset) -> Estimate:
    """The smallest bound at the layers below PRACTICAL of circles; a bound with no value is infinite."""
    x = run.constant.isel(data=[str(name).startswith("circle") for name in run.data.values]) / np.sqrt(PRACTICAL)
    return Estimate(float((8 * x / (1 - x)).where(x < 1, np.inf).min()), remark=f"layer {PRACTICAL}")


def _violations(run: xr.Dataset, later: int) -> Estimate:
    """Data sets where a ratio exceeds the bound below 1; weights and ReLUs `later` layers later than the bound's."""
    bound = run.bound.where((run.bound < 1) & run.one_sign)
    seen = int(bound.notnull().any("layer").sum())
    if not seen:
        return Estimate.unresolved("The bound was below 1 for no known optimum; lower the distances.")
    held = bound.shift(layer=later)
    over = (run.activations > bound) | (run.weights > held) | (run.relu > held)
    return Estimate(
        float(over.any("layer").sum()), remark=f"the bound is below 1 on {seen} data sets with G of one sign"
    )


def _spends_more(run: xr.Dataset) -> Estimate:
    return Estimate(float((run.spent > run.budget + ROUNDING).sum()), remark=f"{run.sizes['data']} data sets")


def _half_rank(run: xr.Dataset) -> Estimate:
    """At most so many layers of Example 1's optimum can have a tail above 1/2, at any depth."""
    return Estimate(float(math.floor(float(_example(run).budget) / math.log(2))))


claims = (
    Claim(
        name="first-layer",
        says="For Example 1 the bound is below 1 from layer 114,985 on only",
        source="Theorem 3.1's formula with s* = 1/2: 81 (16 sqrt(2 log 16))^2 = 114,984.8",
        statistic=_first_layer,
        low=114_984.0,
        high=114_986.0,
    ),
    Claim(
        name="printed-content",
        says="At layer 100 the bound says something (is below 1) for one of the circles",
        source="Theorem 3.1 as printed, which does not say where it begins to speak; this claim's bound is the content",
        statistic=_speaks,
        high=1.0,
    ),
    Claim(
        name="holds",
        says="Where it is below 1, no layer of the optimum exceeds it: data sets where one does",
        source="Theorem 3.1, corrected: weights and ReLUs one layer later than printed",
        statistic=partial(_violations, later=1),
        high=0.0,
    ),
    Claim(
        name="printed-layer",
        says="Nor with the layer as printed, l for weights and ReLUs, too",
        source="Theorem 3.1 as printed; its proof does not give that",
        statistic=partial(_violations, later=0),
        high=0.0,
    ),
    Claim(
        name="budget",
        says="All layers together spend no more than the budget on rank and ReLU: data sets where they do",
        source="This project's sharper inequality, in the theorem's stead",
        statistic=_spends_more,
        high=0.0,
    ),
    Claim(
        name="content",
        says="It says that of Example 1's optimum at most so many layers can have a tail above 1/2, at any depth",
        source="The sharper inequality: 2 log 16 / log 2 = 8",
        statistic=_half_rank,
        low=1.0,
        high=8.0,
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """Where the bound begins to speak, and the optimum beside it."""
    names = list(dict.fromkeys(str(name) for name in run.data.values))
    curves, firsts, actual = [], [], []
    for color, name in enumerate(names):
        some = run.isel(data=run.data.values == name)
        middle = some.isel(data=int(np.argsort(some.constant.values)[some.sizes["data"] // 2]))
        curves.append(Line(x=run.l.values, y=middle.curve.values, group=name, color=color))
        firsts.append(
            Line(
                x=np.exp(some.budget.values / 2) - 1,
                y=some.first_layer.values,
                group=name,
                color=color,
                style="points",
            )
        )
        tails = np.maximum(some.activations.max("data").values, 1e-16)
        actual.append(Line(x=run.layer.values, y=tails, group=name, color=color, style="points"))
    excess = np.geomspace(1e-8, 20, 100)
    law = 81 * (1 + excess) ** 2 * 2 * np.log1p(excess)
    firsts.append(Line(x=excess, y=law, label="81 c²", style="dashed", color=len(names), width=1.2))
    one = Mark(at=1.0, label="all ratios are at most 1", axis="y")
    return [
        Figure(
            name="content",
            title="Theorem 3.1 speaks from layer 81 c² on: layer 115,000 for Example 1",
            caption="Left: the theorem's bound against the layer, for circles and for data near rank one (the median "
            "one of each kind); above 1 it says nothing. Middle: the first layer where it is below 1, against how far "
            "|X||G|/s* is above 1, its least value. Right: what it bounds, the largest tail(Zσ_l) of the optimum over "
            "the data sets of each kind; exactly 0 is drawn at 1e-16. The table has what the sharper inequality says.",
            panels=(
                Panel(
                    title="the bound",
                    x=Axis("layer l", scale="log"),
                    y=Axis("bound", scale="log", range=(1e-3, 1e3)),
                    marks=(*curves, one),
                ),
                Panel(
                    title="where it begins",
                    x=Axis("|X||G|/s* − 1", scale="log"),
                    y=Axis("first layer", scale="log"),
                    marks=tuple(firsts),
                ),
                Panel(
                    title=f"the optimum, made {int(run.layer[-1]) + 1} layers deep",
                    x=Axis("layer l", scale="log"),
                    y=Axis("tail(Zσ)", scale="log"),
                    marks=tuple(actual),
                ),
            ),
            columns=3,
            table=_table(run, names),
        )
    ]


def _table(run: xr.Dataset, names: list[str]) -> Table:

    rows = []
    for name in names:
        some = run.isel(data=run.data.values == name)
        budget = float(some.budget.max())
        rows.append(
            (
                name,
                some.sizes["data"],
                int(some.one_sign.sum()),
                math.ceil(float(some.first_layer.max())),
                f"{budget:.3g}",
                f"{float((some.spent / some.budget).max()):.3f}",
                math.floor(budget / math.log(2)),
            )
        )
    columns = (
        "data", "sets", "with G of one sign", "first layer with content", "budget", "spent, largest share",
        "layers with a tail above 1/2, at most",
    )  # fmt: skip
    return Table(columns=columns, rows=tuple(rows))
