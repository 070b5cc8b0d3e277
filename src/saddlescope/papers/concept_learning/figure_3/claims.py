"""Claims and metrics of the entry `figure_3`."""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.figure_3.simulations import HIGH, LOW, SMALL, WHOLE, WIDE, WIDE_SGD
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.metric import Metric

LARGE = 0.05  # few ripples of SGD rise above this part of the first loss


def select_networks(run: xr.Dataset, kind: str, depth: int) -> xr.Dataset:
    """Select the networks of one kind and depth."""
    return run.isel(network=((run.kind == kind) & (run.depth == depth)).values).isel(network=0)


def transient_share(run: xr.Dataset, *, kind: str, depth: int | None = None, none: bool = False) -> Estimate:
    """Return the part of the networks of a kind that are transient, by default at the paper's depth."""
    if kind not in run.kind:
        return Estimate.unresolved(f"No networks of the kind {kind!r} were trained.")
    one = select_networks(run, kind, depth or run.attrs["paper_depth"])
    turns = (one.descents > 1).values
    large = (one.rise.values[turns] > LARGE).sum()
    remark = f"{turns.sum()} of {len(turns)} networks, {large} with a rise above {LARGE:.0%}"
    remark = f"{remark}; largest rise {float(one.rise.max()):.2g}"
    return Estimate(float(turns.mean()), remark=remark) if none else Estimate.share(turns.sum(), len(turns), remark)


def _transient_networks(run: xr.Dataset) -> xr.Dataset:
    """Select the transient networks of the paper's depth in low dimension."""
    one = select_networks(run, LOW, run.attrs["paper_depth"])
    return one.isel(seed=(one.descents > 1).values)


_FIGURE = "Figure 3, section 3.3"

claims = Claims()

claims.add(
    "low-dimension",
    "In low dimension deep networks memorize for a while",
    quantity="part of the networks whose out-of-distribution loss falls, rises, and falls again",
    kind="own",
    source=f"{_FIGURE}; the bound is this project's bar, from trial runs of another implementation",
    low=0.4,
)(partial(transient_share, kind=LOW))

claims.add(
    "no-noise",
    "It is no noise of SGD",
    quantity="the same part where every step sees all samples",
    kind="printed",
    source="section 4.2, which explains it by gradient flow; the bound is that of SGD",
    low=0.4,
)(partial(transient_share, kind=WHOLE))

claims.add(
    "high-dimension",
    "In high dimension the loss slows down but never rises",
    quantity="part of the networks in which it does",
    kind="printed",
    source=f"{_FIGURE}: does not actually exhibit non-monotonic behavior",
    high=0.0,
)(partial(transient_share, kind=HIGH, none=True))


@claims.add(
    "memorizing",
    "Where the loss is highest again, the output has turned to the strongest training cluster",
    quantity="part of the transient networks that are nearer to it than to the test point",
    kind="own",
    source="section 3.3: turns toward the training set cluster with the strongest signal; the bound is this project's bar",
    low=0.8,
)
def memorizing(run: xr.Dataset) -> Estimate:
    """Return the part of the transient networks that are nearer to the strongest cluster at the peak."""
    one = _transient_networks(run)
    if one.sizes["seed"] == 0:
        return Estimate.unresolved("No network in low dimension is transient; train more seeds.")
    mu = np.array(run.attrs["mu"])
    cluster = np.where(mu == mu.max(), mu, 0.0)
    output = one.peak_output.transpose("seed", "concept").values
    near = np.linalg.norm(output - cluster, axis=1) < np.linalg.norm(output - mu, axis=1)
    return Estimate.share(near.sum(), len(near), f"{near.sum()} of {len(near)} transient networks")


