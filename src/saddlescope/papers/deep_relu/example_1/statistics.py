"""Statistics of the certified bounds and of the networks of Example 1."""

import xarray as xr

from saddlescope.papers.deep_relu.shared.circle_data import depth_three_optimum, rank_one_optimum
from saddlescope.reproduction.claim import Estimate

ROUNDING = 1e-12


def middle_of_bounds(run: xr.Dataset, *, samples: int, lower: str = "lower", upper: str = "upper") -> Estimate:
    """Return the middle of the bounds, with half their distance."""
    if samples not in run.samples.values:
        return Estimate.unresolved(f"The circle of {samples} points was not among the samples.")
    low, high = (float(run[name].sel(samples=samples)) for name in (lower, upper))
    return Estimate((low + high) / 2, (high - low) / 2 + ROUNDING, remark=f"between {low!r} and {high!r}")


def largest_gap(run: xr.Dataset) -> Estimate:
    """Return the largest distance between the bounds."""
    return Estimate(float((run.upper - run.lower).max()), remark=f"N = {', '.join(map(str, run.samples.values))}")


def rank_one_error(run: xr.Dataset) -> Estimate:
    """Return the largest deviation of the rank-one optima from their exact values."""
    exact = [rank_one_optimum(int(n)) for n in run.samples.values]
    away = max(abs(run.rank_one.values - exact).max(), abs(run.rank_one_upper.values - exact).max())
    return Estimate(float(away), ROUNDING)


def closed_form_error(run: xr.Dataset) -> Estimate:
    """Return the largest deviation of a bound from 1 / (1 + cot(2 pi/N)), where 4 divides N."""
    multiples = run.isel(samples=run.samples.values % 4 == 0)
    exact = [depth_three_optimum(int(n)) for n in multiples.samples.values]
    away = max(abs(multiples.lower.values - exact).max(), abs(multiples.upper.values - exact).max())
    return Estimate(float(away), ROUNDING, remark=f"N = {', '.join(map(str, multiples.samples.values))}")


def layer_rank(run: xr.Dataset, *, name: str, layer: int) -> Estimate:
    """Return the rank of one layer of the printed or the certified network."""
    at = run[name] if name == "printed_ranks" else run[name].sel(samples=8)
    return Estimate(float(at.sel(layer=layer)), remark="ranks " + ", ".join(str(int(rank)) for rank in at.values))
