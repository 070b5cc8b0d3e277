"""Proposition 3.4 and a sharper inequality: a fast network has few layers of high rank.

Both are tested on networks that are random, partly descended on the localised loss, near an optimum, and extreme. For
any weights with |theta|^2 <= L and a speed s > 0:

    B         2 log(|X| |G| / s), the budget
    spent     sum over l = 0..L-1 of log(|Zs_l|_F^2 / |Zs_l|_op^2), Zs_0 = X, and
              sum over l = 1..L-1 of log(|Z_l|^2 / |Zs_l|^2): the cost of rank and ReLU; never more than B
    tail      1 - |Zs_l|_op^2 / |Zs_l|_F^2, 0 at rank one
    p         a share of layers: at least (1 - p) L of the layers l = 0..L-1 have a tail of at most B / (p L)

The first statement, spent <= B, is sharper and implies the second, which is the paper's. The paper does not state
whether the input l = 0 is one of its layers; its proof counts it. For the hidden layers alone the proof gives (1 - p) L
rounded down, not up.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.network_ensembles import KINDS, draw_networks
from saddlescope.plot import Axis, Figure, Line, Panel, Table, lines
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

_ROUNDING = 1e-9  # of the logarithms: speeds down to 1e-12 of |X||G| lose digits


class Params(EntryParams):
    """Thousands of networks; the paper proves the proposition without experiments."""

    depths: tuple[int, ...] = param((2, 3, 4, 6, 8, 12, 16), "numbers of layers L", ge=2, order="distinct")
    count: int = param(250, "networks of each kind at each depth", ge=1)
    shares: tuple[float, ...] = param((0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9), "shares p of layers", gt=0, lt=1)
    seed: int = param(0, "seed of the networks", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Evaluate networks depth by depth, kind by kind."""
    parts = [
        step.cached(f"depth-{depth}", partial(_evaluate_depth, depth, params, step.report))
        for depth, step in context.steps(params.depths)
    ]
    context.report(1.0, "done")
    return xr.concat(parts, dim="depth")


def _evaluate_depth(depth: int, params: Params, report: Report) -> xr.Dataset:
    from saddlescope.theory.escape.bounds import layer_deficits, layer_ratios, low_rank_activations, speed_deficit
    from saddlescope.theory.escape.speed import escape_speed

    budgets, rank, relu, missing, missing_hidden = (
        np.zeros((len(KINDS), params.count, *more)) for more in ((), (), (), *[(len(params.shares),)] * 2)
    )
    for k, kind in enumerate(KINDS):
        report(k / len(KINDS), f"depth {depth}, {kind}")
        for n, (weights, X, G) in enumerate(draw_networks(kind, depth=depth, count=params.count, seed=params.seed)):
            speed = escape_speed(weights, X, G)
            spent, tails = layer_deficits(weights, X, G), layer_ratios(weights, X, G).activations
            budgets[k, n] = speed_deficit(X, G, speed=speed)
            rank[k, n], relu[k, n] = spent.rank.sum(), spent.relu.sum()
            for p, share in enumerate(params.shares):
                bound, least = low_rank_activations(X, G, speed=speed, depth=depth, share=share)
                within = tails <= bound + _ROUNDING
                missing[k, n, p], missing_hidden[k, n, p] = least - within.sum(), least - within[1:].sum()
    case = ("kind", "case")
    return xr.Dataset(
        {
            "budget": (case, budgets),
            "rank": (case, rank),
            "relu": (case, relu),
            "missing": ((*case, "share"), missing),
            "missing_hidden": ((*case, "share"), missing_hidden),
        },
        coords={"kind": list(KINDS), "share": list(params.shares), "depth": depth},
    )


def _spent(run: xr.Dataset) -> xr.DataArray:
    return run["rank"] + run.relu


def _describe_networks(run: xr.Dataset) -> str:
    return f"{run.budget.size} networks, depths {', '.join(str(int(depth)) for depth in run.depth.values)}"


claims = Claims()  # theorems must never be violated; `tight` shows that the trial could reveal a violation


@claims.add(
    "sharper", "Log stable ranks of activations and log ReLU losses sum to at most 2 log(|X||G|/s) at escape speed s",
    quantity="number of networks with a larger sum over layers, with inputs X and loss gradients G at output 0",
    kind="own", source="this project's theorem, from the proof of Proposition 3.4 with its ReLU terms kept", high=0.0,
    evidence="cases", over="networks",
    why="The inequality is about every network of positive speed, so that one above it would refute the theorem",
    doubt="Random networks stay far below the bound; only the extreme ones come near enough to reveal an error",
)  # fmt: skip
def _violations(run: xr.Dataset) -> Estimate:
    return Estimate.number(_spent(run) > run.budget + _ROUNDING, _describe_networks(run))


