"""Claims on where the bound of Theorem 3.1 has content, and on the sharper inequality."""

import math
from functools import partial

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Claims, Estimate

EXAMPLE = "circle, N = 8"

PRACTICAL = 100  # layers: a depth that networks in use do not exceed by much

ROUNDING = 1e-9


def _example(run: xr.Dataset) -> xr.Dataset:
    return run.sel(data=EXAMPLE)


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


# The bounds. A theorem is not to be violated; the first layer at which it has content follows from its own formula.
claims = Claims()


@claims.add(
    "first-layer",
    "For Example 1 the bound is below 1 from layer 114,985 on only",
    quantity="value",
    kind="printed",
    source="Theorem 3.1's formula with s* = 1/2: 81 (16 sqrt(2 log 16))^2 = 114,984.8",
    low=114_984.0,
    high=114_986.0,
)
def first_layer(run: xr.Dataset) -> Estimate:
    """Return the first layer at which the bound for Example 1 is below 1."""
    return Estimate(float(_example(run).first_layer))


@claims.add(
    "printed-content",
    "At layer 100 the bound says something (is below 1) for one of the circles",
    quantity="value",
    kind="printed",
    source="Theorem 3.1 as printed, which does not say where it begins to speak; this claim's bound is the content",
    high=1.0,
)
def smallest_practical_bound(run: xr.Dataset) -> Estimate:
    """Return the smallest bound of the circles at layer PRACTICAL; a bound without a value is infinite."""
    x = run.constant.isel(data=[str(name).startswith("circle") for name in run.data.values]) / np.sqrt(PRACTICAL)
    return Estimate(float((8 * x / (1 - x)).where(x < 1, np.inf).min()), remark=f"layer {PRACTICAL}")


claims.add(
    "holds",
    "Where it is below 1, no layer of the optimum exceeds it",
    quantity="data sets where one does",
    kind="printed",
    source="Theorem 3.1, corrected: weights and ReLUs one layer later than printed",
    high=0.0,
)(partial(violations, later=1))

claims.add(
    "printed-layer",
    "Nor with the layer as printed, l for weights and ReLUs, too",
    quantity="value",
    kind="printed",
    source="Theorem 3.1 as printed; its proof does not give that",
    high=0.0,
)(partial(violations, later=0))


@claims.add(
    "budget",
    "All layers together spend no more than the budget on rank and ReLU",
    quantity="data sets where they do",
    kind="own",
    source="This project's sharper inequality, in the theorem's stead",
    high=0.0,
)
def overspending(run: xr.Dataset) -> Estimate:
    """Count the data sets whose layers spend more than the budget."""
    return Estimate(float((run.spent > run.budget + ROUNDING).sum()), remark=f"{run.sizes['data']} data sets")


@claims.add(
    "content",
    "It says that of Example 1's optimum at most so many layers can have a tail above 1/2, at any depth",
    quantity="value",
    kind="printed",
    source="The sharper inequality: 2 log 16 / log 2 = 8",
    low=1.0,
    high=8.0,
)
def layers_above_half(run: xr.Dataset) -> Estimate:
    """Return the largest number of layers of Example 1's optimum with a tail above 1/2, at any depth."""
    return Estimate(float(math.floor(float(_example(run).budget) / math.log(2))))
