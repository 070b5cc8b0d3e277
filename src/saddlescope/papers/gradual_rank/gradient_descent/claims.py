"""The claims of the entry on gradient descent, with their bounds and sources."""

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.gradient_descent.returning_coordinate import SADDLE, TEACHER, end_from
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.metric import Metric

_TOO_SHORT = "Not all of the judged stages happened in every run; lower the learning rates."


def relative_delays(run: xr.Dataset) -> xr.DataArray:
    """Return descent's stage times minus the flow's, relative to T_k, by scale, learning rate and stage."""
    return (run.descent_time - run.flow_time) / run.predicted_time


def relative_spread(run: xr.Dataset) -> xr.DataArray:
    """Return the standard deviation over runs of stage times, relative to T_k, by batch size and stage."""
    return run.sgd_time.std("run", ddof=1, skipna=False) / run.predicted_time


# The bounds follow from the first order in eta that the heading derives; the next order and the O(1) of time in
# transitions, out of log(1/alpha) = 18 at alpha = 1e-8, set their widths.
claims = Claims()


@claims.add(
    "descent-power",
    "Full-batch descent is late by a fraction proportional to the learning rate",
    quantity="power at the smallest scale, of the stage where it is furthest from 1",
    kind="printed",
    source="First order in eta; 10 % for the next",
    low=0.9,
    high=1.1,
)
def delay_power(run: xr.Dataset) -> Estimate:
    """Return the power of the learning rate in the delays, of the stage where it is furthest from 1."""
    errors = abs(relative_delays(run)).isel(scale=-1)
    if errors.isnull().any():
        return Estimate.unresolved(_TOO_SHORT)
    slopes = np.polyfit(np.log(run.rate.values), np.log(errors.transpose("rate", "stage").values), 1)[0]
    worst = slopes[np.argmax(np.abs(slopes - 1))]
    return Estimate(float(worst), remark=f"{len(slopes)} stages")


@claims.add(
    "descent-delay",
    "The first stage by eta / (2 T_1)",
    quantity="ratio at the smallest learning rate and scale",
    kind="printed",
    source="log(1 + eta g) for eta g on the first plateau; 15 % for the transition",
    low=0.85,
    high=1.15,
)
def first_delay_ratio(run: xr.Dataset) -> Estimate:
    """Return the first stage's delay over eta / (2 T_1), at the smallest learning rate and scale."""
    error = relative_delays(run).isel(scale=-1, rate=-1, stage=0)
    if error.isnull():
        return Estimate.unresolved(_TOO_SHORT)
    return Estimate(float(error / (run.rate[-1] / (2 * run.predicted_time[0]))))


@claims.add(
    "sgd-order",
    "SGD with the largest batch learns the coordinates in the flow's order",
    quantity="fraction of runs",
    kind="printed",
    source="Figure 2, which the paper made with SGD",
    low=1.0,
)
def same_order(run: xr.Dataset) -> Estimate:
    """Return the share of SGD's runs in the flow's order; NaN, not learned yet, comes last."""
    flow = np.argsort(run.flow_time.isel(scale=-1).values)
    orders = np.argsort(run.sgd_time.isel(batch=-1).transpose("run", "stage").values, axis=1)
    learned = run.sgd_time.isel(batch=-1).notnull().all("stage").values
    return Estimate(float(((orders == flow).all(1) & learned).mean()))


@claims.add(
    "sgd-spread",
    "The spread of SGD's first stage time over runs falls as 1/B",
    quantity="power",
    kind="printed",
    source="Only an unfinished epoch's noise is left; -1/2 with independent draws",
    low=-1.3,
    high=-0.7,
)
def spread_power(run: xr.Dataset) -> Estimate:
    """Return the power of the batch size in the spread of SGD's first stage time."""
    spread = relative_spread(run).isel(stage=0).values
    if not np.isfinite(spread).all():
        return Estimate.unresolved(_TOO_SHORT)
    x = np.log(run.batch.values)
    # The logarithm of a standard deviation over n runs is known to 1 / sqrt(2 (n - 1)).
    doubt = 2 / np.sqrt(2 * (run.sizes["run"] - 1)) / np.sqrt(np.sum((x - x.mean()) ** 2))
    return Estimate(float(np.polyfit(x, np.log(spread), 1)[0]), float(doubt))


claims.add(
    "descent-right",
    "At alpha = 0.01 descent brings back the coordinate that left",
    quantity="distance of its end from the teacher",
    kind="printed",
    source="Algorithm 1; the teacher is the one minimum",
    high=1e-3,
)(end_from(TEACHER, "returning_descent", -2.0))

claims.add(
    "descent-wrong",
    "At alpha = 1e-16 it does not, and ends at a saddle",
    quantity="distance of its end from that saddle",
    kind="printed",
    source="u^2 - v^2 = 1e-32 beside roundings of 1e-16",
    high=1e-3,
)(end_from(SADDLE, "returning_descent", -16.0))

claims.add(
    "flow-right",
    "The flow of this package brings it back at alpha = 1e-16",
    quantity="distance of its end from the teacher",
    kind="printed",
    source="Algorithm 1; the teacher is the one minimum",
    high=1e-3,
)(end_from(TEACHER, "returning_flow", -16.0))

metrics = (
    Metric(
        name="stages",
        quantity="stages of the flow at the smallest α",
        statistic=lambda run: float((run.flow_time.isel(scale=-1) < float("inf")).sum()),
    ),
    Metric(
        name="time_error",
        quantity="descent's stage times off the flow's, at the smallest rate and α, largest relative",
        statistic=lambda run: float(
            abs(run.descent_time.isel(scale=-1, rate=-1) / run.flow_time.isel(scale=-1) - 1).max()
        ),
        scale="log",
    ),
    Metric(
        name="noise",
        quantity="spread of SGD's stage times at the smallest batch, largest relative",
        statistic=lambda run: float((run.sgd_time.std("run") / run.sgd_time.mean("run")).isel(batch=0).max()),
        scale="log",
    ),
)
