"""Statistics of the bound of Theorem 3.1 and of the optima that it is compared with."""

import math

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate

EXAMPLE = "circle, N = 8"


PRACTICAL = 100  # layers: a depth that networks in use do not exceed by much


ROUNDING = 1e-9


def _example(run: xr.Dataset) -> xr.Dataset:
    return run.sel(data=EXAMPLE)


def first_layer(run: xr.Dataset) -> Estimate:
    """Return the first layer at which the bound for Example 1 is below 1."""
    return Estimate(float(_example(run).first_layer))


def smallest_practical_bound(run: xr.Dataset) -> Estimate:
    """Return the smallest bound of the circles at layer PRACTICAL; a bound without a value is infinite."""
    x = run.constant.isel(data=[str(name).startswith("circle") for name in run.data.values]) / np.sqrt(PRACTICAL)
    return Estimate(float((8 * x / (1 - x)).where(x < 1, np.inf).min()), remark=f"layer {PRACTICAL}")


def violations(run: xr.Dataset, later: int) -> Estimate:
    """Count the data sets where a ratio exceeds a bound below 1, weights and ReLUs `later` layers later."""
    bound = run.bound.where((run.bound < 1) & run.one_sign)
    seen = int(bound.notnull().any("layer").sum())
    if not seen:
        return Estimate.unresolved("The bound was below 1 for no known optimum; lower the distances.")
    held = bound.shift(layer=later)
    over = (run.activations > bound) | (run.weights > held) | (run.relu > held)
    return Estimate(
        float(over.any("layer").sum()), remark=f"the bound is below 1 on {seen} data sets with G of one sign"
    )


def overspending(run: xr.Dataset) -> Estimate:
    """Count the data sets whose layers spend more than the budget."""
    return Estimate(float((run.spent > run.budget + ROUNDING).sum()), remark=f"{run.sizes['data']} data sets")


def layers_above_half(run: xr.Dataset) -> Estimate:
    """Return the largest number of layers of Example 1's optimum with a tail above 1/2, at any depth."""
    return Estimate(float(math.floor(float(_example(run).budget) / math.log(2))))
