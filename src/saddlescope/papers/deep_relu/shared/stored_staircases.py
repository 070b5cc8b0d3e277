"""Staircases as labelled arrays, for storage; what the entries on stages share."""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.reproduction.metric import Metric

if TYPE_CHECKING:
    from saddlescope.measure import Staircase


def stored_staircase(staircase: "Staircase", *, layers: int, most: int) -> xr.Dataset:
    """The first stages of a staircase over `stage`; NaN, and rank -1, where it has fewer than `most`.

    Args:
        staircase: with the ranks of the layers.
        layers: how many there are.
        most: length of the axis `stage`.
    """
    start, level = np.full(most, np.nan), np.full(most, np.nan)
    rank, layer_rank = np.full(most, -1), np.full((most, layers), -1)
    for k, stage in enumerate(staircase.stages[:most]):
        start[k], level[k], rank[k], layer_rank[k] = stage.start, stage.loss, stage.rank, stage.layer_ranks
    return xr.Dataset(
        {
            "stage_start": ("stage", start),
            "stage_loss": ("stage", level),
            "stage_rank": ("stage", rank),
            "stage_layer_rank": (("stage", "layer"), layer_rank),
            "stages_found": ((), len(staircase)),
        },
        coords={"stage": np.arange(most), "layer": 1 + np.arange(layers)},
    )


def together(networks: list[xr.Dataset]) -> xr.Dataset:
    """All networks over `network`; layers, stages and the like that one does not have are NaN, its ranks there -1."""
    ranks = {"stage_rank": -1, "stage_layer_rank": -1}
    return xr.concat(networks, dim="network", data_vars="all", join="outer", combine_attrs="drop", fill_value=ranks)


def _final_loss(run: xr.Dataset) -> float:
    """The last loss that is stored of each network, their mean."""
    along = "mark" if "mark" in run.loss.dims else "step"
    place = run.loss.notnull() * (1 + run[along] if along in run.coords else 1)
    return float(run.loss.isel({along: place.argmax(along)}).mean())


QUANTITIES = (
    Metric(
        name="stages",
        says="stages found, mean over networks",
        statistic=lambda run: float(run.stages_found.mean()),
    ),
    Metric(
        name="rank",
        says="largest rank of a stage, mean over networks",
        statistic=lambda run: float(run.stage_rank.max("stage").mean()),
    ),
    Metric(
        name="final_loss",
        says="final loss, mean over networks",
        statistic=_final_loss,
        scale="log",
    ),
)
"""What every run with stored staircases and losses comes to, of one network or of several."""

ACCURACY = Metric(
    name="accuracy",
    says="final accuracy, mean over networks",
    statistic=lambda run: float(run.accuracy.isel(step=-1).mean()),
)
