"""Conjecture 2: the optimal escape direction has rank one at all but the first layers.

If the optimal speed s*(L) stops growing at some depth L_0, Proposition 3.2 makes a direction with rank one from layer
L_0 on. Searches at each depth on three data sets, each direction polished to machine precision: does the best speed
stay at that of depth 3, which is certified? Which layers of the best direction have rank one? A search can refute the
plateau, by one faster direction, and not prove it.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError, unknown
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle
from saddlescope.papers.deep_relu.shared.sequence_checks import require_increasing
from saddlescope.plot import Axis, Figure, Line, Mark, Panel
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.metric import Metric
from saddlescope.reproduction.parameters import EntryParams, param

DATA = ("circle-8", "circle-12", "random")  # the latter in the plane


class Params(EntryParams):
    """A few minutes of search."""

    depths: tuple[int, ...] = param((3, 4, 5, 6, 7, 8), "L, from 3 on, increasing")
    data: tuple[str, ...] = param(DATA, "data sets")
    width: int = param(16, "of all hidden layers", ge=1)
    starts: int = param(96, "random starts for each depth and data set", ge=1)
    steps: int = param(4000, "of each descent", ge=100)
    samples: int = param(12, "in the random data set", ge=3)
    seed: int = param(0, "of the starts and the random data", ge=0)

    def check(self) -> None:
        for name in self.data:
            if name not in DATA:
                raise unknown("data set", name, DATA)
        if not self.data or len(set(self.data)) < len(self.data):
            raise InputError(f"data must be one or more of {', '.join(DATA)}, each once; got {self.data!r}.")
        require_increasing(3, self, "depths", example="3,4,8")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Search data set by data set and depth by depth."""
    sets = []
    for place, name in enumerate(params.data):
        depths = []
        for n, depth in enumerate(params.depths):
            context.report((place + n / len(params.depths)) / len(params.data), f"{name}, depth {depth}")
            depths.append(context.cached(f"search-{name}-{depth}", partial(_search_directions, name, depth, params)))
        optimum = context.cached(f"optimum-{name}", partial(_optimum, name, params))
        sets.append(xr.concat(depths, dim="depth", join="outer", fill_value={"rank": 0}).merge(optimum))
    context.report(1.0, "done")
    return xr.concat(sets, dim="data").assign_coords(data=list(params.data), depth=list(params.depths))


def _draw_saddle(name: str, params: Params) -> tuple[np.ndarray, np.ndarray]:
    if name != "random":
        return alternating_circle(int(name.removeprefix("circle-")))
    rng = np.random.default_rng(params.seed)
    return rng.normal(size=(2, params.samples)).T, rng.normal(size=(1, params.samples)).T


def _optimum(name: str, params: Params) -> xr.Dataset:
    from saddlescope.theory.escape.certificate import certified_escape_speed
    from saddlescope.theory.escape.rank_one import rank_one_escape_speed

    X, G = _draw_saddle(name, params)
    best, one = certified_escape_speed(X, G), rank_one_escape_speed(X, G)
    return xr.Dataset({"lower": best.lower, "upper": best.upper, "rank_one": one.lower})


def _search_directions(name: str, depth: int, params: Params) -> xr.Dataset:
    """Return the speeds of all starts, and the ranks of the best; convex steps replace more starts."""
    from saddlescope.theory.escape.column_generation import column_generation
    from saddlescope.theory.escape.directions import escape_directions

    X, G = _draw_saddle(name, params)
    found = escape_directions(
        X, G, depth=depth, widths=params.width, num_starts=params.starts, steps=params.steps,
        record=np.arange(1, 11) * params.steps // 10, seed=params.seed + 100 * DATA.index(name) + depth,
    )  # fmt: skip
    better = column_generation(found, X, G)
    best = better if better.speeds[better.best] > found.speeds[found.best] else found
    return xr.Dataset(
        {
            "speed": ("start", found.speeds),
            "converged": ("start", found.converged),
            "best": best.speeds[best.best],
            "descent_best": found.speeds[found.best],
            "residual": best.residuals[best.best],
            "rank": ("layer", best.ranks[best.best]),
            "linearity": ("layer", np.append(best.linearity[best.best], 0.0)),
        },
        coords={"layer": np.arange(1, depth + 1)},
    )


def _layers_above_one(one: xr.Dataset) -> list[int]:
    return [int(layer) for layer in one.layer if bool((one["rank"].sel(layer=layer) > 1).any())]


claims = Claims()


# The bounds: a plateau is exact, and directions are known to machine precision; 1e-9 leaves room for the certificate.
@claims.add(
    "none-faster",
    "No direction found at any depth is faster than the optimum of depth 3",
    quantity="largest relative excess",
    kind="own",
    source="Conjecture 2 with L_0 = 3, exact; this project's bar for rounding",
    high=1e-9,
)
def _largest_excess(run: xr.Dataset) -> Estimate:
    excess = (run.speed.max("start") / run.upper - 1).max("depth")
    remark = "; ".join(f"{name}: {float(value):.1e}" for name, value in zip(run.data.values, excess, strict=True))
    return Estimate(float(excess.max()), remark=f"{run.speed.size} runs; {remark}")


