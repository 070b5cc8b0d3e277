"""Conjecture 2: the optimal escape direction has rank one at all but the first layers.

If the optimal speed s*(L) stops growing at some depth L_0, Proposition 3.2 makes a direction with rank one from layer
L_0 on. Directions are searched at each depth on three data sets in the plane and refined to machine precision. The best
speed is compared with that of depth 3, which is certified, and the layers of rank one are counted. A search can refute
the plateau, by one faster direction, and not prove it. Beyond the plane there is no certificate; searches at the first
depths are compared with each other, on random inputs and on parity (vertices of a cube, G the product of their signs).
"""

from functools import partial
from itertools import product
from typing import Literal

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle
from saddlescope.plot import Axis, Figure, Figures, Line, Mark, Panel, lines
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, Metric, RunContext, param

DATA = ("circle-8", "circle-12", "random")  # all in the plane
BEYOND = ("parity-3", "parity-4", "random-3", "random-5")  # with the dimension of their inputs


class Params(EntryParams):
    """Parameters of a few minutes of search."""

    depths: tuple[int, ...] = param((3, 4, 5, 6, 7, 8), "depths L of the networks", ge=3, order="increasing")
    data: tuple[Literal["circle-8", "circle-12", "random"], ...] = param(DATA, "data sets", order="distinct")
    width: int = param(16, "width of all hidden layers", ge=1)
    starts: int = param(96, "random starts for each depth and data set", ge=1)
    steps: int = param(4000, "steps of each descent", ge=100)
    samples: int = param(12, "samples of a random data set", ge=3)
    beyond: tuple[Literal["parity-3", "parity-4", "random-3", "random-5"], ...] = param(
        BEYOND, "data sets beyond the plane", order="distinct"
    )
    beyond_depths: int = param(3, "first depths that are searched beyond the plane", ge=2)
    beyond_starts: int = param(24, "random starts for each depth and data set beyond the plane", ge=1)
    seed: int = param(0, "seed of the starts and the random data", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Search data set by data set and depth by depth."""
    plane, certified, beyond = context.split(0.65, 0.05, 0.3)
    axes = {"data": params.data, "depth": params.depths}
    found = plane.over(axes, partial(_search_directions, params, params.starts), join="outer")
    optima = certified.over({"data": params.data}, partial(_optimum, params))
    axes = {"data": params.beyond, "depth": params.depths[: params.beyond_depths]}
    search = partial(_search_directions, params, params.beyond_starts)
    more = beyond.over(axes, search, name="beyond", join="outer")
    return xr.merge([found, optima, more.rename({name: f"beyond_{name}" for name in (*more.data_vars, *more.dims)})])


def _draw_data(params: Params, name: str) -> tuple[np.ndarray, np.ndarray]:
    kind, _, size = name.partition("-")
    if kind == "circle":
        return alternating_circle(int(size))
    if kind == "parity":
        X = np.array(list(product((-1.0, 1.0), repeat=int(size))))
        return X, X.prod(1, keepdims=True)
    rng = np.random.default_rng([params.seed, int(size)] if size else params.seed)
    return rng.normal(size=(int(size or 2), params.samples)).T, rng.normal(size=(1, params.samples)).T


def _optimum(params: Params, name: str, step: RunContext) -> xr.Dataset:
    from saddlescope.theory.escape.certificate import certified_escape_speed
    from saddlescope.theory.escape.rank_one import rank_one_escape_speed

    X, G = _draw_data(params, name)
    best, one = certified_escape_speed(X, G), rank_one_escape_speed(X, G)
    return xr.Dataset({"lower": best.lower, "upper": best.upper, "rank_one": one.lower})


def _search_directions(params: Params, starts: int, name: str, depth: int, step: RunContext) -> xr.Dataset:
    """Return the speeds of all starts, and the ranks of the best; convex steps replace more starts."""
    from saddlescope.theory.escape.column_generation import column_generation
    from saddlescope.theory.escape.directions import escape_directions

    X, G = _draw_data(params, name)
    found = escape_directions(
        X,
        G,
        depth=depth,
        widths=params.width,
        num_starts=starts,
        steps=params.steps,
        record=np.arange(1, 11) * params.steps // 10,
        seed=params.seed + 100 * (*DATA, *BEYOND).index(name) + depth,
    )
    better = column_generation(found, X, G)
    best = better if better.speeds[better.best] > found.speeds[found.best] else found
    return xr.Dataset(
        {
            "speed": ("start", found.speeds),
            "best": best.speeds[best.best],
            "descent_best": found.speeds[found.best],
            "rank": ("layer", best.ranks[best.best]),
        },
        coords={"layer": np.arange(1, depth + 1)},
    )


claims = Claims(
    limits="The hypothesis speaks of finitely many first layers; L_0 = 3 is this project's, and the paper's remark "
    "makes it equivalent to a speed that does not grow beyond depth 3. That some such number exists follows from the "
    "paper's results (`theorem-3-1`). A search can refute the plateau and not prove it; beyond the plane, the best of "
    "depth 3 is that of a search too. Where convex steps improve a descent, they give layers above the second one "
    "neuron. At depth 3, 7 of 30 pairs, layer 3 has one output and so rank one."
)


def reaches_the_optimum(run: xr.Dataset) -> bool:
    """At every depth in the plane, the fastest direction found attains the certified optimum of depth 3, to 1e-9"""
    return bool((1 - run.best / run.lower).max() <= 1e-9)


@claims.reading(
    "none-faster",
    "On three data sets in the plane to depth 8 and four others to depth 5, no search beyond depth 3 finds a "
    "direction faster than the best of depth 3",
    "Section 5, hypothesis 2 with L_0 = 3; 1e-9 for rounding",
    high=1e-9,
    requires=[reaches_the_optimum],
)
def largest_excess(run: xr.Dataset) -> Estimate:
    """Largest relative excess of a speed over the certified optimum of depth 3, beyond the plane over that found."""
    plane = run.speed.max("start") / run.upper - 1
    beyond = run.beyond_descent_best.isel(beyond_depth=slice(1, None)) / run.beyond_best.isel(beyond_depth=0) - 1
    return Estimate.largest([*plane.values.ravel(), *beyond.values.ravel()], over="pairs of data set and depth")


@claims.reading(
    "rank-one",
    "On three data sets in the plane at depths 3 to 8, and on four others at depths 3 to 5, the fastest direction "
    "found has rank one from layer 3 on",
    "Section 5, hypothesis 2 with L_0 = 3",
    high=1.0,
    requires=[reaches_the_optimum],
)
def largest_rank(run: xr.Dataset) -> Estimate:
    """Largest rank of a weight matrix from layer 3 on in the fastest direction found."""
    ranks = run.beyond_rank.max("beyond_depth")
    remark = "; ".join(
        f"{n}: {'-'.join(str(int(r)) for r in ranks.sel(beyond_data=n))}" for n in ranks.beyond_data.values
    )
    plane, beyond = run["rank"].where(run.layer >= 3), run.beyond_rank.where(run.beyond_layer >= 3)
    largest = [*plane.max("layer").values.ravel(), *beyond.max("beyond_layer").values.ravel()]
    return Estimate.largest(largest, f"largest ranks beyond the plane {remark}", over="pairs of data set and depth")


metrics = (
    Metric(
        "success",
        "share of starts that reach the optimal escape speed",
        lambda run: float((abs(run.speed / run.lower - 1) < 1e-6).mean()),
    ),
    Metric(
        "layers_above_one",
        "layers of rank above one in the fastest direction, largest number over data and depths",
        lambda run: float((run["rank"] > 1).sum("layer").max()),
    ),
)


def figures(run: xr.Dataset) -> Figures:
    """Draw speeds against depth."""
    rng, panels, depth = np.random.default_rng(0), [], run.depth.values.astype(float)
    for name in run.data.values:
        one = run.sel(data=name)
        spread = np.repeat(depth, run.sizes["start"]) + rng.uniform(-0.15, 0.15, one.speed.size)
        marks = (
            Line(x=spread, y=one.speed.values.ravel(), group="runs", color=0, style="points", width=2.5, opacity=0.4),
            Line(x=depth, y=one.best.values, group="best", color=1),
            Mark(at=float(one.lower), axis="y", group="certified at depth 3", color=2),
            Mark(at=float(one.rank_one), axis="y", group="rank one"),
        )
        panels.append(Panel(title=str(name), x=Axis("depth L"), y=Axis("speed"), marks=marks))
    gain = run.beyond_best / run.beyond_best.isel(beyond_depth=0)
    marks = lines(gain, x="beyond_depth", hue="beyond_data", grouped=True)
    panels.append(Panel(title="beyond the plane", x=Axis("depth L"), y=Axis("speed / that at depth 3"), marks=marks))
    yield Figure(
        name="speeds",
        title="Escape speeds found at each depth, and the certified optimum of depth 3",
        caption="Refined speeds of all runs at each depth (spread sideways), the best with convex steps, and the "
        "certified optima of depth 3 and of rank one. Beyond the plane, where none is certified, the best relative "
        "to that of the first depth.",
        panels=tuple(panels),
    )


entry = Entry(
    "deep-relu/conjecture-2",
    "Conjecture 2: the optimal escape direction has rank one at all but the first layers",
    source="Section 5, conjecture 2",
    quick=dict(
        depths=(3, 4),
        data=("circle-8",),
        width=8,
        starts=6,
        steps=1000,
        beyond=("parity-3", "random-3"),
        beyond_depths=2,
        beyond_starts=4,
    ),
    paper=dict(width=32, starts=400, steps=8000, beyond_depths=6, beyond_starts=100),
)
