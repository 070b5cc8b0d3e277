"""Statistics behind the claims of the entry `figure_4`."""

from collections.abc import Callable

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate

Errors = Callable[[xr.Dataset, int], np.ndarray]
TURN = 0.01  # error of w_kk where a minor entry turns


def value(run: xr.Dataset, *, name: str) -> Estimate:
    """Return a stored number."""
    return Estimate(float(run[name]))


def growth_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of initial growth at the smallest scale."""
    errors = run.growth_error.isel(scale=-1)
    return Estimate(float(errors.max()), remark=f"{errors.size} entries, scale {float(run.scale[-1]):g}")


def slower_entries(run: xr.Dataset) -> Estimate:
    """Count entries that do not grow faster than the one below, or to the right, by decreasing strength."""
    rates = run.rate.values
    wrong = sum(int(np.sum(np.diff(rates, axis=axis) >= 0)) for axis in (-2, -1))
    return Estimate(float(wrong), remark=f"of {2 * rates[..., 1:].size} pairs of neighbours")


def suppressor_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of w_kk at the peak of a minor entry, smallest scale."""
    off = abs(run.suppressor - run.suppressor_predicted).isel(scale=-1)
    remark = ", ".join(f"{value:.3f}" for value in run.suppressor_predicted.values)
    share = float((off < TURN).mean())
    return Estimate(float(off.max()), remark=f"{share:.3f} within {TURN}; w_kk at the peak, by the law: {remark}")


def out_of_order(run: xr.Dataset) -> Estimate:
    """Count minor entries that peak before a stronger concept's group has, or that are never suppressed."""
    when = run.major_time.values[..., run.strong.values]
    tops = run.peak_time.values
    earlier = when[..., :, None] < when[..., None, :]
    wrong = int(np.sum(earlier & (tops[..., :, None] >= tops[..., None, :])))
    never = int(np.sum(np.isinf(run.suppressed.values)))
    return Estimate(float(wrong + never), remark=f"{wrong} out of order, {never} never suppressed, of {tops.size}")


def stage_errors(run: xr.Dataset, scale: int) -> np.ndarray:
    """Return the largest error of a stage time from each start."""
    return abs(run.major_time - run.major_predicted).isel(scale=scale).max("concept").values


def peak_errors(run: xr.Dataset, scale: int) -> np.ndarray:
    """Return the relative error of every minor entry's height from every start."""
    one = run.isel(scale=scale)
    return abs(one.peak_height / one.height_predicted - 1).values


def largest_error(run: xr.Dataset, *, errors: Errors, scale: int) -> Estimate:
    """Return the largest of some errors at one scale."""
    found = errors(run, scale)
    return Estimate(float(found.max()), remark=f"{found.size} in all; mean {found.mean():.2g}")


def share_within(run: xr.Dataset, *, errors: Errors, scale: int, bar: float) -> Estimate:
    """Return the share of errors within the bar."""
    found = errors(run, scale)
    return Estimate.share(float((found <= bar).sum()), found.size)
