"""Claims on how often descent finds a fast escape direction."""

import itertools
from functools import partial
from statistics import NormalDist
from typing import Literal

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.escape_width.odds_regression import OddsLaw, fit_odds
from saddlescope.papers.deep_relu.shared.circle_data import depth_three_optimum, rank_one_optimum
from saddlescope.reproduction.claim import Claims, Estimate, wilson_interval

Success = Literal["faster", "optimal"]

SAMPLES = 8  # of Example 1

BASE_DEPTH = 3  # the depth whose optimum is certified

_FASTER, _OPTIMAL = 1e-4, 1e-3


def succeeds(speeds: xr.DataArray, success: Success) -> xr.DataArray:
    """Return True for each run that succeeds."""
    if success == "faster":
        return speeds > rank_one_optimum(SAMPLES) + _FASTER
    return speeds > depth_three_optimum(SAMPLES) - _OPTIMAL


def fit_odds_law(run: xr.Dataset, depth: int, success: Success = "faster") -> OddsLaw | None:
    """Fit the law of the odds against the width of all hidden layers."""
    found = succeeds(run.speed.sel(depth=depth), success).sum("start").values
    return fit_odds(run.width.values[:, None].astype(float), found, np.full(len(found), run.sizes["start"]))


def fit_unequal_odds_law(run: xr.Dataset) -> OddsLaw | None:
    """Fit the law of the odds of a faster run against the widths of the first and the second hidden layer."""
    found = succeeds(run.unequal_speed, "faster").sum("start").transpose("first", "second").values.ravel()
    widths = np.array(list(itertools.product(run["first"].values, run["second"].values)), float)
    return fit_odds(widths, found, np.full(len(found), run.sizes["start"]))


def success_share(run: xr.Dataset, success: Success, depth: int, width: int) -> tuple[float, float, float]:
    """Return the share of runs that succeed, and its 95 % interval."""
    found = succeeds(run.speed.sel(depth=depth, width=width), success).values
    return float(found.mean()), *wilson_interval(found.sum(), len(found))


_NO_LAW = Estimate.unresolved("The runs fix no law: they all succeed, or none does.")


def depth_difference(run: xr.Dataset, *, success: Success) -> Estimate:
    """Return the share of successes at L = 3 less that at the largest depth, at the largest width."""
    width, deepest = int(run.width[-1]), int(run.depth[-1])
    low, high = (success_share(run, success, depth, width) for depth in (BASE_DEPTH, deepest))
    error = ((low[0] - low[1]) ** 2 + (high[2] - high[0]) ** 2) ** 0.5
    return Estimate(low[0] - high[0], error, f"{low[0]:.3f} at depth {BASE_DEPTH}, {high[0]:.3f} at {deepest}")


_PILOT = "the bound from a pilot on another seed"

claims = Claims()


@claims.add(
    "cube",
    "The odds of a faster run grow as the cube of the width, L = 3",
    quantity="power",
    kind="own",
    source=f"this project's, after Figure 2, which has no numbers; {_PILOT}: 3.1 ± 0.4",
    low=2.5,
    high=3.5,
)
def power(run: xr.Dataset) -> Estimate:
    """Return the power of the law at L = 3."""
    law = fit_odds_law(run, BASE_DEPTH)
    return _NO_LAW if law is None else Estimate(float(law.powers[0]), float(law.errors[0]))


@claims.add(
    "law",
    "The share of faster runs keeps to that law, L = 3",
    quantity="largest distance",
    kind="own",
    source=f"this project's; {_PILOT}: 0.08 with half as many starts",
    high=0.12,
)
def distance_from_law(run: xr.Dataset) -> Estimate:
    """Return the largest distance of a share from the law, L = 3."""
    law = fit_odds_law(run, BASE_DEPTH)
    if law is None:
        return _NO_LAW
    if run.sizes["width"] < 3:
        return Estimate.unresolved("Two widths fit any law; give three or more.")
    shares = succeeds(run.speed.sel(depth=BASE_DEPTH), "faster").mean("start").values
    off = abs(shares - law.shares(run.width.values[:, None].astype(float)))
    return Estimate(float(off.max()), remark=f"at width {int(run.width[int(off.argmax())])}")


