"""Statistics of diverging and of finite flows of diagonal weights."""

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate

SETTLED = 2.0  # log10 t until when a flow that stays finite is followed; its minimum is then found by Newton's method


RANDOM_WEIGHTS = 100  # random weights of each instance at which the inequality of the proof is tried


def select_instances(run: xr.Dataset, diagonal: bool) -> xr.Dataset:
    """Return the instances that diagonal weights separate, or the others."""
    return run.isel(instance=[("no diagonal" not in kind) == diagonal for kind in run.kind.values.tolist()])


def _values_at(values: xr.DataArray, log10_time: float) -> np.ndarray:
    return values.values[:, values.log10_time.values.tolist().index(log10_time)]


def finite_flows(run: xr.Dataset) -> Estimate:
    """Count the flows on inseparable instances that end at a strict minimum."""
    chosen = select_instances(run, diagonal=False)
    finite = int(chosen.limit.notnull().sum())
    open_ends = int((chosen.limit.isnull() & chosen.size.isel(time=-1).isnull()).sum())
    return Estimate(
        float(finite),
        remark=f"{finite} of {chosen.sizes['instance']} end at a strict minimum; {open_ends} were not decided",
    )


def flows_that_do_not_double(run: xr.Dataset) -> Estimate:
    """Count the flows whose |beta| does not double from t = 1e30 to 1e300."""
    chosen = select_instances(run, diagonal=True)
    late, later = _values_at(chosen["size"], 30.0), _values_at(chosen["size"], 300.0)
    if not all(value == value for value in later):
        return Estimate.unresolved("A flow did not come to t = 1e300.")
    lost = int((chosen.log_excess > -10).sum())
    return Estimate(
        float(sum(later < 2 * late)),
        remark=f"of {len(late)}, {lost} of which have lost samples; least ratio {min(later / late):.3g}",
    )


def slowness_error(run: xr.Dataset) -> Estimate:
    """Return the largest |2 t ln t |grad L| - 1| at t = 1e300."""
    values = _values_at(select_instances(run, diagonal=True).slowness, 300.0)
    if not all(value == value for value in values):
        return Estimate.unresolved("A flow did not come to t = 1e300.")
    return Estimate(float(max(abs(values - 1))), remark=f"2 t ln t |grad L| is {min(values):.4g} to {max(values):.4g}")


def gradients_that_do_not_fall(run: xr.Dataset) -> Estimate:
    """Count the flows whose t |grad L| does not fall from t = 1e30 to 1e300."""
    slowness = select_instances(run, diagonal=True).slowness
    late, later = _values_at(slowness, 30.0) / 30, _values_at(slowness, 300.0) / 300
    if not all(value == value for value in later):
        return Estimate.unresolved("A flow did not come to t = 1e300.")
    return Estimate(float(sum(later >= late)), remark=f"of {len(late)}; largest ratio {max(later / late):.3g}")


def violations(run: xr.Dataset) -> Estimate:
    """Count the random weights that violate the inequality of the proof."""
    chosen = select_instances(run, diagonal=True)
    return Estimate(
        float(chosen.violations.sum()), remark=f"of {RANDOM_WEIGHTS * chosen.sizes['instance']} weights, up to 1e6"
    )
