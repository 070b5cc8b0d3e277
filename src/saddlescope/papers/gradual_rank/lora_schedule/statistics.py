"""Statistics of a run of the entry on LoRA schedules."""

from collections.abc import Callable

import xarray as xr

from saddlescope.papers.gradual_rank.shared.gpt2_training import over_seeds
from saddlescope.reproduction.claim import Estimate

ARMS = ("constant", "schedule")

TABLES = ("constant", "schedule", "hindsight")


def parameters(run: xr.Dataset, table: str) -> xr.DataArray:
    """Return the number of parameters of adapters with the ranks in this table."""
    return (run["rank"].sel(table=table) * run.parameters_a_rank).sum("matrix")


def fall_of_loss(run: xr.Dataset, arm: str) -> xr.DataArray:
    """Return the fall of the test loss, in nats per token."""
    loss = run.test_loss.sel(arm=arm)
    return loss.isel(test=0) - loss.isel(test=-1)


def _alike(run: xr.Dataset, one: str, other: str) -> xr.DataArray:
    """Return the share of the constant arm's parameters that two tables of ranks place in the same matrices."""
    common = run["rank"].sel(table=[one, other]).min("table")
    return (common * run.parameters_a_rank).sum("matrix") / parameters(run, "constant")


SMALL = 0

LARGE = -1


def rank_gain(run: xr.Dataset) -> Estimate:
    """Return the fall of the loss with the large constant rank over that with the small one."""
    gain = fall_of_loss(run, "constant")
    return over_seeds(gain.isel(budget=LARGE) / gain.isel(budget=SMALL))


def budget_used(run: xr.Dataset) -> Estimate:
    """Return the schedule's parameters over the constant rank's, for the schedule that misses most."""
    share = (parameters(run, "schedule") / parameters(run, "constant")).values.ravel()
    worst = max(share.tolist(), key=lambda each: abs(each - 1))
    return Estimate(worst, remark=f"all {share.size} schedules, the one that misses it most")


def at_budget(budget: int, statistic: Callable[[xr.Dataset], xr.DataArray]) -> Callable[[xr.Dataset], Estimate]:
    """Return the statistic, over seeds, at one of the two budgets."""
    return lambda run: over_seeds(statistic(run.isel(budget=budget)))


def early_agreement(run: xr.Dataset) -> xr.DataArray:
    """Return the schedule's agreement with hindsight, minus that of the constant rank."""
    return _alike(run, "schedule", "hindsight") - _alike(run, "constant", "hindsight")


def schedule_gain(run: xr.Dataset) -> xr.DataArray:
    """Return the fall of the schedule's test loss, minus that of the constant rank."""
    return fall_of_loss(run, "schedule") - fall_of_loss(run, "constant")


def schedule_ratio(run: xr.Dataset) -> xr.DataArray:
    """Return the fall of the schedule's test loss over that of the constant rank."""
    return fall_of_loss(run, "schedule") / fall_of_loss(run, "constant")
