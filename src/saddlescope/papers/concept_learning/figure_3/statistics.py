"""Statistics behind the claims of the entry `figure_3`."""

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.figure_3.simulations import LOW, WHOLE
from saddlescope.reproduction.claim import Estimate

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


def generalising(run: xr.Dataset) -> Estimate:
    """Return the part of the transient networks that end with a loss below 1 % of its start."""
    one = _transient_networks(run)
    if one.sizes["seed"] == 0:
        return Estimate.unresolved("No network in low dimension is transient; train more seeds.")
    left = one.test_loss.isel(step=-1) / one.test_loss.isel(step=0)
    return Estimate.share(float((left < 0.01).sum()), left.size, f"{left.size} transient networks")


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
