"""The claims of Figure 11, with their bounds and sources."""

import xarray as xr

from saddlescope.papers.gradual_rank.figure_11.transitions import transitions
from saddlescope.reproduction.claim import Claims, Estimate

# The bounds. "Tend to the limiting endpoint", "track the original dynamics" have no number. Read here as: at most 5 %
# of the transition's size from the endpoint, as in Figure 10; at most 10 % of it, what an eye sees, from the curve.
claims = Claims()


@claims.add(
    "endpoint",
    "After noise at its beginning a transition still ends at theta^k",
    quantity="least distance in units of its size, at worst",
    kind="printed",
    source="Assumption 4.5 and Appendix A: 'tend to the limiting endpoint'; at most 5 %",
    high=0.05,
)
def endpoint_distance(run: xr.Dataset) -> Estimate:
    """Return the least distance to theta^k after noise, in units of the transition's size, at worst."""
    found = transitions(run)
    return Estimate(
        max(one.endpoint() for one in found),
        remark=f"{len(found)} transitions; {max(one.endpoint(noisy=False) for one in found):.2g} without noise",
    )


@claims.add(
    "tracks",
    "The noisy training tracks the one without noise",
    quantity="largest distance at the same time in units of the transition's size, at worst",
    kind="printed",
    source="Figure 11, caption, as printed; at most 10 %",
    high=0.1,
)
def tracking_distance(run: xr.Dataset) -> Estimate:
    """Return the largest distance of both trainings at the same time, in units of the transition's size."""
    return Estimate(max(one.farthest() for one in transitions(run)))


@claims.add(
    "same-path",
    "The transition takes the same path, only sooner",
    quantity="largest distance at the same progress, 10 % to 90 %, in units of its size, at worst",
    kind="printed",
    source="Figure 3 (b): 'same nonlinear evolution', as it can hold; at most 10 %",
    high=0.1,
)
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
