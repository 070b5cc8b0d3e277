"""Statistics of the limits of diagonal flows from several initial scales."""

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate

ASTRONOMICAL = 690.7755278982137  # ln t of t = 1e300


LATE = 1e6  # ln t


_MODERATE = 0.1  # scales from here on are compared with each other on conditioned data


def _values_at(run: xr.Dataset, name: str, log_time: float = LATE) -> np.ndarray:
    return run[name].isel(time=int(np.argmin(np.abs(run.log_time.values - log_time)))).values


def largest(name: str, run: xr.Dataset) -> Estimate:
    """Return the largest value of a variable at the late time."""
    values = abs(_values_at(run, name))
    return Estimate(float(values.max()), remark=f"{values.size} values, at ln t = {LATE:g}")


def distance_between_scales(run: xr.Dataset) -> Estimate:
    """Return the largest distance of directions from two moderate scales, on conditioned data."""
    moderate = run.scale.values >= _MODERATE
    values = _values_at(run, "conditioned_apart")[:, moderate][:, :, moderate]
    remark = ", ".join(f"{scale:g}" for scale in run.scale.values[moderate])
    return Estimate(float(values.max()), remark=f"omega_0 = {remark}; {len(values)} data sets")


def smallest_spread(run: xr.Dataset) -> Estimate:
    """Return the smallest spread of the directions of one degenerate data set."""
    values = _values_at(run, "spread")
    return Estimate(float(values.min()), remark=f"the least of {values.size} data sets")


def gain_of_small_scale(run: xr.Dataset) -> Estimate:
    """Return the mean log10 of the error from the smallest scale over that from 0.3, raw data."""
    errors = _values_at(run, "raw_error", ASTRONOMICAL)
    first, last = int(np.argmin(np.abs(run.scale.values - 0.3))), len(run.scale) - 1
    remark = f"omega_0 = {run.scale.values[last]:g} over {run.scale.values[first]:g}"
    return Estimate.mean(np.log10(errors[:, last] / errors[:, first]), remark)