@claims.add(
    "tight", "Some ReLU network uses at least 99 % of the bound 2 log(|X||G|/s) on its rank and ReLU losses",
    quantity="largest sum of log stable ranks and log ReLU losses relative to 2 log(|X||G|/s) at escape speed s, "
        "over networks with both", kind="own",
    source="the bound is this project's; a trial run had 0.975; without tight cases the trial would show little",
    low=0.99, high=1 + 1e-9, evidence="cases", over="networks",
    why="A bound that a network attains cannot be improved, and shows that the trial reaches its edge",
    doubt="The networks that come near are built for it, from permutations, and not found by descent",
)  # fmt: skip
def _tightest(run: xr.Dataset) -> Estimate:
    both = (run["rank"] > 0.5) & (run.relu > 0.5)
    if not both.any():
        return Estimate.unresolved("No network spent on both rank and ReLU; raise count.")
    return Estimate.largest((_spent(run) / run.budget).values[both.values])


def _missing(run: xr.Dataset, *, name: str) -> Estimate:
    short = (run[name].where(run.share * run.depth >= 1) > 0).any("share")
    by_kind = ", ".join(f"{kind} {int(short.sel(kind=kind).sum())}" for kind in run.kind.values)
    return Estimate.number(short, f"of {short.size}; by kind: {by_kind}")


_TOO_FEW = (
    "number of networks with too few layers of energy share at most 2 log(|X||G|/s)/(pL) beyond rank one, for some "
    "p ≥ 1/L (inputs X, loss gradients G, speed s)"
)

claims.add(
    "proposition-3-4",
    "At least (1-p)L of a depth-L network's input and hidden layers are nearly rank one, as its escape speed implies",
    quantity=_TOO_FEW, kind="printed", source="Proposition 3.4, as its proof counts: layer 0 is the input", high=0.0,
    evidence="cases", over="networks",
    why="For each network and seven shares p the layers within the printed bound are counted, which is its statement",
    doubt="Tails are at most 1, and for slow networks the bound is above 1, so that only fast ones test it",
)(partial(_missing, name="missing"))  # fmt: skip

claims.add(
    "printed-hidden",
    "At least (1-p)L of a depth-L network's hidden layers are nearly rank one, as its escape speed implies",
    quantity=_TOO_FEW, kind="reading",
    source="Proposition 3.4, if its layers are those with activations; its proof allows one fewer", high=0.0,
    evidence="cases", over="networks",
    why="It leaves the input out of the count, as a reader of the words 'L layers' with activations would",
    doubt="No proof covers this count, and no network of the trial was built to violate it",
)(partial(_missing, name="missing_hidden"))  # fmt: skip


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the spent part against the budget, and the largest share spent by depth."""
    spent, kinds = _spent(run), run.kind.values.tolist()
    used, largest = spent / run.budget, float(run.budget.max())
    points = [
        Line(
            x=np.maximum(run.budget.sel(kind=kind).values.ravel(), 1e-9),
            y=np.maximum(spent.sel(kind=kind).values.ravel(), 1e-9),
            group=kind, color=color, style="points", opacity=0.5, width=0.8,
        )
        for color, kind in enumerate(kinds)
    ]  # fmt: skip
    ends = np.array([0.05, largest])
    equality = Line(x=ends, y=ends, label="equality", style="dashed", color=6)
    shares = lines(used.max("case"), x="depth", hue="kind", grouped=True)
    budget, cost = (
        Axis(label, scale="log", range=(0.05, 2 * largest)) for label in ("budget", "spent on rank and ReLU")
    )
    short = (run.missing > 0).any("share")
    by_rank = run["rank"] / run.budget
    rows = tuple(
        (
            kind, int(run.budget.sel(kind=kind).size), f"{float(used.sel(kind=kind).median()):.3f}",
            f"{float(used.sel(kind=kind).max()):.6f}", f"{float(by_rank.sel(kind=kind).max()):.6f}",
            int(short.sel(kind=kind).sum()),
        )
        for kind in kinds
    )  # fmt: skip
    columns = (
        "kind", "networks", "median share spent", "largest", "largest, rank alone", "violations of Proposition 3.4",
    )  # fmt: skip
    return [
        Figure(
            name="budget",
            title="Cost of rank and ReLU against the budget",
            caption="Left: each point is a network: the cost of its layers' ranks and ReLUs against its budget "
            "2 log(|X| |G| / s). The inequality allows points below the dashed line. Right: the largest share of a "
            f"budget that was spent, by depth; over all networks it is {float(used.max()):.4f}.",
            panels=(
                Panel(title=_describe_networks(run), x=budget, y=cost, marks=(*points, equality)),
                Panel(title="how tight", x=Axis("depth L"), y=Axis("largest share spent"), marks=shares),
            ),
            table=Table(columns=columns, rows=rows),
        )
    ]


entry = Entry(
    "deep-relu/proposition-3-4",
    "Proposition 3.4 and a sharper inequality: a fast network has few layers of high rank", citation=CITATION,
    source="Proposition 3.4", params=Params, quick=dict(depths=(4,), count=60), paper=dict(count=2500), run=run,
    claims=claims, figures=figures,
)  # fmt: skip
