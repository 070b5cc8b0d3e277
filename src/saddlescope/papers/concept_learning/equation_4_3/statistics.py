"""Statistics behind the claims of the entry `equation_4_3`."""

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate


def largest_value(run: xr.Dataset, *, name: str) -> Estimate:
    """Return the largest value of a stored variable."""
    return Estimate(float(run[name].max()), remark=f"{run[name].size} cases" if run[name].size > 1 else "")


def printed_error(run: xr.Dataset) -> Estimate:
    """Return the largest difference of dW/dt from the printed equation."""
    return Estimate(float(run.printed_error.max()), remark=f"from {float(run.printed_error.min()):.15g} on")


def log_det_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of the law of log det W."""
    inner, gauss = float(run.drift.max()), float(run.log_det_error.max())
    return Estimate(max(inner, gauss), remark=f"by the flow's own series {inner:.2g}, by Gauss's formula {gauss:.2g}")


def stage_time_error(run: xr.Dataset, *, predicted: str, scale: int) -> Estimate:
    """Return the median over starts of the largest error of a stage time."""
    one = run.isel(scale=scale)
    errors = abs(one.found_time - one[predicted]).max("concept").values
    remark = f"scale {float(one.scale):g}; mean {errors.mean():.3g}, largest {errors.max():.3g}"
    return Estimate(float(np.median(errors)), remark=remark)


def error_ratio(run: xr.Dataset) -> Estimate:
    """Return the median error without noise at the smallest scale over that at the scale before."""
    late = [stage_time_error(run, predicted="bare_time", scale=n).value for n in (-2, -1)]
    return Estimate(late[1] / late[0], remark=f"{late[0]:.4f} and {late[1]:.4f}")


def noise_share(run: xr.Dataset) -> Estimate:
    """Return the largest N_kk / G_kk of the weakest concept at the smallest scale, median over starts."""
    weak = int(np.argmin(run.strength.values))
    shares = run.noise_share.isel(scale=-1, concept=weak).values
    return Estimate(float(np.median(shares)), remark=f"smallest {shares.min():.3f}, largest {shares.max():.3f}")
