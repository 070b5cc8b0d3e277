"""Statistics of directions, margins and losses of the diagonal flow."""

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate

LATE, ASTRONOMICAL = 1e7, 690.7755278982137  # ln t; the second is t = 1e300


def select_group(run: xr.Dataset, name: str) -> xr.Dataset:
    """Return the conditioned or the raw flows."""
    return run.isel(case=[group == name for group in run.group.values.tolist()])


def _values_at(run: xr.Dataset, variable: str, log_time: float, group: str = "conditioned") -> np.ndarray:
    cases = select_group(run, group)
    return np.abs(cases[variable].values[:, int(np.argmin(np.abs(cases.log_time.values - log_time)))])


def largest_at(variable: str, log_time: float, run: xr.Dataset) -> Estimate:
    """Return the largest absolute value of a variable at one time, conditioned data."""
    values = _values_at(run, variable, log_time)
    defect = float(select_group(run, "conditioned").energy_defect.max())
    return Estimate(float(values.max()), remark=f"{len(values)} flows; their energy balances to {defect:.1e}")


def most_evaluations(run: xr.Dataset) -> Estimate:
    """Return the largest number of evaluations of a flow, conditioned data."""
    return Estimate(float(select_group(run, "conditioned").evaluations.max()), remark="to ln t = 1e7, the largest")


def same_support_share(run: xr.Dataset) -> Estimate:
    """Return the share of conditioned flows whose large entries are the support of beta*."""
    cases = select_group(run, "conditioned")
    supports = f"{int(cases.support.min())} to {int(cases.support.max())} entries"
    return Estimate(float(cases.same_support.mean()), remark=f"{supports}, {cases.sizes['case']} flows")


def assumptions_share(run: xr.Dataset) -> Estimate:
    """Return the share of the data that meet Assumptions 2 and 3."""
    return Estimate(float(run.assumptions_hold.mean()), remark=f"{run.sizes['case']} flows, raw data included")


def gaussian_error(run: xr.Dataset) -> Estimate:
    """Return the mean error of the direction at t = 1e300, raw data."""
    return Estimate.mean(_values_at(run, "error", ASTRONOMICAL, "raw"))


def gaussian_progress(run: xr.Dataset) -> Estimate:
    """Return the share of raw flows whose objective excess falls from t = 1e300 to ln t = 1e7."""
    early, late = (_values_at(run, "objective", log_time, "raw") for log_time in (ASTRONOMICAL, LATE))
    return Estimate(float((late < early).mean()), remark=f"{len(late)} flows; the largest {late.max():.2g} at the end")
