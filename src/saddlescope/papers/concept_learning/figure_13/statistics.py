"""Statistics behind the claims of the entry `figure_13`."""

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.figure_13.simulations import DEEP
from saddlescope.reproduction.claim import Estimate


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


def generalising(run: xr.Dataset) -> Estimate:
    """Return the share of networks whose loss falls below 1 % of its start."""
    learned = run.learned.sel(kind=DEEP).notnull()
    return Estimate.share(float(learned.sum()), learned.size, f"{learned.size} networks")


def step_ratio(run: xr.Dataset) -> Estimate:
    """Return steps to learn at the small signals over those at the large ones, median over seeds."""
    ratio = (run.learned.sel(kind=DEEP, task="small") / run.learned.sel(kind=DEEP, task="large")).dropna("seed").values
    if not len(ratio):
        return Estimate.unresolved("No seed learned both tasks.")
    return Estimate(float(np.median(ratio)), remark=f"larger than 1 for {np.mean(ratio > 1):.0%} of the seeds")