@claims.add(
    "no-lottery",
    "A network of twice the width does better than two independent tries",
    quantity="the share of faster runs less 1 - (1 - p)^2, where it is most",
    kind="printed",
    source=f"against wide networks as many narrow ones; {_PILOT}",
    low=0.0,
)
def gain_over_two_tries(run: xr.Dataset) -> Estimate:
    """Return the gain of twice the width over two independent tries, where it is largest, L = 3."""
    gains = []
    for width in run.width.values.tolist():
        if 2 * width in run.width.values:
            once, twice = (
                success_share(run, "faster", BASE_DEPTH, width),
                success_share(run, "faster", BASE_DEPTH, 2 * width),
            )
            slope = 2 * (1 - once[0])
            error = np.hypot(twice[0] - twice[1], slope * (once[2] - once[0]))
            gains.append((twice[0] - (1 - (1 - once[0]) ** 2), float(error), width))
    if not gains:
        return Estimate.unresolved("No width is twice another.")
    gain, error, width = max(gains)
    # The largest of several differences: each gets the interval that holds for all of them together (Bonferroni).
    wider = NormalDist().inv_cdf(1 - 0.025 / len(gains)) / NormalDist().inv_cdf(0.975)
    return Estimate(gain, error * wider, f"from width {width} to {2 * width}, of {len(gains)} such pairs")


@claims.add(
    "first-layer",
    "The first hidden layer's width counts more than the second's, L = 3",
    quantity="power of the one less that of the other",
    kind="printed",
    source="at L = 3 an optimum needs one neuron in the second (the argument of Proposition 3.2), several in the "
    f"first; {_PILOT}",
    low=0.0,
)
def first_layer_advantage(run: xr.Dataset) -> Estimate:
    """Return the power of the first hidden layer's width less that of the second's."""
    law = fit_unequal_odds_law(run)
    if law is None:
        return _NO_LAW
    remark = " and ".join(f"{power:.2f} ± {error:.2f}" for power, error in zip(law.powers, law.errors, strict=True))
    return Estimate(float(law.powers[0] - law.powers[1]), float((law.errors**2).sum() ** 0.5), remark)


claims.add(
    "depth-faster",
    "Depth makes fast runs rarer at the largest width",
    quantity="share of faster runs at L = 3 less that at the largest depth",
    kind="own",
    source=f"this project's; {_PILOT}",
    low=0.0,
)(partial(depth_difference, success="faster"))

claims.add(
    "depth-optimal",
    "And optimal ones much rarer",
    quantity="the same of optimal runs",
    kind="own",
    source=f"this project's; {_PILOT}",
    low=0.25,
)(partial(depth_difference, success="optimal"))


@claims.add(
    "no-depth",
    "As first posed: width makes up for depth, and the odds grow as the cube of it at the largest depth, too",
    quantity="power",
    kind="own",
    source="this project's, before the pilot; the bounds are those at L = 3",
    low=2.5,
    high=3.5,
)
def deep_power(run: xr.Dataset) -> Estimate:
    """Return the power of the law at the largest depth."""
    law = fit_odds_law(run, int(run.depth[-1]))
    return _NO_LAW if law is None else Estimate(float(law.powers[0]), float(law.errors[0]))


@claims.add(
    "conjecture-1-deep",
    "Wide networks find the optimal direction, at the largest depth and width",
    quantity="share of runs",
    kind="printed",
    source="Section 5, conjecture 1; read as: nine times out of ten, of the widest network here",
    low=0.9,
)
def widest_optimal_share(run: xr.Dataset) -> Estimate:
    """Return the share of optimal runs of the widest network at the largest depth."""
    found = succeeds(run.speed.isel(depth=-1, width=-1), "optimal").values
    remark = f"{found.sum()} of {len(found)}, depth {int(run.depth[-1])}, width {int(run.width[-1])}"
    return Estimate.share(found.sum(), len(found), remark)


@claims.add(
    "ceiling",
    "No run of any depth is faster than 1/2",
    quantity="most by which one is",
    kind="printed",
    source="certified at L = 3 (theory.escape.certificate); deeper networks are at least as fast (Proposition 3.2)",
    high=1e-6,
)
def excess_over_optimum(run: xr.Dataset) -> Estimate:
    """Return the largest speed of any run less the certified optimum."""
    most = max(float(run.speed.max()), float(run.unequal_speed.max()))
    return Estimate(most - depth_three_optimum(SAMPLES), remark=f"{run.speed.size + run.unequal_speed.size} runs")
