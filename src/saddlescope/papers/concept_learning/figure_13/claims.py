"""Claims and metrics of the entry `figure_13`."""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.figure_13.simulations import DEEP, ONE, WIDE
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.metric import Metric


# The bounds: a pilot on seeds 100 to 163 had .33 transient networks of three layers on either task, all of them nearer
# to the strongest cluster at the peak; .03 and .02 of one layer; none at d = 64; medians of 192 and 62 steps to learn.
def _transient_mask(run: xr.Dataset, kind: str, task: str) -> np.ndarray:
    descents = run.descents.sel(kind=kind, task=task)
    return (descents[descents.notnull()] > 1).values


def transient_share(run: xr.Dataset, *, task: str) -> Estimate:
    """Return the share of transient networks of three layers."""
    turns = _transient_mask(run, DEEP, task)
    rise = float(run.rise.sel(kind=DEEP, task=task).max())
    remark = f"{turns.sum()} of {len(turns)} networks; largest rise {rise:.2g} of the start"
    return Estimate.share(turns.sum(), len(turns), remark)


def share_difference(run: xr.Dataset, *, kind: str) -> Estimate:
    """Return the share of transient networks of three layers, less that of the others, both tasks."""
    if kind not in run.kind:
        return Estimate.unresolved(f"No networks of {kind} were trained.")
    ours, theirs = (
        np.concatenate([_transient_mask(run, one, task) for task in run.task.values]) for one in (DEEP, kind)
    )
    shares = ours.mean(), theirs.mean()
    error = 1.96 * float(sum(p * (1 - p) / len(x) for p, x in zip(shares, (ours, theirs), strict=True))) ** 0.5
    return Estimate(float(shares[0] - shares[1]), error, remark=f"{shares[0]:.2f} against {shares[1]:.2f}")


_BAR = "a pilot on other seeds had .33, and half of it leaves room"

claims = Claims()

claims.add(
    "small-signals",
    "With mu = (1, 2) such networks memorize for a while",
    quantity="part whose loss falls, rises and falls again",
    kind="printed",
    source=f"Figures 13 (left) and 14, one network each; {_BAR}",
    low=0.15,
)(partial(transient_share, task="small"))

claims.add(
    "large-signals",
    "With mu = (2, 4) they do, too",
    quantity="value",
    kind="printed",
    source=f"Figures 13 (right) and 14, one network each; {_BAR}",
    low=0.15,
)(partial(transient_share, task="large"))

claims.add(
    "typical",
    "It is what such a network usually does",
    quantity="part of the networks with mu = (1, 2)",
    kind="printed",
    source="F.2, 'exhibit significant Transient Memorization', if that is meant of most networks",
    low=0.5,
)(partial(transient_share, task="small"))


@claims.add(
    "memorizing",
    "Where the loss is highest again, transient networks are nearer to the strongest cluster than to the test point",
    quantity="part of them",
    kind="printed",
    source="section 3.3: turns toward the training set cluster with the strongest signal; all in the pilot",
    low=0.8,
)
def memorizing(run: xr.Dataset) -> Estimate:
    """Return the part of the transient networks that are nearer to the strongest cluster at the peak."""
    near = []
    for task in run.task.values:
        mu = run.mu.sel(task=task).values
        output = run.peak_output.sel(kind=DEEP, task=task).transpose("seed", "concept").values
        cluster, turns = np.array([0.0, mu[1]]), _transient_mask(run, DEEP, task)
        near += list((np.linalg.norm(output - cluster, axis=1) < np.linalg.norm(output - mu, axis=1))[turns])
    if not near:
        return Estimate.unresolved("No network is transient; train more seeds.")
    return Estimate.share(sum(near), len(near), f"{sum(near)} of {len(near)} transient networks, both tasks")


claims.add(
    "more-layers",
    "More layers memorize more easily",
    quantity="their share of transient networks less that of one layer, d = 3",
    kind="printed",
    source="F.2, 'models with more layers ... are easier to have Transient Memorization'; .31 in the pilot",
    low=0.1,
)(partial(share_difference, kind=ONE))

claims.add(
    "fewer-dimensions",
    "So do fewer dimensions",
    quantity="their share less that of two layers at d = 64",
    kind="printed",
    source="F.2, '... and fewer input dimensions', beside Figure 11; .33 in the pilot",
    low=0.1,
)(partial(share_difference, kind=WIDE))


@claims.add(
    "generalising",
    "They generalise in the end",
    quantity="part of the networks whose loss falls below 1 % of its start",
    kind="printed",
    source="Figure 14, both curves; all in the pilot",
    low=0.95,
)
def generalising(run: xr.Dataset) -> Estimate:
    """Return the share of networks whose loss falls below 1 % of its start."""
    learned = run.learned.sel(kind=DEEP).notnull()
    return Estimate.share(float(learned.sum()), learned.size, f"{learned.size} networks")


@claims.add(
    "sooner",
    "Large signals are learned in fewer steps",
    quantity="ratio of steps until then, median over seeds",
    kind="printed",
    source="Figure 14 and a_p of section 4.1, four times as large but for sigma; 3.1 in the pilot",
    low=2.0,
)
def step_ratio(run: xr.Dataset) -> Estimate:
    """Return steps to learn at the small signals over those at the large ones, median over seeds."""
    ratio = (run.learned.sel(kind=DEEP, task="small") / run.learned.sel(kind=DEEP, task="large")).dropna("seed").values
    if not len(ratio):
        return Estimate.unresolved("No seed learned both tasks.")
    return Estimate(float(np.median(ratio)), remark=f"larger than 1 for {np.mean(ratio > 1):.0%} of the seeds")


metrics = (
    Metric(
        name="descents",
        quantity="descents of the loss of three layers, mean over networks",
        statistic=lambda run: float(run.descents.sel(kind=DEEP).mean()),
    ),
    Metric(
        name="transient",
        quantity="share of networks of three layers whose loss rises between descents",
        statistic=lambda run: float((run.descents.sel(kind=DEEP) > 1).mean()),
    ),
    Metric(
        name="steps",
        quantity="steps until three layers have learned, median over networks",
        statistic=lambda run: float(run.learned.sel(kind=DEEP).median()),
        scale="log",
    ),
    Metric(
        name="final_loss",
        quantity="final loss out of distribution of three layers, mean over networks",
        statistic=lambda run: float(run.test_loss.isel(step=-1).mean()),
        scale="log",
    ),
)
