"""The claims of Figure 2, with their bounds and sources."""

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.shared.stage_times import RESOLVED, STAGES
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.metric import Metric

FIRST = 10  # stages on which the claims are made: later ones are closer together than the paper's scales can separate

_TOO_SHORT = "Not all of the first stages happened before the simulation ended; raise `until`."


def _ratio_of_errors(errors: xr.DataArray) -> Estimate:
    if errors.sizes["scale"] < 2:
        return Estimate.unresolved("One scale only: there is no sequence that could converge.")
    values = errors.values
    return Estimate(float((values[1:] / values[:-1]).max()))


# The bounds. Theorem 4.1 promises convergence as alpha -> 0 and no rate; its proof moves each stage by O(1) e-folds of
# unrescaled time, so by O(1/log(1/alpha)) in rescaled time: about 1 % at alpha = 1e-32, where log(1/alpha) = 74.
claims = Claims()


@claims.add(
    "end",
    "Algorithm 1 ends at the teacher",
    quantity="largest error of its last beta",
    kind="printed",
    source="Theorem 4.1; the teacher is the one global minimum",
    high=1e-12,
)
def distance_to_teacher(run: xr.Dataset) -> Estimate:
    """Return the largest difference between the teacher and Algorithm 1's last beta."""
    if run.attrs["theory_status"] != "converged":
        return Estimate.unresolved(run.attrs["theory_status"])
    last = run.predicted_beta.isel(stage=-1)
    return Estimate(float(abs(last - run.teacher).max()))


@claims.add(
    "order",
    "At the smallest scale the first ten coordinates are learned in Algorithm 1's order",
    quantity="fraction that is",
    kind="printed",
    source="Theorem 4.1",
    low=1.0,
)
def learning_order(run: xr.Dataset) -> Estimate:
    """Return the fraction of the first stages before the first one out of Algorithm 1's order."""
    times = run.found_time.isel(scale=-1).values
    if np.isnan(times[:FIRST]).any():
        return Estimate.unresolved(_TOO_SHORT)
    found = np.argsort(times)[:FIRST]  # NaN, not learned yet, comes last
    agree = found == np.arange(len(found))
    return Estimate(float(len(agree) if agree.all() else agree.argmin()) / len(agree))


@claims.add(
    "times",
    "At the smallest scale the first ten stage times are Algorithm 1's",
    quantity="largest relative error",
    kind="printed",
    source="Theorem 4.1; 1 % for O(1) e-folds out of log(1/alpha) = 74",
    high=0.01,
)
def stage_time_error(run: xr.Dataset) -> Estimate:
    """Return the largest relative error of the first stage times at the smallest scale."""
    error = (abs(run.found_time / run.predicted_time - 1)).isel(scale=-1, stage=slice(FIRST))
    if error.isnull().any():
        return Estimate.unresolved(_TOO_SHORT)
    return Estimate(float(error.max()), float(run.accuracy.isel(scale=-1)))


@claims.add(
    "support",
    "On each of the first ten plateaus that the smallest scale resolves, exactly the predicted coordinates are learned",
    quantity="wrong ones",
    kind="printed",
    source="Theorem 4.1",
    high=0.0,
)
def wrong_coordinates(run: xr.Dataset) -> Estimate:
    """Return the most coordinates learned or not against the prediction on a resolved plateau."""
    first = run.isel(scale=-1, stage=slice(FIRST))
    seen = (first.resolved & first.plateau_loss.notnull()).values
    if not seen.any():
        return Estimate.unresolved("No plateau lasts long enough at this scale; take a smaller one.")
    wrong = (abs(first.plateau_beta) > run.attrs["level"]) != (first.predicted_beta != 0)
    return Estimate(float(wrong.sum("coordinate").values[seen].max()), remark=f"{seen.sum()} plateaus resolved")


@claims.add(
    "loss-converges",
    "The loss curves approach the staircase as alpha falls",
    quantity="largest ratio of distances",
    kind="printed",
    source="Figure 2a, Theorem 4.1",
    high=1.0,
)
def loss_convergence(run: xr.Dataset) -> Estimate:
    """Return the largest ratio of the loss curves' distances to the staircase, each scale to the one before."""
    return _ratio_of_errors(abs(run.loss - run.predicted_loss_curve).integrate("time"))


@claims.add(
    "weights-converge",
    "The weights on the first ten plateaus approach theta^k as alpha falls",
    quantity="largest ratio of distances",
    kind="printed",
    source="Figure 2b, Theorem 4.1",
    high=1.0,
)
def weight_convergence(run: xr.Dataset) -> Estimate:
    """Return the largest ratio of the weights' distances to theta^k, each scale to the one before."""
    error = abs(run.plateau_beta - run.predicted_beta).max("coordinate").isel(stage=slice(FIRST))
    return _ratio_of_errors(error.median("stage"))


@claims.add(
    "one-percent",
    "Some stagewise learning is already clear with alpha = 0.01",
    quantity="plateaus of the loss after the first",
    kind="printed",
    source="Figure 2, caption; a plateau falls at most half as fast as the drops beside it",
    low=1.0,
)
def plateaus_at_one_percent(run: xr.Dataset) -> Estimate:
    """Count the plateaus of the loss at alpha = 0.01 after the first."""
    from scipy.signal import find_peaks

    if -2 not in run.scale.values:
        return Estimate.unresolved("alpha = 0.01 was not among the scales.")
    loss = run.loss.sel(scale=-2).values
    rate = np.maximum(-np.diff(loss), 1e-12 * loss[0]) / np.diff(run.time.values)
    plateaus, _ = find_peaks(-np.log(rate), prominence=np.log(2))  # slower by 2 than the drops on both sides
    return Estimate(float(len(plateaus)))


metrics = (
    STAGES,
    RESOLVED,
    Metric(
        name="final_loss",
        quantity="final loss at the smallest α",
        statistic=lambda run: float(run.loss.isel(scale=-1, time=-1)),
        scale="log",
    ),
)
