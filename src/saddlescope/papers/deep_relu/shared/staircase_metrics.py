"""Metrics of runs with stored staircases and losses, of one network or of several."""

import xarray as xr

from saddlescope.reproduction.metric import Metric


def _final_loss(run: xr.Dataset) -> float:
    """Return the last stored loss of each network, averaged over networks."""
    along = "mark" if "mark" in run.loss.dims else "step"
    place = run.loss.notnull() * (1 + run[along] if along in run.coords else 1)
    return float(run.loss.isel({along: place.argmax(along)}).mean())


STAIRCASE_METRICS = (
    Metric(
        name="stages", quantity="stages found, mean over networks", statistic=lambda run: float(run.stages_found.mean())
    ),
    Metric(
        name="rank",
        quantity="largest rank of a stage, mean over networks",
        statistic=lambda run: float(run.stage_rank.max("stage").mean()),
    ),
    Metric(name="final_loss", quantity="final loss, mean over networks", statistic=_final_loss, scale="log"),
)
"""Metrics that every run with stored staircases and losses has."""

ACCURACY_METRIC = Metric(
    name="accuracy",
    quantity="final accuracy, mean over networks",
    statistic=lambda run: float(run.accuracy.isel(step=-1).mean()),
)
