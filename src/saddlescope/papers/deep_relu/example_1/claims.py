"""Claims on the optimum of Example 1 and of circles like it."""

from functools import partial

import xarray as xr

from saddlescope.papers.deep_relu.shared.circle_data import depth_three_optimum, rank_one_optimum
from saddlescope.reproduction.claim import Claims, Estimate

ROUNDING = 1e-12


def middle_of_bounds(run: xr.Dataset, *, samples: int, lower: str = "lower", upper: str = "upper") -> Estimate:
    """Return the middle of the bounds, with half their distance."""
    if samples not in run.samples.values:
        return Estimate.unresolved(f"The circle of {samples} points was not among the samples.")
    low, high = (float(run[name].sel(samples=samples)) for name in (lower, upper))
    return Estimate((low + high) / 2, (high - low) / 2 + ROUNDING, remark=f"between {low!r} and {high!r}")


def layer_rank(run: xr.Dataset, *, name: str, layer: int) -> Estimate:
    """Return the rank of one layer of the printed or the certified network."""
    at = run[name] if name == "printed_ranks" else run[name].sel(samples=8)
    return Estimate(float(at.sel(layer=layer)), remark="ranks " + ", ".join(str(int(rank)) for rank in at.values))


# The bounds. Known values are held to 1e-8, the agreement of the bounds that this project set itself; where the paper's
# statement is wrong, both its own words and the corrected statement are judged.
claims = Claims()

claims.add(
    "optimum",
    "At N = 8 the largest speed of all networks of depth 3 is 1/2",
    quantity="nothing is faster than the paper's network",
    kind="own",
    source="Example 1, footnote 2, which leaves it open; held to this project's 1e-8",
    low=0.5 - 1e-8,
    high=0.5 + 1e-8,
)(partial(middle_of_bounds, samples=8))


@claims.add(
    "bounds-meet",
    "The bounds meet on every circle",
    quantity="largest upper bound less lower bound",
    kind="own",
    source="This project's bar: 1e-8 for N up to 16",
    high=1e-8,
)
def largest_gap(run: xr.Dataset) -> Estimate:
    """Return the largest distance between the bounds."""
    return Estimate(float((run.upper - run.lower).max()), remark=f"N = {', '.join(map(str, run.samples.values))}")


claims.add(
    "printed-weights",
    "The weights (2) as printed have speed 1/2",
    quantity="value",
    kind="printed",
    source="Example 1, equation 2, the paper's own words; Tr[G^T Y] is +1/2 there",
    low=0.5 - 1e-9,
    high=0.5 + 1e-9,
)(lambda run: Estimate(float(run.printed_speed), ROUNDING))

claims.add(
    "corrected-weights",
    "With W_3 = -1 they have speed 1/2",
    quantity="value",
    kind="printed",
    source="Example 1, corrected: the speed is -Tr[G^T Y]",
    low=0.5 - 1e-9,
    high=0.5 + 1e-9,
)(lambda run: Estimate(float(run.corrected_speed), ROUNDING))

claims.add(
    "rank-one",
    "With every layer of rank one the largest speed at N = 8 is sqrt 2 - 1",
    quantity="value",
    kind="printed",
    source="Example 1; exact, at any depth",
    low=2**0.5 - 1 - 1e-9,
    high=2**0.5 - 1 + 1e-9,
)(partial(middle_of_bounds, samples=8, lower="rank_one", upper="rank_one_upper"))

claims.add(
    "first-layer",
    "The certified network's first layer has rank 2",
    quantity="value",
    kind="printed",
    source="Example 1",
    low=2.0,
    high=2.0,
)(partial(layer_rank, name="ranks", layer=1))

claims.add(
    "printed-second-layer",
    "The second layer of the paper's network has rank 2, too",
    quantity="value",
    kind="printed",
    source="Introduction, the paper's own words: the first two weight matrices are rank 2",
    low=2.0,
    high=2.0,
)(partial(layer_rank, name="printed_ranks", layer=2))

claims.add(
    "second-layer",
    "From the second layer on the certified network has rank 1",
    quantity="value",
    kind="printed",
    source="Corrected: the ranks are 2, 1, 1, as one neuron in the second layer says",
    low=1.0,
    high=1.0,
)(partial(layer_rank, name="ranks", layer=2))


@claims.add(
    "rank-one-circles",
    "The rank-one optimum is tan(pi/N) where 4 divides N, and 0 on the other circles",
    quantity="largest deviation",
    kind="printed",
    source="Exact (a geometric series); the paper has N = 8",
    high=1e-9,
)
def rank_one_error(run: xr.Dataset) -> Estimate:
    """Return the largest deviation of the rank-one optima from their exact values."""
    exact = [rank_one_optimum(int(n)) for n in run.samples.values]
    away = max(abs(run.rank_one.values - exact).max(), abs(run.rank_one_upper.values - exact).max())
    return Estimate(float(away), ROUNDING)


@claims.add(
    "closed-form",
    "Where 4 divides N, s* is 1 / (1 + cot(2 pi/N))",
    quantity="largest deviation of a bound",
    kind="printed",
    source="Seen in certified values of a trial run; not proven, not in the paper",
    high=1e-8,
)
def closed_form_error(run: xr.Dataset) -> Estimate:
    """Return the largest deviation of a bound from 1 / (1 + cot(2 pi/N)), where 4 divides N."""
    multiples = run.isel(samples=run.samples.values % 4 == 0)
    exact = [depth_three_optimum(int(n)) for n in multiples.samples.values]
    away = max(abs(multiples.lower.values - exact).max(), abs(multiples.upper.values - exact).max())
    return Estimate(float(away), ROUNDING, remark=f"N = {', '.join(map(str, multiples.samples.values))}")
