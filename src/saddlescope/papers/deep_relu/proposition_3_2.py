"""Proposition 3.2: deeper networks escape at least as fast as shallower ones.

From any network of depth L with a positive speed the proposition constructs one of depth L + k that is no slower, whose
layers from L on have rank one and are unchanged by ReLU. It is built here for networks that are random, partly
descended, near an optimum, and extreme. It follows that the largest speed does not fall with depth; how much it rises,
the paper leaves open (hypothesis 2). For inputs in the plane and one output it is known exactly at depths 2 and 3, and
at larger depths it is searched for.

    gain      speed of the deeper network over that of the original network, less 1
    tail      1 - |A|_op^2 / |A|_F^2 of a matrix, 0 at rank one
    s*(L)     largest escape speed at depth L, over all widths

At depth 1 the proposition fails: for X = (1, -1), G = (-1, 1) the linear network has speed 2, deeper ones at most 1.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle
from saddlescope.papers.deep_relu.shared.network_ensembles import KINDS, descend_from_random, draw_networks
from saddlescope.plot import Axis, Figure, Line, Panel, lines
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

FALLS = 1e-12  # relative: what rounding may take from a speed

CIRCLE = "circle of Example 1"


class Params(EntryParams):
    """Parameters: thousands of networks to deepen, and a few data sets for the curve."""

    depths: tuple[int, ...] = param(
        (2, 3, 4, 6, 8, 12, 16), "numbers of layers L of the networks that are deepened", ge=2, order="distinct"
    )
    count: int = param(250, "networks of every kind at every depth", ge=1, scale="log")
    added: int = param(8, "largest number of added layers, which is drawn at random from 1 on", ge=1)
    data: int = param(3, "moved circles for the curve, beside the one of Example 1", ge=0)
    points: int = param(10, "inputs of each moved circle", ge=4)
    deepest: int = param(8, "largest depth of the curve", ge=4)
    starts: int = param(64, "searches at every depth of the curve above 3", ge=1)
    width: int = param(16, "width of the hidden layers in the searches", ge=1)
    steps: int = param(4000, "descent steps of each search", ge=1)
    seed: int = param(1, "seed of the networks, the data and the searches", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Deepen the networks, depth by depth, then compute the curve, data set by data set."""
    deepening, curve = context.split(0.4, 0.6)
    parts = [
        step.cached(f"depth-{depth}", partial(_deepen_networks, depth, params, step))
        for depth, step in deepening.steps(params.depths)
    ]
    curves = [
        step.cached(f"curve-{k}", partial(_compute_curve, k, params, step))
        for k, step in curve.steps(range(params.data + 1))
    ]
    context.report(1.0, "done")
    return xr.merge([xr.concat(parts, dim="depth"), xr.concat(curves, dim="data")])


def _deepen_networks(depth: int, params: Params, context: RunContext) -> xr.Dataset:
    """Deepen networks of one depth and measure the results."""
    from saddlescope.theory.escape.bounds import layer_ratios
    from saddlescope.theory.escape.deeper_network import deepen
    from saddlescope.theory.escape.speed import escape_speed

    rng = np.random.default_rng([params.seed, depth])
    found = {name: np.zeros((len(KINDS), params.count)) for name in ("gain", "tail", "lost", "off_sphere")}
    for (k, kind), step in context.steps(enumerate(KINDS)):
        step.report(0.0, f"depth {depth}, {kind}")
        for n, (weights, X, G) in enumerate(draw_networks(kind, depth=depth, count=params.count, seed=params.seed)):
            deeper = deepen(weights, X, G, depth=depth + int(rng.integers(1, params.added + 1)))
            ratios = layer_ratios(deeper, X, G)
            found["gain"][k, n] = escape_speed(deeper, X, G) / escape_speed(weights, X, G) - 1
            found["tail"][k, n] = max(ratios.weights[depth - 1 :].max(), ratios.activations[depth:].max(initial=0.0))
            found["lost"][k, n] = ratios.relu[depth - 1 :].max(initial=0.0)
            found["off_sphere"][k, n] = abs(sum(np.sum(weight**2) for weight in deeper) / len(deeper) - 1)
    return xr.Dataset(
        {name: (("kind", "case"), values) for name, values in found.items()},
        coords={"kind": list(KINDS), "depth": depth},
    )


