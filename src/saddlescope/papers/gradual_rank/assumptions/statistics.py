"""Statistics of a run of the entry on Assumptions 4.3 to 4.5."""

from collections.abc import Callable

import xarray as xr

from saddlescope.reproduction.claim import Estimate

NEAR = 0.01  # epsilon of Assumption 4.5, in units of the transition's size, the largest entry of |beta^k - beta^(k-1)|

_FAILED = "Algorithm 1 did not come to its end on all seeds."


def smallest_value(name: str) -> Callable[[xr.Dataset], Estimate]:
    """Return the statistic of the smallest value of one variable over seeds and stages."""

    def statistic(run: xr.Dataset) -> Estimate:
        if not run.converged.all():
            return Estimate.unresolved(_FAILED)
        values = run[name]
        if not values.notnull().any():
            return Estimate.unresolved("No coordinate left the support in any stage.")
        return Estimate(float(values.min()), remark=f"over {int(values.count())} values of {run.sizes['seed']} seeds")

    return statistic


def seeds_with_leaving(run: xr.Dataset) -> Estimate:
    """Count the seeds in which a coordinate leaves the support."""
    if not run.converged.all():
        return Estimate.unresolved(_FAILED)
    leaving = run.left.sum("stage") > 0
    named = ", ".join(map(str, run.seed.values[leaving.values])) or "none"
    return Estimate(float(leaving.sum()), remark=f"of {run.sizes['seed']} seeds: {named}")


def share_of_stages(condition: Callable[[xr.Dataset], xr.DataArray]) -> Callable[[xr.Dataset], Estimate]:
    """Return the statistic of the share of stages, of all seeds, in which a condition holds."""

    def statistic(run: xr.Dataset) -> Estimate:
        if not run.converged.all():
            return Estimate.unresolved(_FAILED)
        stages = int(run.time.notnull().sum())
        holds = condition(run).where(run.time.notnull(), False)
        return Estimate(float(holds.sum()) / stages, remark=f"{stages} stages")

    return statistic


def robust_to_noise(run: xr.Dataset) -> xr.DataArray:
    """Return true for each stage that all noisy draws reach."""
    return (run.end_distance <= NEAR).all("draw")
