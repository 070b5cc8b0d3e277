"""Statistics of a run of Figure 2 of the first version."""

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate

FIRST = 5  # stages of the diagonal head on which a claim is made: at its scale later ones overlap


def remaining_loss(run: xr.Dataset) -> Estimate:
    """Return the prediction's last loss over its first."""
    if run.attrs["theory_status"] != "converged":
        return Estimate.unresolved(run.attrs["theory_message"])
    return Estimate(float(run.predicted_loss[-1]) / run.attrs["initial_loss"])


_TOO_SHORT = "Not all predicted directions rose before the simulation ended."


def learning_order(run: xr.Dataset) -> Estimate:
    """Return the fraction of singular values that rise at their predicted place in the order."""
    times = run.found_time.isel(scale=-1).values
    if np.isnan(times).any():
        return Estimate.unresolved(_TOO_SHORT)
    return Estimate(float(np.mean(np.argsort(times) == np.arange(len(times)))))


def stage_time_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of a stage time at the smallest scale, in e-folds per stage."""
    last = run.isel(scale=-1)
    if last.found_time.isnull().any():
        return Estimate.unresolved(_TOO_SHORT)
    log = -float(last.scale) * np.log(10)
    unit = log / (last.predicted_time * last.stage)  # relative error in e-folds out of log(1/alpha), a stage
    return Estimate(
        float((abs(last.found_time - last.predicted_time) * unit).max()), float((last.found_error * unit).max())
    )


def constant_change(run: xr.Dataset) -> Estimate:
    """Return the largest change of C_k = (t_k - T_k) log(1/alpha) between the two smallest scales, where separated."""
    if run.sizes["scale"] < 2:
        return Estimate.unresolved("One scale only: there is no sequence that could converge.")
    two = run.isel(scale=slice(-2, None))
    if two.found_time.isnull().any():
        return Estimate.unresolved(_TOO_SHORT)
    log = -two.scale * np.log(10)
    change = abs(((two.found_time - two.predicted_time) * log).diff("scale")).isel(scale=0).values
    error = (two.found_error * log).sum("scale").values
    after = _resolved(two.isel(scale=0))
    separated = after & np.append(True, after[:-1])
    if not separated.any():
        return Estimate.unresolved("No stage is separated from its neighbours at these scales.")
    remark = f"{separated.sum()} of {len(separated)} stages are separated; over all of them it is {change.max():.2g}"
    return Estimate(float(change[separated].max()), float(error[separated].max()), remark)


def plateau_ranks(run: xr.Dataset) -> Estimate:
    """Return the share of resolved plateaus on which both products have the predicted numerical ranks."""
    last = run.isel(scale=-1)
    resolved = _resolved(last)
    largest = last.predicted_values.max(("stage", "index"))
    ranks = (last.plateau_values > run.attrs["level"] * largest).sum("index")
    right = (ranks == last.predicted_ranks).all("product").values
    return Estimate(float(np.mean(right[resolved])), remark=f"{resolved.sum()} of {len(resolved)} plateaus resolved")


def _resolved(one: xr.Dataset) -> np.ndarray:
    """Return true for the plateaus that one scale resolves, by the theory alone.

    In the middle of one that lasts n e-folds of its fastest direction, what ends it is down to e^-n. It takes
    n = -log(level) for that to count as inactive; four times as much leaves room for what came before to settle.
    """
    efolds = one.efolds_per_log * -float(one.scale) * np.log(10)
    resolved = (efolds >= -4 * np.log(one.attrs["level"])).values
    resolved[-1] = True  # nothing ends the last one
    return resolved


def average_overlap(run: xr.Dataset) -> Estimate:
    """Return the number of singular values that rise at a time, at the smallest scale."""
    return Estimate(float(run.in_transit.isel(scale=-1)))


def blurred_overlap(run: xr.Dataset) -> Estimate:
    """Return the number of singular values that rise at a time, with a teacher of full rank."""
    return Estimate(float(run.blurred_in_transit))


def conservation_drift(run: xr.Dataset) -> Estimate:
    """Return the largest drift of the conserved matrices in units of alpha^2."""
    return Estimate(float(run.conserved.max()))


def diagonal_time_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of a diagonal stage time, in e-folds per stage."""
    first = run.isel(diagonal_stage=slice(FIRST))
    if first.diagonal_found_time.isnull().any():
        return Estimate.unresolved(_TOO_SHORT)
    log = -run.attrs["log10_diagonal"] * np.log(10)
    error = abs(first.diagonal_found_time / first.diagonal_predicted_time - 1) * log / first.diagonal_stage
    return Estimate(float(error.max()))
