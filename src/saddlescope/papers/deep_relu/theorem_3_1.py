"""Theorem 3.1: deeper layers are nearer rank one, but the bound is empty at practical depth.

The theorem bounds tail(W_l), tail(Zs_l) and |Zs_l - Z_l|^2 / |Z_l|^2 of an optimal escape direction, at every depth, by
8 c l^(-1/2) / (1 - c l^(-1/2)) with c = (|X||G|/s*) sqrt(2 log(|X||G|/s*)). All three are at most 1 anyway, and the
bound is below 1 for l > 81 c^2 only. The proof finds activations near rank one among the layers 1 to l, and says
nothing about the weights W_l before them: for weights and ReLUs the theorem holds with l - 1 in place of l.

    tail(A)      1 - |A|_op^2 / |A|_F^2, 0 at rank one
    first layer  81 c^2: from there on the bound is below 1
    budget       2 log(|X||G|/s*), the most that all layers together can spend on rank and ReLU (see proposition_3_4):
                 at most budget / log(1/(1 - tau)) of them can have a tail above tau, at any depth

Three kinds of data: circles as in Example 1; circles moved at random, with optima of several neurons; and inputs
u v^T + E near rank one with G = -v + noise of that size, which bring |X||G|/s* arbitrarily near 1.

If |X||G| < 2 s*, an optimum is one neuron per layer, at any depth. Proof: the last layer reads one neuron, so that the
speed is sum_j c_j relu(P_j - N_j) <= sum_j c_j P_j - sum_j c_j min(P_j, N_j) with |c| <= |G|, and with P and N of
masses a + b = 1 from the positive and the negative weights before it. P / a alone is a network, of a speed of at most
s*. So b s* <= -sum_j c_j min(P_j, N_j) <= b |c-||X-|, over the samples with c_j < 0; and s* <= |c+||X+| over the
others. If b > 0, then |X||G| >= |c+||X+| + |c-||X-| >= 2 s*. If b = 0 the speed is linear in the networks that P mixes:
one of them is as fast, with a layer less. Hence the theorem's bound, where the optimum has several neurons, is not
below 1 before layer 81 (2 sqrt(2 log 2))^2 = 449; where it is one neuron, s* is known exactly at every depth, and the
theorem is tested.
"""

import math
from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table, lines
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

EXAMPLE = "circle, N = 8"