@claims.add(
    "generalising",
    "With enough training they generalise",
    quantity="part of the transient networks that end below 1 % of the loss at the start",
    kind="own",
    source="section 3.3: generalizes OOD; the bound is this project's bar",
    low=0.8,
)
def generalising(run: xr.Dataset) -> Estimate:
    """Return the part of the transient networks that end with a loss below 1 % of its start."""
    one = _transient_networks(run)
    if one.sizes["seed"] == 0:
        return Estimate.unresolved("No network in low dimension is transient; train more seeds.")
    left = one.test_loss.isel(step=-1) / one.test_loss.isel(step=0)
    return Estimate.share(float((left < 0.01).sum()), left.size, f"{left.size} transient networks")


@claims.add(
    "deeper",
    "Transient memorization comes with depth",
    quantity="transient part of the deepest networks less that of two layers",
    kind="printed",
    source="appendix F: models with more layers are easier to have it",
    low=0.0,
)
def depth_difference(run: xr.Dataset) -> Estimate:
    """Return the transient part at the largest depth less that at the least above 1, in low dimension."""
    depths = sorted({int(depth) for depth in run.depth.values} - {1})
    if len(depths) < 2:
        return Estimate.unresolved("Only one depth above 1 was trained; set depths=1,2,3,4,5.")
    (few, many), (calm_few, calm_many) = (
        [float((select_networks(run, kind, depth).descents > 1).mean()) for depth in (depths[0], depths[-1])]
        for kind in (LOW, WHOLE)
    )
    error = 1.96 * ((few * (1 - few) + many * (1 - many)) / run.sizes["seed"]) ** 0.5
    remark = f"{few:.2f} at depth {depths[0]}, {many:.2f} at depth {depths[-1]}"
    return Estimate(many - few, error, remark=f"{remark}; without minibatches {calm_few:.2f} and {calm_many:.2f}")


claims.add(
    "one-layer",
    "One layer cannot, as the paper has it without a condition",
    quantity="part of the one-layer networks in low dimension, from PyTorch's start, whose loss falls, rises, and falls again",
    kind="printed",
    source="section 4.1: monotonic and rather regular; as printed",
    high=0.0,
)(partial(transient_share, kind=LOW, depth=1, none=True))

claims.add(
    "one-layer-small",
    "One layer cannot from a small start",
    quantity="the same from a hundredth of PyTorch's",
    kind="printed",
    source="section 4.1, corrected: the noise term of equation 4.2 must be small",
    high=0.0,
)(partial(transient_share, kind=SMALL, depth=1, none=True))

claims.add(
    "width",
    "It is the width of the hidden layers, not the dimension of the data, that prevents it",
    quantity="transient part of deep networks in low dimension whose hidden layers are wide, without minibatches",
    kind="own",
    source="this project's, against section 3.3, which names the dimension; the bound from trial runs of symmetric networks",
    high=0.1,
)(partial(transient_share, kind=WIDE))

claims.add(
    "width-sgd",
    "So it is under SGD, whose ripples are counted",
    quantity="the same part with minibatches",
    kind="printed",
    source="the claim before it as it was first posed, before the noise of SGD was told apart; the same bound",
    high=0.1,
)(partial(transient_share, kind=WIDE_SGD))

metrics = (
    Metric(
        name="descents",
        quantity="descents of the loss in low dimension, mean over seeds",
        statistic=lambda run: float(select_networks(run, LOW, run.attrs["paper_depth"]).descents.mean()),
    ),
    Metric(
        name="transient",
        quantity="share of networks in low dimension whose loss rises between descents",
        statistic=lambda run: float((select_networks(run, LOW, run.attrs["paper_depth"]).descents > 1).mean()),
    ),
    Metric(
        name="rise",
        quantity="largest rise of the loss in low dimension over its start, mean over seeds",
        statistic=lambda run: float(select_networks(run, LOW, run.attrs["paper_depth"]).rise.mean()),
    ),
    Metric(
        name="final_loss",
        quantity="final loss out of distribution in low dimension, mean over seeds",
        statistic=lambda run: float(select_networks(run, LOW, run.attrs["paper_depth"]).test_loss.isel(step=-1).mean()),
        scale="log",
    ),
)
