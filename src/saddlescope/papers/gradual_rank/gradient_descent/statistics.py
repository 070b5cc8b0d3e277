"""Statistics of a run of the entry on gradient descent."""

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate

_TOO_SHORT = "Not all of the judged stages happened in every run; lower the learning rates."


def relative_delays(run: xr.Dataset) -> xr.DataArray:
    """Return descent's stage times minus the flow's, relative to T_k, by scale, learning rate and stage."""
    return (run.descent_time - run.flow_time) / run.predicted_time


def delay_power(run: xr.Dataset) -> Estimate:
    """Return the power of the learning rate in the delays, of the stage where it is furthest from 1."""
    errors = abs(relative_delays(run)).isel(scale=-1)
    if errors.isnull().any():
        return Estimate.unresolved(_TOO_SHORT)
    slopes = np.polyfit(np.log(run.rate.values), np.log(errors.transpose("rate", "stage").values), 1)[0]
    worst = slopes[np.argmax(np.abs(slopes - 1))]
    return Estimate(float(worst), remark=f"{len(slopes)} stages")


def first_delay_ratio(run: xr.Dataset) -> Estimate:
    """Return the first stage's delay over eta / (2 T_1), at the smallest learning rate and scale."""
    error = relative_delays(run).isel(scale=-1, rate=-1, stage=0)
    if error.isnull():
        return Estimate.unresolved(_TOO_SHORT)
    return Estimate(float(error / (run.rate[-1] / (2 * run.predicted_time[0]))))


def same_order(run: xr.Dataset) -> Estimate:
    """Return the share of SGD's runs in the flow's order; NaN, not learned yet, comes last."""
    flow = np.argsort(run.flow_time.isel(scale=-1).values)
    orders = np.argsort(run.sgd_time.isel(batch=-1).transpose("run", "stage").values, axis=1)
    learned = run.sgd_time.isel(batch=-1).notnull().all("stage").values
    return Estimate(float(((orders == flow).all(1) & learned).mean()))


def relative_spread(run: xr.Dataset) -> xr.DataArray:
    """Return the standard deviation over runs of stage times, relative to T_k, by batch size and stage."""
    return run.sgd_time.std("run", ddof=1, skipna=False) / run.predicted_time


def spread_power(run: xr.Dataset) -> Estimate:
    """Return the power of the batch size in the spread of SGD's first stage time."""
    spread = relative_spread(run).isel(stage=0).values
    if not np.isfinite(spread).all():
        return Estimate.unresolved(_TOO_SHORT)
    x = np.log(run.batch.values)
    # The logarithm of a standard deviation over n runs is known to 1 / sqrt(2 (n - 1)).
    doubt = 2 / np.sqrt(2 * (run.sizes["run"] - 1)) / np.sqrt(np.sum((x - x.mean()) ** 2))
    return Estimate(float(np.polyfit(x, np.log(spread), 1)[0]), float(doubt))