class Params(EntryParams):
    """Parameters; the paper proves the theorem and does not evaluate it."""

    depth: int = param(64, "number of layers L of the networks compared with the bounds", ge=3)
    circles: tuple[int, ...] = param((6, 8, 12), "numbers of points of the circles, 8 among them", ge=4, multiple_of=2)
    moved: int = param(20, "circles moved at random", ge=2)
    log10_distances: tuple[float, ...] = param(
        (-1.0, -2.0, -3.0, -4.0), "log10 of the distance |E| of the data from rank one", ge=-7, le=0, least=2,
        order="decreasing",
    )  # fmt: skip
    count: int = param(25, "data sets near rank one at each distance", ge=1)
    points: int = param(8, "inputs of each data set near rank one", ge=2)
    matrices: int = param(500, "non-negative matrices of each kind", ge=1)
    seed: int = param(1, "seed of the data and the matrices", ge=0)

    def check(self) -> None:
        if 8 not in self.circles:
            raise InputError(f"circles must contain 8; got {self.circles!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Evaluate the circles, then the data near rank one, distance by distance; data sets along one dimension."""
    circles, near = context.split(1, len(params.log10_distances))
    parts = [circles.cached("circles", partial(_measure_circles, params))]
    for (k, log10), step in near.steps(enumerate(params.log10_distances)):
        parts.append(step.cached(f"distance-{k}", partial(_measure_near_rank_one, k, log10, params, step)))
    context.report(1.0, "done")
    layers = np.unique(np.rint(np.geomspace(1, 1e6, 121)))
    together = xr.concat(parts, dim="data")
    x = together.constant / np.sqrt(xr.DataArray(layers, dims="l", coords={"l": layers}))
    lemma = {name: xr.DataArray(value, dims="matrix") for name, value in _singular_vectors(params).items()}
    return together.assign({"curve": (8 * x / (1 - x)).where(x < 1), **lemma})


def _measure_circles(params: Params) -> xr.Dataset:
    rng = np.random.default_rng([params.seed, 100])
    sets = [_measure(f"circle, N = {n}", *alternating_circle(n), params.depth) for n in params.circles]
    for k in range(params.moved):
        X, G = alternating_circle((6, 8, 10)[k % 3])
        X = X * rng.uniform(0.5, 2, (len(X), 1)) + rng.normal(0, 0.1, X.shape)
        sets.append(_measure("moved circles", X, G * rng.uniform(0.5, 2, G.shape), params.depth))
    return xr.concat(sets, dim="data")


def _measure_near_rank_one(number: int, log10: float, params: Params, context: RunContext) -> xr.Dataset:
    rng = np.random.default_rng([params.seed, number])
    sets: list[xr.Dataset] = []
    for _, step in context.steps(range(params.count)):
        step.report(0.0, f"|E| = 1e{log10:g}")
        u, v = rng.normal(size=2), np.abs(rng.normal(size=params.points))
        v[0] = 0.0  # there G has either sign, and ReLU has something to cut
        u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
        E, turn = rng.normal(size=(2, params.points)), rng.normal(size=params.points)
        X = np.outer(u, v) + 10.0**log10 * E / np.linalg.norm(E)
        G = -v + 10.0**log10 * turn / np.linalg.norm(turn)
        sets.append(_measure(f"|E| = 1e{log10:g}", X.T, G[:, None], params.depth))
    return xr.concat(sets, dim="data")


def _singular_vectors(params: Params) -> dict[str, np.ndarray]:
    """Return the least entry of singular vectors of non-negative matrices, and the largest error of their equations."""
    rng, least, error = np.random.default_rng([params.seed, 101]), [], []
    for k in range(3 * params.matrices):
        size = rng.integers(1, 9, 2)
        A = np.abs(rng.normal(size=size))
        if k % 3 == 1:  # sparse, so that it may be reducible, or 0
            A *= rng.random(size) < 0.3
        elif k % 3 == 2:  # two equal blocks, so that the largest singular value is repeated
            A = np.kron(np.eye(2), A)
        vectors, values = leading_vectors(A), np.linalg.svd(A, compute_uv=False)
        least.append(min(vector.min() for vector in vectors))
        u, v = vectors
        error.append(max(abs(A @ u - values[0] * v).max(), abs(A.T @ v - values[0] * u).max()))
    return {"least_entry": np.array(least), "vector_error": np.array(error)}


def leading_vectors(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return unit right and left singular vectors of the largest singular value, non-negative where A is.

    The right one is the positive vector (1, ..., 1) projected onto the space of all of them: the limit of powers of
    A^T A applied to it, which are non-negative if A is.
    """
    left, values, right = np.linalg.svd(matrix)
    if not values[0]:
        return np.full(matrix.shape[1], matrix.shape[1] ** -0.5), np.full(matrix.shape[0], matrix.shape[0] ** -0.5)
    top = np.flatnonzero(values > values[0] * (1 - 1e-9))
    weights = right[top].sum(axis=1)
    weights /= np.linalg.norm(weights)
    return weights @ right[top], left[:, top] @ weights


def _measure(name: str, X: np.ndarray, G: np.ndarray, depth: int) -> xr.Dataset:
    """Compare the optimum of one data set, made as deep as `depth`, with the bounds, layer by layer."""
    from saddlescope.theory.escape import bounds
    from saddlescope.theory.escape.certificate import certified_escape_speed
    from saddlescope.theory.escape.deeper_network import deepen
    from saddlescope.theory.escape.rank_one import rank_one_escape_speed

    best = certified_escape_speed(X, G)
    speed, weights = best.lower, deepen(best.weights, X, G, depth=depth)
    ratios, spent = bounds.layer_ratios(weights, X, G), bounds.layer_deficits(weights, X, G)
    first, layers = bounds.first_layer_with_content(X, G, speed=speed), np.arange(1, depth)
    return xr.Dataset(
        {
            "speed": speed,
            "excess": best.upper / max(rank_one_escape_speed(X, G).lower, 1e-12) - 1,
            "ratio": np.linalg.norm(X) * np.linalg.norm(G) / speed,
            "first_layer": first,
            "constant": np.sqrt(first / 81),
            "budget": bounds.speed_deficit(X, G, speed=speed),
            "spent": spent.total,
            "bound": ("layer", [bounds.optimal_layer_bound(X, G, speed=speed, layer=int(layer)) for layer in layers]),
            "weights": ("layer", ratios.weights[:-1]),
            "activations": ("layer", ratios.activations[1:]),
            "relu": ("layer", ratios.relu),
        },
        coords={"layer": layers, "data": name},
    )


# The bounds. A theorem is not to be violated; the first layer at which it has content follows from its own formula.
claims = Claims()


@claims.add(
    "first-layer",
    "On 8 circle points, Theorem 3.1 bounds a layer's deviation from rank one below 1 only from layer 114,985 on",
    quantity="first layer with a bound below 1 on its energy share beyond rank one in an optimal escape network, "
        "before rounding up", kind="own",
    source="the formula of Theorem 3.1 with s* = 1/2: 81 (16 sqrt(2 log 16))^2 = 114,984.8", low=114_984.0,
    high=114_986.0, evidence="identity", over="data sets",
    why="All three ratios are at most 1 by definition, so the theorem says nothing about layers where its bound is not "
        "below 1",
    doubt="It is one data set, that of the paper's example; data nearer to rank one have content much earlier",
)  # fmt: skip
def _first_layer(run: xr.Dataset) -> Estimate:
    return Estimate(float(run.first_layer.sel(data=EXAMPLE)))


@claims.add(
    "several-neurons",
    "Where an optimal escape network has several neurons, Theorem 3.1's bound is at least 1 in its first 449 layers",
    quantity="smallest first layer with a bound below 1, over data sets whose certified optimum is faster than one "
        "neuron per layer", kind="own",
    source="this project's theorem: 81 (2 sqrt(2 log 2))^2 = 449.2, since |X||G| >= 2 s* there",
    low=81 * 8 * math.log(2), evidence="cases", over="data sets",
    why="It is the depth from which on the theorem speaks about optima of several neurons, the case that the paper "
        "wrote it for",
    doubt="The data sets are moved circles, and none comes near the bound, which need not be sharp",
)  # fmt: skip
def _first_layer_of_several_neurons(run: xr.Dataset) -> Estimate:
    several = run.first_layer.values[run.excess.values > 1e-6]
    return Estimate.smallest(several)


@claims.add(
    "one-neuron",
    "Where |X||G|, of inputs and loss gradients, is below twice the optimal escape speed, one neuron attains it",
    quantity="largest relative excess of the certified largest escape speed over that of one neuron per layer, over "
        "data sets with such norms", kind="own", source="this project's theorem; 1e-9 for rounding", high=1e-9,
    evidence="cases", over="data sets",
    why="The certificate bounds all networks of depth 3 from above, and the best neuron is known in closed form, so "
        "that a gap would show",
    doubt="The certificate reaches depth 3 and one output in the plane; other depths rest on the proof alone",
)  # fmt: skip
def _excess_over_one_neuron(run: xr.Dataset) -> Estimate:
    return Estimate.largest(run.excess.values[run.ratio.values < 2])


@claims.add(
    "holds",
    "No layer of an optimal escape network exceeds Theorem 3.1's printed bound on its deviation from rank one",
    quantity="number of data sets with a layer's share of energy beyond rank one or removed by ReLU above a bound "
        "below 1", kind="printed", source="Theorem 3.1 as printed, weights and ReLUs at the same layer included",
    high=0.0, evidence="cases", over="data sets",
    why="The certified optimum is deepened at no loss, and by the theorem about one neuron it is then an optimum at "
        "that depth",
    doubt="Wherever the bound is below 1 within these depths, the optimum is one neuron, so only its first ReLU can "
        "exceed 0",
)  # fmt: skip
def _violations(run: xr.Dataset) -> Estimate:
    bound = run.bound.where((run.bound < 1) & (run.ratio < 2))
    seen = int(bound.notnull().any("layer").sum())
    if not seen:
        return Estimate.unresolved("The bound was below 1 for no known optimum; lower log10_distances.")
    over = (run.activations > bound) | (run.weights > bound) | (run.relu > bound)
    cut = int((run.relu.where(bound.notnull()) > 0).any("layer").sum())
    remark = f"the bound is below 1 on {seen} data sets; on {cut} of them a ReLU there cuts something"
    return Estimate(float(over.any("layer").sum()), remark=remark, n=seen)


@claims.add(
    "budget",
    "Log stable ranks and log ReLU losses of an optimal network sum to at most 2 log(|X||G|/s), s its speed",
    quantity="number of data sets with a larger sum over layers, with inputs X, loss gradients G and escape speed s",
    kind="own", source="this project's sharper inequality, in place of the theorem", high=0.0, evidence="cases",
    over="data sets",
    why="Each term is 0 at rank one and where ReLU does nothing, so the sum is what all layers together deviate",
    doubt="The optimum of depth 3 is deepened by layers of one neuron, so only its first layers contribute",
)  # fmt: skip
def _overspending(run: xr.Dataset) -> Estimate:
    return Estimate.number((run.spent > run.budget + 1e-9).values)


@claims.add(
    "content",
    "On 8 circle points, the bound on summed log stable ranks leaves at most eight layers far from rank one",
    quantity="largest allowed number of layers with over half of their activation energy beyond the first singular "
        "value, at any depth", kind="own", source="this project's sharper inequality: 2 log 16 / log 2 = 8", low=1.0,
    high=8.0, evidence="identity", over="data sets",
    why="A layer with half of its energy beyond rank one uses log 2 of the sum, so the quotient counts such layers at "
        "any depth",
    doubt="It follows from the inequality and the speed alone, not from the optimum; one half is this project's bar",
)  # fmt: skip
def _layers_above_half(run: xr.Dataset) -> Estimate:
    return Estimate(float(math.floor(float(run.budget.sel(data=EXAMPLE)) / math.log(2))))


@claims.add(
    "lemma-a-6",
    "Every non-negative matrix has non-negative right and left singular vectors for its largest singular value",
    quantity="smallest entry of such a pair of unit vectors, less the largest error of their equations, over matrices",
    kind="printed", source="Lemma A.6; 1e-9 for rounding", low=-1e-9, evidence="cases", over="matrices",
    why="The pair is built from the space of all leading vectors, so a negative entry would mean that the "
        "construction of the proof fails",
    doubt="Matrices have at most 16 rows; where the two largest singular values nearly agree, rounding decides which "
        "are equal",
)  # fmt: skip
def _least_entry(run: xr.Dataset) -> Estimate:
    return Estimate.smallest((np.minimum(run.least_entry, 0.0) - run.vector_error).values)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the bound by layer, the first layer at which it has content, and the optimum beside it."""
    curves, firsts, actual, rows = [], [], [], []
    for color, name in enumerate(dict.fromkeys(str(name) for name in run.data.values)):
        some = run.isel(data=run.data.values == name)
        middle = some.isel(data=int(np.argsort(some.constant.values)[some.sizes["data"] // 2]))
        curves += lines(middle.curve, x="l", label=name, grouped=True, color=color)
        ratio = np.exp(some.budget.values / 2) - 1
        firsts.append(Line(x=ratio, y=some.first_layer.values, group=name, color=color, style="points"))
        tails = np.maximum(some.activations.max("data"), 1e-16)
        actual += lines(tails, x="layer", label=name, grouped=True, color=color, style="points")
        budget, spent = float(some.budget.max()), float((some.spent / some.budget).max())
        rows.append(
            (
                name, some.sizes["data"], int((some.excess > 1e-6).sum()), math.ceil(float(some.first_layer.min())),
                f"{budget:.3g}", f"{spent:.3f}", math.floor(budget / math.log(2)),
            )
        )  # fmt: skip
    excess = np.geomspace(1e-8, 20, 100)
    law = 81 * (1 + excess) ** 2 * 2 * np.log1p(excess)
    firsts.append(Line(x=excess, y=law, label="81 c²", style="dashed", color=len(rows), width=1.2))
    one = Mark(at=1.0, label="all ratios are at most 1", axis="y")
    layer, bound = Axis("layer l", scale="log"), Axis("bound", scale="log", range=(1e-3, 1e3))
    ratio, begins = Axis("|X||G|/s* − 1", scale="log"), Axis("first layer", scale="log")
    columns = (
        "data", "sets", "of several neurons", "first layer with content, least", "budget", "spent, largest share",
        "layers with a tail above 1/2, at most",
    )  # fmt: skip
    return [
        Figure(
            name="content",
            title="Bound of Theorem 3.1 by layer, and the layer from which it is below 1",
            caption="Left: the theorem's bound against the layer, for circles and for data near rank one (the median "
            "one of each kind); above 1 it is empty. For Example 1 it is below 1 from layer "
            f"{math.ceil(float(run.first_layer.sel(data=EXAMPLE))):,} on. Middle: the first layer where it is below 1, "
            "against how far |X||G|/s* is above 1, its least value. Right: the largest tail(Zσ_l) of the optimum over "
            "the data sets of each kind; exactly 0 is drawn at 1e-16. The table has the sharper inequality.",
            panels=(
                Panel(title="the bound", x=layer, y=bound, marks=(*curves, one)),
                Panel(title="first layer below 1", x=ratio, y=begins, marks=tuple(firsts)),
                Panel(
                    title=f"the optimum, made {int(run.layer[-1]) + 1} layers deep", x=layer,
                    y=Axis("tail(Zσ)", scale="log"), marks=tuple(actual),
                ),
            ),
            columns=3,
            table=Table(columns=columns, rows=tuple(rows)),
        )
    ]  # fmt: skip


entry = Entry(
    "deep-relu/theorem-3-1",
    "Theorem 3.1: deeper layers are nearer rank one, but the bound is empty at practical depth", citation=CITATION,
    source="Theorem 3.1", params=Params,
    quick=dict(depth=16, circles=(6, 8), moved=4, log10_distances=(-1.0, -3.0), count=5, matrices=30),
    paper=dict(depth=256, count=250, moved=100), run=run, claims=claims, figures=figures,
)  # fmt: skip
