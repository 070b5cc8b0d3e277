"""H softmax heads with diagonal weights (Example 3.2): units are products of two weights, inside the loss.

Softmax mixes the coordinates of a head, so the network is no sum of their outputs, and the prediction needs none: for a
small unit the loss is linear in what it adds, whatever smooth function comes after the sum. Here the sum is the vector
of all products β of two weights, with one unit of degree 2 each, and the heads and the squared error are a loss of β:

    head_h(x)   softmax(x R_h diag(a_h) R_hᵀ xᵀ) x R_h diag(b_h) R_hᵀ,  a_h = w_K w_Q,  b_h = w_V w_O
    β           (a_1, b_1, a_2, ...)
    L(β)        mean |sum_h head_h(x) - y|², with y of heads of the same form

Each head has a fixed orthonormal basis R_h of its own: in one basis all heads have the same gradient at the origin and
tie (see tied-heads). A whole head fails as a unit: its other weights are still dormant when it becomes active.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.papers.beyond.shared.stage_claims import stage_figure
from saddlescope.papers.beyond.shared.stage_comparison import (
    StageParams,
    compare_stages,
    follow_scales,
    over_seeds,
    random_weights,
)
from saddlescope.plot import Axis, Figures, Panel, lines
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param

if TYPE_CHECKING:
    from saddlescope.flow import Trajectory
    from saddlescope.papers.beyond.shared.units import SoftmaxHeadsNetwork
    from saddlescope.theory import UnitLearning


_LEARNED = 0.01  # products above it count as learned
_SEPARATED = 10.0  # e-folds that separate a stage from the next


class Params(StageParams, seeds=tuple(range(10, 30)), log10_scales=(-128.0, -512.0, -2048.0)):
    """One layer of heads that learns a teacher of the same form."""

    heads: int = param(2, "attention heads H", ge=2, le=8)
    dim: int = param(2, "dimension of a token", ge=2, le=16)
    samples: int = param(50, "sequences in the data set", ge=1)
    tokens: int = param(4, "tokens in a sequence", ge=2)
    ratio: float = param(1.6, "size of each value of the teacher over the next", gt=1)
    stages: int = param(6, "largest number of predicted stages", ge=1)


@over_seeds
def run(params: Params, seed: int, context: RunContext) -> xr.Dataset:
    """Predict the stages from one product, and follow the flow from every scale."""
    rng = np.random.default_rng(seed)
    network, p = teacher_network(params, rng), 2 * params.heads * params.dim
    learned = learn_products(network, params.stages)
    last = learned.stages[-1]

    def until(log_scale: float) -> float:
        return min(1.3 * last.time + 40 / (-log_scale * last.curvature), (last.time + learned.end) / 2)

    flows = follow_scales(params, context, random_weights(network, p, rng), None, until)
    flow, compared = flows[params.log10_scales[-1]], compare_stages(learned, flows)
    ends = np.append(compared.predicted_time[1:], flow.times[-1])
    on_plateaus = flow((compared.predicted_time.values + ends) / 2)
    smallest = params.log10_scales[-1] * np.log(10)
    unresolved = [tie.stage for tie in learned.near_ties(smallest, efolds=_SEPARATED)]
    predicted = np.zeros((len(learned.stages) - 1, p))
    for k, stage in enumerate(learned.stages[1:]):
        predicted[k, list(stage.kinds)] = np.prod(stage.thetas, axis=1)
    return compared.assign(
        product_error=("stage", np.max(np.abs(on_plateaus - predicted), axis=1) / np.max(np.abs(predicted))),
        resolved=("stage", 1.0 - np.isin(np.arange(1, len(learned.stages)), unresolved)),
        first=(("head", "weights"), _first_passages(flow, params)),
        products=(("time", "product"), flow(compared.time.values)),
        dim=params.dim,
    ).assign_coords(weights=["KQ", "VO"], product=np.arange(p))


def teacher_network(params: Params, rng: np.random.Generator) -> "SoftmaxHeadsNetwork":
    """Return the loss L(β) of heads in random bases, whose targets are those of a teacher."""
    import jax
    import jax.numpy as jnp

    from saddlescope.papers.beyond.shared.units import SoftmaxHeads, SoftmaxHeadsNetwork

    shape = params.heads, params.dim
    heads = SoftmaxHeads(jnp.asarray(np.linalg.qr(rng.standard_normal((*shape, params.dim)))[0]))
    x = jnp.asarray(rng.standard_normal((params.samples, params.tokens, params.dim)))
    keys = rng.choice([-1.0, 1.0], shape) * rng.uniform(1.0, 3.0, shape)
    values = rng.choice([-1.0, 1.0], shape) * params.ratio ** -np.arange(np.prod(shape)).reshape(shape)
    teacher = jnp.asarray(np.stack([keys, values], axis=1).ravel())
    return SoftmaxHeadsNetwork(heads, x, jax.vmap(heads, (0, None))(x, teacher))


def learn_products(network: "SoftmaxHeadsNetwork", stages: int) -> "UnitLearning":
    """Return the prediction whose units are the products."""
    from saddlescope.papers.beyond.shared.units import SoftmaxHeadsLoss, product
    from saddlescope.theory import unit_learning

    heads, dim, _ = network.h.bases.shape
    p = 2 * heads * dim
    data = np.zeros((network.samples, p)), {"x": network.inputs, "y": network.targets}
    loss = SoftmaxHeadsLoss(network.h)
    return unit_learning(product, data, loss, parameters=np.zeros(2), kinds=p, width=1, max_stages=stages)


def _first_passages(flow: "Trajectory", params: Params) -> np.ndarray:
    """Return for each head when its first key or query and its first value is learned; infinite if none is."""
    learned = np.abs(flow.beta).reshape(-1, params.heads, 2, params.dim).max(axis=3) > _LEARNED
    times = flow.times[learned.argmax(axis=0)]
    return np.where(learned.any(axis=0), times, np.inf)


claims = Claims(
    limits="Bars and scales were fixed after runs of seeds 0 to 2. The first judged runs, of seeds 10 to 19, recorded "
    "the flow around the predicted times only, and misread stages of near-ties; since then every step is recorded, and "
    "plateaus that the prediction itself separates by fewer than 10 e-folds are left out. Ten more seeds, unseen, were "
    "added. Two networks of twenty (seeds 12 and 19) have other products on a plateau: two of their stages nearly tie. "
    "Heads that learn nothing in the predicted stages count as in order."
)


@claims.extension(
    "products",
    "On each resolved plateau of softmax heads, every product of every head has the predicted value",
    "Boix-Adserà et al. 2023, Theorem 4.1 and Example 3.2; bar: this project",
    high=1e-3,
)
def _products_on_plateaus(run: xr.Dataset) -> Estimate:
    """Largest error of a product at the smallest initial scale, in units of the largest product."""
    errors = run.product_error.where(run.resolved.fillna(0).astype(bool))
    if not errors.notnull().any():
        return Estimate.unresolved("The smallest scale separates no plateau; add a smaller one.")
    seeds = errors.dropna("seed", how="all")
    return Estimate.largest(seeds.max("stage"), f"{int(errors.notnull().sum())} plateaus", over="seeds")


@claims.extension(
    "values-first",
    "In every softmax head a value is learned before any key or query",
    "While a head has no values, its output does not depend on its keys and queries, so these have no utility",
    high=0.0,
)
def _values_first(run: xr.Dataset) -> Estimate:
    """Number of seeds in which a head's first product of key and query passes 0.01 before its first of values."""
    keys, values = run["first"].sel(weights="KQ"), run["first"].sel(weights="VO")
    return Estimate.number(((keys <= values) & np.isfinite(keys)).any("head"), over="seeds")


