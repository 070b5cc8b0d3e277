"""The initial scale against the staircase: small scales make steps, large ones melt them."""

import numpy as np
import xarray as xr

from saddlescope.explore.toys.linear_staircase import (
    follow,
    largest_time_error,
    require_definite,
    staircase_figure,
)
from saddlescope.plot import Figures
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param
from saddlescope.reproduction.catalogue import TOYS

_COORDINATES = 5


class Params(EntryParams):
    """From a small initial scale α, coordinates are learned one at a time, when Algorithm 1 predicts.

    Raise the scale to melt the steps; lower it to sharpen them. Theory: Boix-Adserà et al., arXiv:2306.07042.
    """

    log10_scale: float = param(-8.0, "initial scale: log₁₀ α", ge=-512.0, le=-0.3, scale="log")
    ratio: float = param(1.6, "strength of each coordinate over the next", ge=1.05, le=3.0)
    correlation: float = param(0.0, "correlation between the features", ge=0.0, le=0.9)
    seed: int = param(0, "seed of the initial weights", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow five coordinates with equally correlated features."""
    covariance = np.full((_COORDINATES, _COORDINATES), params.correlation)
    np.fill_diagonal(covariance, 1.0)
    require_definite(covariance, "Lower correlation.")
    teacher = params.ratio ** -np.arange(float(_COORDINATES))
    return follow(covariance, teacher, log10_scale=params.log10_scale, seed=params.seed, context=context)


claims = Claims(
    limits="Changes below a fifth of a coordinate's largest value are left out. The order of coordinates of nearly "
    "equal strength depends on the initial weights."
)

claims.extension(
    "times",
    "Each coordinate is learned within 10 % of the time that Algorithm 1 predicts",
    "Theorem 4.1 of Boix-Adserà et al.: O(1) e-folds out of log(1/α); a bar for the eye",
    high=0.1,
)(largest_time_error)


@claims.extension(
    "order", "Coordinates are learned in the predicted order", "Algorithm 1 of Boix-Adserà et al.", high=0.0
)
def _exchanged(run: xr.Dataset) -> Estimate:
    """Pairs of coordinates that reach half their final value in another order than predicted."""

    def reached(values: np.ndarray) -> np.ndarray:
        return (abs(values) > abs(run.stage_beta.values[-1]) / 2).argmax(axis=0)

    first, second = np.triu_indices(run.sizes["coordinate"], 1)
    found, predicted = reached(run.beta.values), reached(run.stage_beta.values)
    return Estimate.number((found[first] - found[second]) * (predicted[first] - predicted[second]) < 0)


def figures(run: xr.Dataset) -> Figures:
    """Draw coordinates and loss."""
    caption = "Smooth: gradient flow. Steps: Algorithm 1, from the loss alone, in the limit of vanishing α."
    yield staircase_figure(run, tuple(f"β{k}" for k in "₁₂₃₄₅"), caption)


entry = Entry(
    "toys/scale",
    "The initial scale makes the staircase",
    citation=TOYS,
    source="Scale",
    quick={"log10_scale": -4.0},
)
