"""Staircases as labelled arrays, for storage."""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

if TYPE_CHECKING:
    from saddlescope.measure import Staircase


def staircase_dataset(staircase: "Staircase", *, layers: int, most: int) -> xr.Dataset:
    """Return the first stages of a staircase over `stage`; NaN, and rank -1, where it has fewer than `most`.

    Args:
        staircase: stages with the ranks of the layers.
        layers: number of layers.
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


def concatenate_networks(networks: list[xr.Dataset]) -> xr.Dataset:
    """Concatenate networks over `network`; layers and stages that one lacks are NaN, its ranks there -1."""
    ranks = {"stage_rank": -1, "stage_layer_rank": -1}
    return xr.concat(networks, dim="network", data_vars="all", join="outer", combine_attrs="drop", fill_value=ranks)