def _draw_plane_data(number: int, params: Params) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the circle of Example 1, or draw one like it with points and gradients moved at random."""
    if number == 0:
        return CIRCLE, *alternating_circle(8)
    rng = np.random.default_rng([params.seed, number])
    X, G = alternating_circle(params.points)
    moved = X.T + rng.normal(0, 0.05, X.T.shape)
    return f"moved circle {number}", moved.T, G * rng.uniform(0.9, 1.1, G.shape)


def _compute_curve(number: int, params: Params, context: RunContext) -> xr.Dataset:
    """Compute s*(2) and s*(3) and, at larger depths, the speed of the construction and of searches."""
    from saddlescope.theory.escape.certificate import certified_escape_speed
    from saddlescope.theory.escape.deeper_network import deepen
    from saddlescope.theory.escape.rank_one import rank_one_escape_speed
    from saddlescope.theory.escape.speed import escape_speed

    name, X, G = _draw_plane_data(number, params)
    depths = np.arange(2, params.deepest + 1)
    shallow, best = rank_one_escape_speed(X, G, depth=2), certified_escape_speed(X, G)
    built = [
        shallow.lower if depth == 2 else escape_speed(deepen(best.weights, X, G, depth=int(depth)), X, G)
        for depth in depths
    ]
    searched = np.full(len(depths), np.nan)
    for (k, depth), step in context.steps(enumerate(depths)):
        step.report(0.0, f"{name}, depth {depth}")
        if depth > 3:
            rng = np.random.default_rng([params.seed, number, int(depth)])
            _, speeds = descend_from_random(
                rng, X, G, depth=int(depth), width=params.width, starts=params.starts, steps=params.steps
            )
            searched[k] = speeds.max()
    return xr.Dataset(
        {
            "built": ("curve_depth", built),
            "searched": ("curve_depth", searched),
            "shallow_upper": shallow.upper,
            "lower": best.lower,
            "upper": best.upper,
        },
        coords={"curve_depth": depths, "data": name},
    )


# The bounds. A construction is exact: its properties are held to rounding. The curve beyond depth 3 is a search, which
# can refute a plateau and not prove it.
claims = Claims()


def _describe_networks(run: xr.Dataset) -> str:
    return f"{run.gain.size} networks, depths {', '.join(str(int(depth)) for depth in run.depth.values)}"


def _largest(run: xr.Dataset, *, name: str) -> Estimate:
    return Estimate.largest(run[name], _describe_networks(run))


@claims.add(
    "not-slower",
    "The deeper ReLU network that Proposition 3.2 constructs escapes from the origin no slower than the original "
        "network", quantity="number of networks with a lower escape speed after deepening, by more than rounding",
    kind="printed", source="Proposition 3.2, for L >= 2", high=0.0, evidence="cases", over="networks",
    why="The proposition is about every network of positive speed, and one that the construction slows would refute it",
    doubt="At most 8 layers are added, and our code rescales the layers that the paper leaves as they are",
)  # fmt: skip
def _count_slower(run: xr.Dataset) -> Estimate:
    return Estimate.number(run.gain < -FALLS, _describe_networks(run))


claims.add(
    "rank-one",
    "A network deepened by Proposition 3.2's construction has rank-one weights and activations from its original "
        "last layer on",
    quantity="largest share of squared singular values beyond the first, of weights or activations of those "
        "layers, over networks", kind="printed", source="Proposition 3.2; up to rounding", high=1e-12,
    evidence="cases", over="networks",
    why="The share is 0 exactly for matrices of rank one, whatever their size and scale",
    doubt="The construction has one neuron in each of these layers, so that the rank could not be larger",
)(partial(_largest, name="tail"))  # fmt: skip

claims.add(
    "no-relu",
    "In a network deepened by Proposition 3.2's construction, ReLU changes no hidden preactivation from its "
        "original last layer on",
    quantity="largest |ReLU(Z) - Z|²/|Z|² of the preactivations Z of such a layer, over networks", kind="printed",
    source="Proposition 3.2", high=0.0, evidence="cases", over="networks",
    why="The quotient is 0 exactly where no preactivation is negative, which is Z = Zσ of the proposition",
    doubt="These layers multiply an activation by a positive weight, so that ReLU could not change anything",
)(partial(_largest, name="lost"))  # fmt: skip

claims.add(
    "on-the-sphere",
    "A network deepened by Proposition 3.2's construction has squared weight norm |θ|² equal to its new depth",
    quantity="largest relative deviation of |θ|² from the depth, over deepened networks", kind="printed",
    source="Proposition 3.2; the proof has at most, and a larger norm only helps", high=1e-12, evidence="cases",
    over="networks",
    why="Speeds compare only on spheres |θ|² = depth, since the speed scales with a power of the norm",
    doubt="Our construction ends with a rescaling to the sphere, which makes the norm right by itself",
)(partial(_largest, name="off_sphere"))  # fmt: skip


@claims.add(
    "gain", "Proposition 3.2's deepening makes a typical random ReLU network escape from the origin faster",
    quantity="median relative gain in escape speed by deepening, over random networks of all depths", kind="own",
    source="the best neuron replaces a mixture of neurons; any positive gain counts", low=1e-6, evidence="sample",
    over="networks",
    why="The proposition excludes a loss only; a positive median says that the construction gains on most networks",
    doubt="Random networks are far from fast: near an optimum the gain is a thousandth, as the remark shows",
)  # fmt: skip
def _typical_gain(run: xr.Dataset) -> Estimate:
    by_kind = ", ".join(f"{kind} {float(run.gain.sel(kind=kind).median()):.3g}" for kind in run.kind.values)
    return Estimate.median(run.gain.sel(kind="random"), f"medians by kind: {by_kind}")


@claims.add(
    "not-falling", "On circle data, the largest escape speed of ReLU networks does not fall from depth 2 to depth 3",
    quantity="largest relative fall of the certified largest escape speed from depth 2 to depth 3, over data sets",
    kind="printed", source="Proposition 3.2; both speeds are certified", high=1e-9, evidence="cases", over="data sets",
    why="The upper bound at depth 2 is compared with the lower one at depth 3, so that no search error can hide a fall",
    doubt="Two depths and circles only; at larger depths no optimum is certified",
)  # fmt: skip
def _largest_fall(run: xr.Dataset) -> Estimate:
    return Estimate.largest((run.shallow_upper - run.lower) / run.lower)


@claims.add(
    "rising", "On some data, the largest escape speed at depth 2 is at least 17 % below that at depth 3",
    quantity="largest shortfall of the largest escape speed at depth 2 from that at depth 3, relative to depth 3, "
        "over data sets", kind="own", source="Example 1: from √2 - 1 to 1/2, a rise by 0.17 of 1/2", low=0.17,
    evidence="cases", over="data sets",
    why="One data set with a certified rise shows that the speed depends on the depth, which the paper leaves open",
    doubt="The circle of Example 1 alone decides it, and the other circles are moved copies of its kind",
)  # fmt: skip
def _largest_rise(run: xr.Dataset) -> Estimate:
    return Estimate.largest((run.lower - run.shallow_upper) / run.lower)


@claims.add(
    "plateau", "No search at a depth above 3 finds an escape speed above the certified optimum of depth 3",
    quantity="largest relative excess of a found escape speed over the certified depth-3 optimum, over depths and "
        "data sets", kind="own",
    source="suggested by hypothesis 2 of Section 5, seen in searches of a trial run; searches cannot prove it",
    high=1e-6, evidence="cases", over="data sets",
    why="If depth above 3 raised the optimum, some of 64 searches at each of five depths should exceed the bound",
    doubt="At depth 8 a search rarely reaches the optimum, so a small rise at large depth could be missed",
)  # fmt: skip
def _excess_beyond_depth_three(run: xr.Dataset) -> Estimate:
    over = run.searched.max("curve_depth") / run.upper - 1
    remark = ", ".join(f"{name}: {v:.2g}" for name, v in zip(run.data.values, over.values, strict=True))
    return Estimate.largest(over, remark)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the gains by depth, and the curves."""
    gains = [
        Line(
            x=np.repeat(run.depth.values + 0.12 * (color - 1.5), run.sizes["case"]),
            y=np.maximum(run.gain.sel(kind=kind).transpose("depth", "case").values.ravel(), 1e-16),
            group=str(kind),
            color=color,
            style="points",
            width=0.7,
            opacity=0.4,
        )
        for color, kind in enumerate(run.kind.values)
    ]
    relative = run[["built", "searched"]] / run.upper
    built = lines(relative.built, x="curve_depth", hue="data", grouped=True)
    searched = lines(relative.searched, x="curve_depth", hue="data", grouped=True, style="points", width=2.0)
    depth, gain = Axis("depth L"), Axis("relative gain in speed", scale="log")
    return [
        Figure(
            name="depth",
            title="Gain in speed of deeper networks, and the largest speed at each depth",
            caption="Left: how much faster the constructed deeper network is than the original, by depth "
            "of the original; exactly as fast is drawn at 1e-16. Right: the largest speed at each depth, in units of "
            "the one at depth 3. Lines: exact at depths 2 and 3, at larger depths the construction of Proposition 3.2; "
            "points: the fastest network that searches found.",
            panels=(
                Panel(title=_describe_networks(run), x=depth, y=gain, marks=tuple(gains)),
                Panel(title="s*(L) / s*(3)", x=depth, y=Axis("largest speed, relative"), marks=(*built, *searched)),
            ),
        )
    ]


entry = Entry(
    "deep-relu/proposition-3-2", "Proposition 3.2: deeper networks escape at least as fast as shallower ones",
    citation=CITATION, source="Proposition 3.2", params=Params,
    quick=dict(depths=(3,), count=40, data=1, deepest=4, starts=8, width=8, steps=800),
    paper=dict(count=2500, data=8, deepest=12, starts=256), run=run, claims=claims, figures=figures,
)  # fmt: skip
