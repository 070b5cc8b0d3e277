"""Statistics of escapes from the origin: growth laws, alignment and delays."""

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate

ALIGNED = 0.05  # |u - u*| at which a direction counts as aligned with its limit u*


def largest(run: xr.Dataset, *, name: str) -> Estimate:
    """Return the largest value of a variable over depths."""
    values = run[name]
    return Estimate(float(values.max()), remark=f"worst at depth {int(run.depth.values[int(values.values.argmax())])}")


def escape_time_error(run: xr.Dataset) -> Estimate:
    """Return the largest relative error of the corrected escape time."""
    return Estimate(float(abs(run.corrected_time / run.measured_time - 1).max()))


def printed_escape_time_ratio(run: xr.Dataset) -> Estimate:
    """Return the printed escape time over the measured one where that ratio is farthest from 1."""
    ratio = run.printed_time / run.measured_time
    k = int(abs(ratio - 1).values.argmax())
    remark = ", ".join(f"{float(r):.3g} at L = {int(d)}" for d, r in zip(run.depth, ratio, strict=True))
    return Estimate(float(ratio[k]), remark=remark)


def ratio(run: xr.Dataset, *, name: str, to: str) -> Estimate:
    """Return the ratio of two variables of the flow from random weights."""
    return Estimate(float(run[name] / run[to]), remark=f"depth {int(run.attrs['path_depth'])}, random weights")


def alignment_spread(run: xr.Dataset) -> Estimate:
    """Return the spread of the times of alignment over the scales, in intervals between records."""
    if bool(run.aligned_time.isnull().any()):
        return Estimate.unresolved("At one of the scales the norm was reached before the direction had aligned.")
    spread = float(run.aligned_time.max() - run.aligned_time.min()) / run.attrs["interval"]
    return Estimate(spread, remark=f"at s = {float(run.aligned_time.min()):.4g}")


def delay_error(run: xr.Dataset) -> Estimate:
    """Return the largest relative error of log(ratio of scales) / rate as the delay between two escapes."""
    delay = run.radius_time.values[1:] - run.radius_time.values[0]
    predicted = np.log(10) * (run.scale.values[0] - run.scale.values[1:]) / run.path_rate.values[-1]
    return Estimate(float(np.max(np.abs(delay / predicted - 1))), remark=f"delays up to s = {delay[-1]:.4g}")


def radius_time_spread(run: xr.Dataset) -> Estimate:
    """Return the spread over the scales of the times at which a norm is reached, in intervals between records."""
    return Estimate(float(run.radius_time.max() - run.radius_time.min()) / run.attrs["interval"])


def escape_step_spread(run: xr.Dataset) -> Estimate:
    """Return the spread of the steps of escape over the deviations, in intervals between records."""
    if bool(run.escape_step.isnull().any()):
        return Estimate.unresolved("From one of the deviations the loss did not fall; take more steps.")
    spread = float((run.escape_step.max() - run.escape_step.min()) / run.escape_interval.max())
    return Estimate(spread, remark=", ".join(f"step {float(step):.0f}" for step in run.escape_step))