def figures(run: xr.Dataset) -> Figures:
    """Draw the losses, the errors, and the products of each head."""
    caption = "Gradient flow of softmax heads with diagonal weights, and the prediction from one product of weights."
    figure = stage_figure(run, title="Stages of softmax heads, predicted from one product", caption=caption)
    dim, marks = int(run.dim.values.flat[0]), []
    for p in run.product.values.tolist():
        (head, values), entry = divmod(p // dim, 2), p % dim + 1
        name, style = f"head {head + 1} {('KQ', 'VO')[values]} {entry}", ("dashed", "solid")[values]
        marks += lines(run.products.sel(product=p), x="time", label=name, color=p, style=style)
    title = f"products at α = 1e{float(run.scale[-1]):g}, seed {int(run.seed[0])}"
    panel = Panel(title=title, x=Axis("time / log(1/α)"), y=Axis("product β"), marks=tuple(marks))
    yield replace(figure, panels=(figure.panels[0], panel, figure.panels[1]))


entry = Entry(
    "beyond/attention-heads",
    "Softmax heads with diagonal weights: which head learns what at which stage",
    source="Boix-Adserà et al., Example 3.2; Kunin et al., sums of units",
    quick={"seeds": (0, 2), "samples": 20, "stages": 2, "log10_scales": (-32.0, -128.0)},
)