@claims.add(
    "plateau",
    "The best direction at each depth has the speed of depth 3",
    quantity="most that one lacks, relatively",
    kind="own",
    source="Proposition 3.2 says that it exists; this project's bar for the search",
    high=1e-9,
)
def _largest_deficit(run: xr.Dataset) -> Estimate:
    lack = 1 - run.best / run.lower
    plain = 1 - run.descent_best / run.lower
    return Estimate(float(lack.max()), remark=f"by descent alone {float(plain.max()):.1e}")


@claims.add(
    "rank-one",
    "The best direction has rank one from layer 3 on, at every depth",
    quantity="the largest rank there",
    kind="printed",
    source="Conjecture 2 with L_0 = 3",
    high=1.0,
)
def _largest_rank(run: xr.Dataset) -> Estimate:
    above = run["rank"].where(run.layer >= 3)
    where = "; ".join(
        f"{name}: layers {', '.join(map(str, _layers_above_one(run.sel(data=name))))}"
        for name in run.data.values
        if _layers_above_one(run.sel(data=name))
    )
    return Estimate(float(above.max()), remark=where or "rank one throughout")


@claims.add(
    "escape-directions",
    "What is compared are escape directions",
    quantity="largest Clarke residual of a best one, over its speed",
    kind="own",
    source="Definition 2.1; this project's bar",
    high=1e-11,
)
def _residual(run: xr.Dataset) -> Estimate:
    return Estimate(float((run.residual / run.best).max()), remark=f"{run.best.size} directions")


metrics = (
    Metric(
        name="success",
        quantity="share of starts that reach the optimal escape speed",
        statistic=lambda run: float((abs(run.speed / run.lower - 1) < 1e-6).mean()),
    ),
    Metric(
        name="speed",
        quantity="fastest escape at the largest depth over the optimum, least of all data",
        statistic=lambda run: float((run.best.isel(depth=-1) / run.lower).min()),
    ),
    Metric(
        name="layers_above_one",
        quantity="layers of rank above one in the fastest direction, most of all data and depths",
        statistic=lambda run: float((run["rank"] > 1).sum("layer").max()),
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw speeds against depth, and the ranks and the linearity of the best directions."""
    rng, panels = np.random.default_rng(0), []
    for name in run.data.values:
        one = run.sel(data=name)
        depth, count = run.depth.values.astype(float), run.sizes["start"]
        spread = np.repeat(depth, count) + rng.uniform(-0.15, 0.15, one.speed.size)
        marks = (
            Line(x=spread, y=one.speed.values.ravel(), group="runs", color=0, style="points", width=2.5, opacity=0.4),
            Line(x=depth, y=one.best.values, group="best", color=1),
            Mark(at=float(one.lower), axis="y", group="certified at depth 3", color=2),
            Mark(at=float(one.rank_one), axis="y", group="rank one"),
        )
        panels.append(Panel(title=str(name), x=Axis("depth L"), y=Axis("speed"), marks=marks))
    speeds = Figure(
        name="speeds",
        title="Deeper networks escape no faster than networks of depth 3",
        caption="Polished speeds of all runs at each depth (spread sideways), the best with convex steps, and the "
        "certified optimum of depth 3 and of rank one.",
        panels=tuple(panels),
    )
    deepest = run.isel(depth=-1)
    layers = deepest.layer.values.astype(float)
    structure = []
    for title, values in (("rank of W_l", deepest["rank"]), ("|Zs_l − Z_l| / |Z_l|", deepest.linearity)):
        lines = tuple(
            Line(x=layers, y=values.sel(data=name).values.astype(float), label=str(name), group=str(name), color=n)
            for n, name in enumerate(run.data.values)
        )
        structure.append(Panel(title=f"best direction at depth {int(deepest.depth)}", x=Axis("layer l"),
                               y=Axis(title), marks=lines))  # fmt: skip
    shapes = Figure(
        name="layers",
        title="Only the first layers of the best directions have a higher rank",
        caption="Rank of the weights, and how much of the preactivations the ReLU takes away, layer by layer.",
        panels=tuple(structure),
    )
    return [speeds, shapes]


entry = Entry(
    "deep-relu/conjecture-2",
    "Conjecture 2: the optimal escape direction has rank one at all but the first layers",
    citation=CITATION,
    source="Section 5, conjecture 2",
    params=Params,
    quick=dict(depths=(3, 4), data=("circle-8",), width=8, starts=6, steps=1000),
    paper=dict(width=32, starts=400, steps=8000),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
