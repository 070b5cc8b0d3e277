"""Statistics of a run of Figure 11."""

import xarray as xr

from saddlescope.papers.gradual_rank.figure_11.transitions import transitions
from saddlescope.reproduction.claim import Estimate


def endpoint_distance(run: xr.Dataset) -> Estimate:
    """Return the least distance to theta^k after noise, in units of the transition's size, at worst."""
    found = transitions(run)
    return Estimate(
        max(one.endpoint() for one in found),
        remark=f"{len(found)} transitions; {max(one.endpoint(noisy=False) for one in found):.2g} without noise",
    )


def tracking_distance(run: xr.Dataset) -> Estimate:
    """Return the largest distance of both trainings at the same time, in units of the transition's size."""
    return Estimate(max(one.farthest() for one in transitions(run)))


def path_distance(run: xr.Dataset) -> Estimate:
    """Return the largest distance of both trainings at the same progress, in units of the transition's size."""
    apart, after_a_plateau = [], []
    for one in transitions(run):
        noisy, without = one.path(True), one.path(False)
        if noisy is None or without is None:
            return Estimate.unresolved(f"The transition to stage {one.stage} does not rise through 10 % to 90 %.")
        apart.append(float(abs(noisy[1] - without[1]).max() / one.size))
        if one.stage == 1 or bool(run.resolved.sel(stage=one.stage - 1)):
            after_a_plateau.append(apart[-1])
    others = f"{max(after_a_plateau):.2g} after resolved plateaus, which are {len(after_a_plateau)}"
    return Estimate(max(apart), remark=others if after_a_plateau else "none after a resolved plateau")
