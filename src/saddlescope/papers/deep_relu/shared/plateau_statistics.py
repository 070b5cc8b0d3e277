"""Statistics and metrics of trained networks: singular values and ranks on the plateaus of the loss.

s_i are the singular values of a layer's weights, descending. Stages are plateaus of the loss, found by
`saddlescope.measure.find_plateaus`; stage 0 is the saddle at the origin, and the first plateau is stage 1.
"""

import numpy as np
import xarray as xr

from saddlescope.reproduction import Estimate, Metric


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


def select_seeds(run: xr.Dataset) -> list[xr.Dataset]:
    """Return the run of each seed."""
    return [run.isel(seed=k) for k in range(run.sizes["seed"])]


def judge_first_plateaus(run: xr.Dataset) -> Estimate | None:
    """Return an undecided estimate if a seed has no plateau after the origin, else None."""
    first = run.isel(stage=1)
    none = first.stage_start.isnull() | (first.stage_layer_rank <= 0).all("layer")  # at rank 0 it is still the origin
    early = [str(int(seed)) for seed in run.seed[none.values]]
    if early:
        return Estimate.unresolved(f"Seeds without a plateau after the origin: {', '.join(early)}; take more steps.")
    return None


def plateau_distinctness(run: xr.Dataset) -> float:
    """Return the longest stay of the loss in a band of values over the median stay, in the first half of its fall.

    The fall, from 2 to 50 % of the loss's range, is cut into 24 equal bands. The stays are the times that the loss (its
    decreasing fit) spends in the bands. The ratio is 1 for a straight descent.
    """
    from scipy.optimize import isotonic_regression

    fit = isotonic_regression(run.loss.values.astype(float), increasing=False).x
    fallen = (fit[0] - fit) / (fit[0] - fit[-1])
    stays = np.diff(np.interp(np.linspace(0.02, 0.5, 25), fallen, run.step.values.astype(float)))
    return float(stays.max() / np.median(stays))


def _final_loss(run: xr.Dataset) -> float:
    """Return the last stored loss of each network, averaged over networks."""
    along = "mark" if "mark" in run.loss.dims else "step"
    place = run.loss.notnull() * (1 + run[along] if along in run.coords else 1)
    return float(run.loss.isel({along: place.argmax(along)}).mean())


STAIRCASE_METRICS = (
    Metric("stages", "stages found, mean over networks", lambda run: float(run.stages_found.mean())),
    Metric(
        "rank", "largest rank of a stage, mean over networks", lambda run: float(run.stage_rank.max("stage").mean())
    ),
    Metric("final_loss", "final loss, mean over networks", _final_loss, scale="log"),
)
"""Metrics that every run with stored staircases and losses has."""

ACCURACY_METRIC = Metric(
    "accuracy", "final accuracy, mean over networks", lambda run: float(run.accuracy.isel(step=-1).mean())
)
