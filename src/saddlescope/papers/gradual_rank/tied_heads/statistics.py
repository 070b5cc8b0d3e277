"""Statistics of a run of the entry on tied heads."""

import xarray as xr

from saddlescope.reproduction.claim import Estimate

HEADS = 2


def arrival_margin(run: xr.Dataset) -> Estimate:
    """Return the largest relative margin of the second arrival to the first."""
    return Estimate(float((run.second_time / run.first_time - 1).max()), 1e-12, f"{run.sizes['seed']} seeds")


def largest_flatness(run: xr.Dataset) -> Estimate:
    """Return the largest relative curvature along the tie."""
    return Estimate(float(run.flatness.max()), 1e-12, f"{run.sizes['seed']} seeds")


def smallest_scale(run: xr.Dataset) -> xr.Dataset:
    """Return the run at its smallest initial scale."""
    return run.isel(scale=-1)


_NOT_THERE = "In some seed the first stage was not reached; raise `until`."


def entering_coordinates(run: xr.Dataset) -> Estimate:
    """Return the fewest coordinates learned in the first stage, over seeds."""
    last = smallest_scale(run)
    if last.found_time.isnull().any():
        return Estimate.unresolved(_NOT_THERE)
    return Estimate(float(last.learned.min()), remark="the fewest of all seeds")


def head_ratios(run: xr.Dataset, name: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Return measured and predicted ratio of head 1 to head 2."""
    measured, predicted = (run[part].sel(head=1) / run[part].sel(head=2) for part in (name, "predicted_share"))
    return measured, predicted


def ratio_error(run: xr.Dataset) -> Estimate:
    """Return the largest relative error of the heads' ratio at t_1."""
    measured, predicted = head_ratios(run, "found_pair")
    if measured.isnull().any():
        return Estimate.unresolved(_NOT_THERE)
    return Estimate(float(abs(measured / predicted - 1).max()), remark=f"{measured.size} runs")


def key_growth_error(run: xr.Dataset) -> Estimate:
    """Return the largest relative error of the ratio in which the keys grow."""
    measured, predicted = head_ratios(smallest_scale(run), "key_growth")
    if measured.isnull().any():
        return Estimate.unresolved(
            "In some seed the first plateau does not end, or does not stand out; change `until`."
        )
    return Estimate(float(abs(measured / predicted - 1).max()), remark=f"{measured.size} seeds")
