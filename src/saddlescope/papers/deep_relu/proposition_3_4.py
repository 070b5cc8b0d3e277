"""Proposition 3.4 and a sharper inequality: a fast network has few layers of high rank.

Tested on networks that are random, partly descended on the localised loss, near an optimum, and extreme. For any
weights with |theta|^2 <= L and a speed s > 0:

    B         2 log(|X| |G| / s), the budget
    spent     sum over l = 0..L-1 of log(|Zs_l|_F^2 / |Zs_l|_op^2), Zs_0 = X, and
              sum over l = 1..L-1 of log(|Z_l|^2 / |Zs_l|^2): the cost of rank and ReLU; never more than B
    tail      1 - |Zs_l|_op^2 / |Zs_l|_F^2, 0 at rank one
    p         a share of layers: at least (1 - p) L of the layers l = 0..L-1 have a tail of at most B / (p L)

The first statement is sharper, and implies the second, which is the paper's. The paper does not say whether the input l
= 0 is one of its layers; its proof counts it. For the hidden layers alone the proof gives (1 - p) L rounded down, not
up.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.network_ensembles import KINDS, draw_networks
from saddlescope.papers.deep_relu.shared.sequence_checks import require_distinct
from saddlescope.plot import Axis, Figure, Line, Panel, Table
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

ROUNDING = 1e-9  # of the logarithms: speeds down to 1e-12 of |X||G| lose digits


class Params(EntryParams):
    """Thousands of networks; the paper proves the proposition and tries none."""

    depths: tuple[int, ...] = param((2, 3, 4, 6, 8, 12, 16), "numbers of layers L")
    count: int = param(250, "networks of every kind at every depth", ge=1)
    shares: tuple[float, ...] = param((0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9), "values of p")
    seed: int = param(0, "of all draws", ge=0)

    def check(self) -> None:
        require_distinct(2, self, "depths", example="2,4,16")
        if not self.shares or not all(0 < share < 1 for share in self.shares):
            raise InputError(f"shares must be between 0 and 1, both excluded, such as 0.1,0.5; got {self.shares!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Evaluate networks depth by depth, kind by kind."""
    parts: list[xr.Dataset] = []
    for k, depth in enumerate(params.depths):
        part = context.part(k / len(params.depths), (k + 1) / len(params.depths))
        parts.append(context.cached(f"depth-{depth}", partial(_evaluate_depth, depth, params, part)))
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
                within = tails <= bound + ROUNDING
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


# The bounds: theorems must never be violated. A separate claim says that the trial could have shown a violation by a
# few per cent.
def _spent(run: xr.Dataset) -> xr.DataArray:
    return run["rank"] + run.relu


def _describe_networks(run: xr.Dataset) -> str:
    return f"{run.budget.size} networks, depths {', '.join(str(int(depth)) for depth in run.depth.values)}"


def _missing(run: xr.Dataset, *, name: str) -> Estimate:
    short = (run[name].where(run.share * run.depth >= 1) > 0).any("share")
    by_kind = ", ".join(f"{kind} {int(short.sel(kind=kind).sum())}" for kind in run.kind.values)
    return Estimate(float(short.sum()), remark=f"by kind: {by_kind}")


claims = Claims()


@claims.add(
    "sharper",
    "No network spends more than its budget",
    quantity="violations of the sharper inequality",
    kind="own",
    source="This project's theorem, from the proof of Proposition 3.4 with its ReLU terms kept",
    high=0.0,
)
def _violations(run: xr.Dataset) -> Estimate:
    return Estimate(float((_spent(run) > run.budget + ROUNDING).sum()), remark=_describe_networks(run))


@claims.add(
    "tight",
    "The inequality is nearly an equality somewhere, for rank and ReLU at once",
    quantity="largest share spent",
    kind="printed",
    source="A trial run had .975; without tight cases the trial would say little",
    low=0.99,
    high=1 + 1e-9,
)
def _tightest(run: xr.Dataset) -> Estimate:
    """Return the largest share spent of a budget, over networks that spend on both rank and ReLU."""
    both = (run["rank"] > 0.5) & (run.relu > 0.5)
    if not both.any():
        return Estimate.unresolved("No network spent on rank and ReLU both.")
    return Estimate(float((_spent(run) / run.budget).where(both).max()), remark=f"{int(both.sum())} networks")


claims.add(
    "proposition-3-4",
    "Of the layers l = 0..L-1 at least (1 - p) L have a tail of at most B / (p L)",
    quantity="networks that violate it",
    kind="printed",
    source="Proposition 3.4, as its proof counts",
    high=0.0,
)(partial(_missing, name="missing"))

claims.add(
    "printed-hidden",
    "So have at least (1 - p) L of the hidden layers l = 1..L-1, where p L >= 1",
    quantity="networks that violate it",
    kind="printed",
    source="Proposition 3.4 as printed, if its layers are those with activations; its proof allows one fewer",
    high=0.0,
)(partial(_missing, name="missing_hidden"))


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the spent part against the budget, and the share spent by depth."""
    spent = _spent(run)
    points = [
        Line(
            x=np.maximum(run.budget.sel(kind=kind).values.ravel(), 1e-9),
            y=np.maximum(spent.sel(kind=kind).values.ravel(), 1e-9),
            group=str(kind),
            color=color,
            style="points",
            opacity=0.5,
            width=0.8,
        )
        for color, kind in enumerate(run.kind.values)
    ]
    largest = float(run.budget.max())
    equality = Line(x=np.array([0.05, largest]), y=np.array([0.05, largest]), label="equality", style="dashed", color=6)
    shares = [
        Line(x=run.depth.values, y=(spent / run.budget).sel(kind=kind).max("case").values, group=str(kind), color=color)
        for color, kind in enumerate(run.kind.values)
    ]
    cost = Axis("spent on rank and ReLU", scale="log", range=(0.05, 2 * largest))
    return [
        Figure(
            name="budget",
            title="Rank and ReLU cost speed: no network spends more than its budget",
            caption="Left: each point a network; what its layers' ranks and ReLUs cost, against its budget "
            "2 log(|X||G|/s). Below the dashed line lies what the inequality allows. Right: the largest share of a "
            "budget that was spent, by depth.",
            panels=(
                Panel(
                    title=_describe_networks(run),
                    x=Axis("budget", scale="log", range=(0.05, 2 * largest)),
                    y=cost,
                    marks=(*points, equality),
                ),
                Panel(title="how tight", x=Axis("depth L"), y=Axis("largest share spent"), marks=tuple(shares)),
            ),
            table=_table(run),
        )
    ]


def _table(run: xr.Dataset) -> Table:
    used = _spent(run) / run.budget
    rows = tuple(
        (
            str(kind),
            int(run.budget.sel(kind=kind).size),
            f"{float(used.sel(kind=kind).median()):.3f}",
            f"{float(used.sel(kind=kind).max()):.6f}",
            f"{float((run['rank'] / run.budget).sel(kind=kind).max()):.6f}",
            int((run.missing.sel(kind=kind) > 0).any("share").sum()),
        )
        for kind in run.kind.values
    )
    columns = (
        "kind",
        "networks",
        "median share spent",
        "largest",
        "largest, rank alone",
        "violations of Proposition 3.4",
    )
    return Table(columns=columns, rows=rows)


entry = Entry(
    "deep-relu/proposition-3-4",
    "Proposition 3.4 and a sharper inequality: a fast network has few layers of high rank",
    citation=CITATION,
    source="Proposition 3.4",
    params=Params,
    quick=dict(depths=(4,), count=60),
    paper=dict(count=2500),
    run=run,
    claims=claims,
    figures=figures,
)
