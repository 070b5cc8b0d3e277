"""Claims on stages, levels and speeds of deep linear networks, and on the finder of stages."""

from functools import partial

import xarray as xr

from saddlescope.reproduction.claim import Claim, Claims, Estimate, Kind

SUCCESS_BARS = {0.0: 1.0, 1e-4: 0.97, 1e-3: 0.90}  # noise, and the least part of staircases found right


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


claims = Claims()


@claims.add(
    "stages",
    "As many stages are found as are visible, in each of which every layer has the rank of the best fit",
    quantity="networks where not",
    kind="printed",
    source="Section 5 on linear networks; exact theory",
    high=0.0,
)
def wrong_networks(run: xr.Dataset) -> Estimate:
    """Count the networks in which another number of stages is found, or a layer of another rank in one."""
    expected = run.stage.where(run.stage < run.visible, -1)
    ranks = (run.stage_layer_rank == expected) | (run.layer > run.depth)
    wrong = (run.stages_found != run.visible) | ~ranks.all(["stage", "layer"])
    return Estimate(float(wrong.sum()), remark=f"{run.sizes['network']} networks, {int(run.visible.sum())} stages")


@claims.add(
    "levels",
    "The levels of the plateaus found are those of the best fits",
    quantity="largest distance, as a part of the range",
    kind="printed",
    source="exact theory; the bound from runs on other seeds, the plateaus being of finite length",
    high=1e-3,
)
def level_error(run: xr.Dataset) -> Estimate:
    """Return the largest distance of a level from that of the best fit, as a part of the range."""
    span = run.level.isel(stage=0) - run.level.min("stage")
    error = abs(run.stage_loss - run.level) / span
    return Estimate(float(error.max()), remark=f"median {float(error.median()):.2g}")


@claims.add(
    "saddles",
    "Every plateau lies at the level of a saddle of its rank, the best one or another",
    quantity="largest distance",
    kind="printed",
    source="exact theory; the same bound",
    high=1e-3,
)
def distance_from_saddles(run: xr.Dataset) -> Estimate:
    """Return the largest distance of a level from that of the nearest saddle of its rank."""
    return Estimate(float(run.fitted.max()))


@claims.add(
    "speed",
    "The leading singular pairs of the weights escape from the origin in the optimal direction, whose speed is |G X^T| at any depth",
    quantity="the part of it that they reach before the loss falls by 1 % of the drop, in the slowest network",
    kind="printed",
    source="Section 2.2 with linear layers; the bound from runs on other seeds, the initial scale being finite",
    low=0.85,
    high=1.0 + 1e-9,
)
def speed_share(run: xr.Dataset) -> Estimate:
    """Return the part of the optimal speed that the slowest network reaches before the loss falls."""
    return Estimate(float(run.speed_share.min()), remark=f"largest {float(run.speed_share.max()):.6f}")


claims.extend(
    (
        Claim(
            name=f"synthetic-{noise:g}",
            statement=f"Of synthetic staircases with noise {noise:g} of the range, found right in every stage, time, level and rank",
            quantity="value",
            kind=Kind.OWN,
            source="this project's bar; staircases that no setting of the finder was made on",
            low=bar,
            statistic=partial(synthetic_success, noise=noise),
        )
        for noise, bar in SUCCESS_BARS.items()
    )
)
