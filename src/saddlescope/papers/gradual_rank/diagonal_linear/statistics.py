"""Statistics of a run of the entry on diagonal linear networks."""

from collections.abc import Callable

import xarray as xr

from saddlescope.reproduction.claim import Estimate


def largest(name: str) -> Callable[[xr.Dataset], Estimate]:
    """Return the statistic of a variable's largest value over problems, and over stages where it has any."""

    def measure(run: xr.Dataset) -> Estimate:
        if not run.converged.all():
            return Estimate.unresolved(f"Algorithm 1 did not converge in {int((~run.converged).sum())} problems.")
        stages = int(run.stage_time.notnull().sum())
        return Estimate(float(run[name].max()), remark=f"{run.sizes['problem']} problems, {stages} stages")

    return measure


def norm_excess(norm: str) -> Callable[[xr.Dataset], Estimate]:
    """Return the statistic of the largest difference of an l1 norm from the least one."""

    def measure(run: xr.Dataset) -> Estimate:
        return Estimate(float(abs(run[norm] - run.least_norm).max()))

    return measure


def flow_excess(run: xr.Dataset) -> Estimate:
    """Return the largest relative excess of the flow's l1 norm."""
    return Estimate(float(abs(run.flow_norm / run.least_norm - 1).max()))


def number_leaving(run: xr.Dataset) -> Estimate:
    """Count the coordinates that leave the support."""
    problems = int((run.left.sum("stage") > 0).sum())
    return Estimate(float(run.left.sum()), remark=f"in {problems} of {run.sizes['problem']} problems")
