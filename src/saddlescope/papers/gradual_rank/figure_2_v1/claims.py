"""The claims of Figure 2 of the first version, with their bounds and sources."""

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.shared.stage_times import STAGES
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.metric import Metric

FIRST = 5  # stages of the diagonal head on which a claim is made: at its scale later ones overlap

_TOO_SHORT = "Not all predicted directions rose before the simulation ended."


def _resolved(one: xr.Dataset) -> np.ndarray:
    """Return true for the plateaus that one scale resolves, by the theory alone.

    In the middle of one that lasts n e-folds of its fastest direction, what ends it is down to e^-n. It takes
    n = -log(level) for that to count as inactive; four times as much leaves room for what came before to settle.
    """
    efolds = one.efolds_per_log * -float(one.scale) * np.log(10)
    resolved = (efolds >= -4 * np.log(one.attrs["level"])).values
    resolved[-1] = True  # nothing ends the last one
    return resolved


_ALLOWED = 3.0

# The bounds. A direction arrives after log(1/alpha) e-folds of growth, up to what the limit forgets: overlaps of
# Gaussian starts with singular directions, and one transition per stage, each O(1) e-folds. Three a stage are allowed.
claims = Claims()


@claims.add(
    "end",
    "The prediction for full weights ends at the teacher",
    quantity="its last loss, relative to the first",
    kind="printed",
    source="The teacher is the one global minimum; 1e-12 for sums of squares of rounding errors",
    high=1e-12,
)
def remaining_loss(run: xr.Dataset) -> Estimate:
    """Return the prediction's last loss over its first."""
    if run.attrs["theory_status"] != "converged":
        return Estimate.unresolved(run.attrs["theory_message"])
    return Estimate(float(run.predicted_loss[-1]) / run.attrs["initial_loss"])


@claims.add(
    "order",
    "Singular values of full weights rise in the predicted order at the smallest scale",
    quantity="fraction that does",
    kind="printed",
    source="docs: full weights; Figure 2 (d), (e) of version 1: learned incrementally",
    low=1.0,
)
def learning_order(run: xr.Dataset) -> Estimate:
    """Return the fraction of singular values that rise at their predicted place in the order."""
    times = run.found_time.isel(scale=-1).values
    if np.isnan(times).any():
        return Estimate.unresolved(_TOO_SHORT)
    return Estimate(float(np.mean(np.argsort(times) == np.arange(len(times)))))


@claims.add(
    "times",
    "They rise at the predicted times",
    quantity="largest relative error at the smallest scale, times log(1/alpha), divided by the number of the stage",
    kind="printed",
    source="docs: full weights; O(1) e-folds out of log(1/alpha) are forgotten by start and transitions, 3 a stage",
    high=_ALLOWED,
    unit="e-folds",
)
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


@claims.add(
    "law",
    "Times of separated stages converge as C_k / log(1/alpha)",
    quantity="largest change of C_k between the two smallest scales",
    kind="printed",
    source="docs: full weights; C_k is O(1), so a law of that form changes it by much less than 1",
    high=0.5,
    unit="e-folds / σ",
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


@claims.add(
    "ranks",
    "In the middle of each plateau that the smallest scale resolves, both products have the predicted numerical ranks",
    quantity="fraction that does",
    kind="printed",
    source="Figure 2 (d), (e) of version 1: progressively increasing rank",
    low=1.0,
)
def plateau_ranks(run: xr.Dataset) -> Estimate:
    """Return the share of resolved plateaus on which both products have the predicted numerical ranks."""
    last = run.isel(scale=-1)
    resolved = _resolved(last)
    largest = last.predicted_values.max(("stage", "index"))
    ranks = (last.plateau_values > run.attrs["level"] * largest).sum("index")
    right = (ranks == last.predicted_ranks).all("product").values
    return Estimate(float(np.mean(right[resolved])), remark=f"{resolved.sum()} of {len(resolved)} plateaus resolved")


@claims.add(
    "one-by-one",
    "At the smallest scale singular values rise one at a time",
    quantity="how many rise at once, on average",
    kind="printed",
    source="Figure 2 (d), (e) of version 1; 1 is one at a time, half of all would overlap pairwise at 1.5",
    high=1.5,
)
def average_overlap(run: xr.Dataset) -> Estimate:
    """Return the number of singular values that rise at a time, at the smallest scale."""
    return Estimate(float(run.in_transit.isel(scale=-1)))


@claims.add(
    "blurred",
    "At a large scale with a teacher of full rank they do not",
    quantity="how many rise at once, on average",
    kind="printed",
    source="Overlap of stages at O(1/log(1/alpha)); 1.5 as in one-by-one",
    low=1.5,
)
def blurred_overlap(run: xr.Dataset) -> Estimate:
    """Return the number of singular values that rise at a time, with a teacher of full rank."""
    return Estimate(float(run.blurred_in_transit))


@claims.add(
    "conserved",
    "W_K^T W_K - W_Q^T W_Q and W_V^T W_V - W_O^T W_O are conserved",
    quantity="largest drift in units of alpha^2",
    kind="printed",
    source="Lemma 4.2 for matrices; equation 5",
    high=1e-10,
)
def conservation_drift(run: xr.Dataset) -> Estimate:
    """Return the largest drift of the conserved matrices in units of alpha^2."""
    return Estimate(float(run.conserved.max()))


@claims.add(
    "diagonal",
    "Diagonal weights are learned at Algorithm 1's times",
    quantity=f"largest error of the first {FIRST}, relative, times log(1/alpha), divided by the number of the stage",
    kind="printed",
    source="Theorem 4.5 of version 1; 3 e-folds a stage, as for full weights",
    high=_ALLOWED,
    unit="e-folds",
)
def diagonal_time_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of a diagonal stage time, in e-folds per stage."""
    first = run.isel(diagonal_stage=slice(FIRST))
    if first.diagonal_found_time.isnull().any():
        return Estimate.unresolved(_TOO_SHORT)
    log = -run.attrs["log10_diagonal"] * np.log(10)
    error = abs(first.diagonal_found_time / first.diagonal_predicted_time - 1) * log / first.diagonal_stage
    return Estimate(float(error.max()))


metrics = (
    STAGES,
    Metric(
        name="in_transit",
        quantity="singular values that rise at a time, at the smallest α",
        statistic=lambda run: float(run.in_transit.isel(scale=-1)),
    ),
    Metric(
        name="final_loss",
        quantity="final loss at the smallest α",
        statistic=lambda run: float(run.loss.isel(scale=-1, time=-1)),
        scale="log",
    ),
)
