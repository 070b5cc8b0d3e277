"""Statistics of stages found in deep linear networks and in synthetic staircases."""

import xarray as xr

from saddlescope.reproduction.claim import Estimate

SUCCESS_BARS = {0.0: 1.0, 1e-4: 0.97, 1e-3: 0.90}  # noise, and the least part of staircases found right


def wrong_networks(run: xr.Dataset) -> Estimate:
    """Count the networks in which another number of stages is found, or a layer of another rank in one."""
    expected = run.stage.where(run.stage < run.visible, -1)
    ranks = (run.stage_layer_rank == expected) | (run.layer > run.depth)
    wrong = (run.stages_found != run.visible) | ~ranks.all(["stage", "layer"])
    return Estimate(float(wrong.sum()), remark=f"{run.sizes['network']} networks, {int(run.visible.sum())} stages")


def level_error(run: xr.Dataset) -> Estimate:
    """Return the largest distance of a level from that of the best fit, as a part of the range."""
    span = run.level.isel(stage=0) - run.level.min("stage")
    error = abs(run.stage_loss - run.level) / span
    return Estimate(float(error.max()), remark=f"median {float(error.median()):.2g}")


def distance_from_saddles(run: xr.Dataset) -> Estimate:
    """Return the largest distance of a level from that of the nearest saddle of its rank."""
    return Estimate(float(run.fitted.max()))


def speed_share(run: xr.Dataset) -> Estimate:
    """Return the part of the optimal speed that the slowest network reaches before the loss falls."""
    return Estimate(float(run.speed_share.min()), remark=f"largest {float(run.speed_share.max()):.6f}")


def synthetic_success(run: xr.Dataset, *, noise: float) -> Estimate:
    """Return the share of synthetic staircases with this noise that are found right."""
    if noise not in run.loss_noise.values:
        return Estimate.unresolved(f"The noise {noise:g} was not among those tried.")
    tried = 2 * int(run.staircases)
    share = float(run.right.sel(loss_noise=noise).sum()) / tried
    # Agresti and Coull's interval, of 95 %; without noise every staircase counts.
    centre = (share * tried + 2) / (tried + 4)
    uncertainty = abs(share - centre) + 2 * (centre * (1 - centre) / (tried + 4)) ** 0.5 if noise else 0.0
    return Estimate(share, uncertainty, f"{tried} staircases")
