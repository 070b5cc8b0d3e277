"""Statistics of networks trained on images: singular values and ranks on the plateaus of the loss.

s_i     singular values of a layer's weights, descending
stages  plateaus of the loss, found by `saddlescope.measure.find_plateaus`; stage 0 is the saddle at the origin
first   plateau: the stage after the first escape
"""

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate


def select_first_plateau(run: xr.Dataset) -> xr.Dataset:
    """Return the record half-way through the first plateau; the step is NaN where none was found."""
    start, end = float(run.stage_start.isel(stage=1)), float(run.stage_start.isel(stage=2))
    if np.isnan(start):
        return run.isel(step=-1).assign_coords(step=np.nan)
    middle = (start + (float(run.step[-1]) if np.isnan(end) else end)) / 2
    return run.sel(step=middle, method="nearest")


def singular_value_ratios(at: xr.Dataset, value: int) -> xr.DataArray:
    """Return s_value / s_(value - 1) of every layer."""
    return at.singular_values.sel(value=value) / at.singular_values.sel(value=value - 1)


def rank_path(run: xr.Dataset, layers: slice) -> list[int]:
    """Return the common rank of some layers on each plateau, without repetition; -1 where they differ."""
    ranks = run.stage_layer_rank.sel(layer=layers).transpose("stage", "layer").values[: int(run.stages_found)]
    common = [int(of[0]) if (of == of[0]).all() else -1 for of in ranks]
    return [rank for k, rank in enumerate(common) if k == 0 or rank != common[k - 1]]


def ends_early(run: xr.Dataset, layers: slice) -> bool:
    """Return True if the run ends at the origin or on a plateau at rank 1, before a second escape."""
    return rank_path(run, layers) in ([0], [0, 1])


def count_escapes(run: xr.Dataset) -> Estimate:
    """Return the number of saddles that the run escapes from."""
    return Estimate(float(run.stages_found) - 1, remark=describe_stages(run))


def describe_stages(run: xr.Dataset) -> str:
    """Describe each stage in words: first step, level, and ranks of the layers."""
    described = []
    for stage in run.stage.values[: int(run.stages_found)]:
        one = run.sel(stage=stage)
        ranks = ",".join(str(int(rank)) for rank in one.stage_layer_rank.values)
        described.append(f"step {float(one.stage_start):.0f}: loss {float(one.stage_loss):.3g}, ranks {ranks}")
    return "; ".join(described)


def plateau_distinctness(run: xr.Dataset) -> float:
    """Return the longest stay of the loss on a level over the median stay, in the first half of its fall.

    The fall, from 2 to 50 % of the loss's range, is cut into 24 equal bands. The longest time that the loss (its
    decreasing fit) stays in a band over the median of these times: 1 on a straight way down.
    """
    from scipy.optimize import isotonic_regression

    fit = isotonic_regression(run.loss.values.astype(float), increasing=False).x
    fallen = (fit[0] - fit) / (fit[0] - fit[-1])
    stays = np.diff(np.interp(np.linspace(0.02, 0.5, 25), fallen, run.step.values.astype(float)))
    return float(stays.max() / np.median(stays))
