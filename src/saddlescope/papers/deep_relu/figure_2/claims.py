"""Claims on how often networks of depth 3 beat rank one and find the optimum."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Claims, Estimate, wilson_interval

WIDE = 64  # the least width at which conjecture 1 is compared with the runs

FASTER = 1e-9  # above the best speed of rank one, where many runs end

OPTIMAL = 1e-6


def share_with_interval(hits: np.ndarray) -> tuple[float, float, float]:
    """Return the share of hits and its 95 % interval."""
    return float(hits.mean()), *wilson_interval(hits.sum(), len(hits))


def is_faster(one: xr.Dataset) -> np.ndarray:
    """Return True for each run that is faster than every rank-one network."""
    return (one.speed > one.rank_one + FASTER).values


def is_optimal(one: xr.Dataset) -> np.ndarray:
    """Return True for each run at the certified optimum."""
    return (abs(one.speed - one.optimum) < OPTIMAL).values


def success_share(
    run: xr.Dataset, *, criterion: Callable[[xr.Dataset], np.ndarray], width: int | None = None, circle: int = 8
) -> Estimate:
    """Return the share of runs that meet a criterion at one width; None selects the largest."""
    chosen = int(run.width.max()) if width is None else width
    if chosen not in run.width.values or (width is None and chosen < WIDE) or circle not in run.circle.values:
        return Estimate.unresolved(f"Width {width or WIDE} was not run on the circle of {circle}.")
    found = criterion(run.sel(circle=circle, width=chosen))
    return Estimate.share(found.sum(), len(found), f"width {chosen}, {run.sizes['start']} starts")


_BAR = "Figure 2, which has no numbers; this project's bar, from trial runs of another implementation"

# The bounds: those of the paper's measure were this project's bar before any run, from trial runs of another
# implementation; the paper gives a figure without numbers. Error bars are 95 % intervals of binomial shares (Wilson).
claims = Claims()


@claims.add(
    "narrow", "N = 8, widths 1 and 2", quantity="runs that beat sqrt 2 - 1", kind="printed", source=_BAR, high=0.0
)
def narrow_successes(run: xr.Dataset) -> Estimate:
    """Count the runs at widths 1 and 2 that are faster than rank one."""
    if 8 not in run.circle.values or run.width[0] > 2:
        return Estimate.unresolved("Widths 1 and 2 were not run on the circle of 8.")
    narrow = run.sel(circle=8, width=run.width <= 2)
    return Estimate(float(is_faster(narrow).sum()), remark=f"{narrow.speed.size} starts")


claims.add(
    "width-32", "N = 8, width 32", quantity="share of runs that beat sqrt 2 - 1", kind="printed", source=_BAR, low=0.9
)(partial(success_share, criterion=is_faster, width=32))

claims.add(
    "width-64", "N = 8, width 64", quantity="share of runs that beat sqrt 2 - 1", kind="printed", source=_BAR, low=0.97
)(partial(success_share, criterion=is_faster, width=64))


@claims.add(
    "rises",
    "N = 8: wider networks beat sqrt 2 - 1 more often",
    quantity="least gain from one width to the next",
    kind="printed",
    source="Figure 2",
    low=0.0,
)
def least_gain_with_width(run: xr.Dataset) -> Estimate:
    """Return the smallest gain from one width to the next, leaving out pairs whose shares are both 0 or both 1."""
    if 8 not in run.circle.values or run.width.max() < WIDE:
        return Estimate.unresolved(f"Width {WIDE} was not run on the circle of 8.")
    shares = [share_with_interval(is_faster(run.sel(circle=8, width=width))) for width in run.width]
    gains = [
        (b[0] - a[0], np.hypot(a[0] - a[1], b[2] - b[0])) for a, b in pairwise(shares) if a[0] != b[0] or 0 < a[0] < 1
    ]
    if not gains:
        return Estimate.unresolved("No width succeeds more often than another.")
    gain, uncertainty = min(gains)
    return Estimate(float(gain), float(uncertainty))


@claims.add(
    "ceiling",
    "No run is faster than the certificate allows",
    quantity="most by which one is",
    kind="printed",
    source="Example 1, whose footnote doubts that there is anything faster; certified here",
    high=1e-6,
)
def excess_over_certificate(run: xr.Dataset) -> Estimate:
    """Return the largest speed of a run less the certified upper bound."""
    return Estimate(float((run.speed - run.optimum_upper).max()), remark=f"{run.speed.size} runs")


@claims.add(
    "polished",
    "N = 8, widths 4 to 32",
    quantity="share of the runs at the optimum with speed and Clarke residual to 1e-12",
    kind="own",
    source="this project's bar",
    low=0.9,
)
def polished_share(run: xr.Dataset) -> Estimate:
    """Return the share of the runs at the optimum that are known to 1e-12."""
    if 8 not in run.circle.values:
        return Estimate.unresolved("The circle of 8 was not run.")
    some = run.sel(circle=8, width=(run.width >= 4) & (run.width <= 32))
    at = abs(some.descended - some.optimum) < 1e-5
    exact = at & (abs(some.speed - some.optimum) < 1e-12) & (some.residual < 1e-12)
    if not bool(at.any()):
        return Estimate.unresolved("No run came to the optimum.")
    shares = (exact.sum("start") / at.sum("start")).values[at.any("start").values]
    return Estimate(float(np.min(shares)), remark=f"{int(at.sum())} runs; the least of all widths")


claims.add(
    "conjecture-1",
    "N = 8, the largest width",
    quantity="share of runs that find the optimal direction",
    kind="printed",
    source="Section 5, conjecture 1; read as: nine times out of ten",
    low=0.9,
)(partial(success_share, criterion=is_optimal))

claims.add(
    "conjecture-1-harder",
    "N = 16, the largest width",
    quantity="share of runs that find the optimal direction",
    kind="printed",
    source="Section 5, conjecture 1; read as: nine times out of ten",
    low=0.9,
)(partial(success_share, criterion=is_optimal, circle=16))


@claims.add(
    "convex-steps",
    "N = 16",
    quantity="what the best of the improved directions lacks of the certified optimum",
    kind="own",
    source="beyond the paper; this project's bar",
    high=OPTIMAL,
)
def distance_from_optimum(run: xr.Dataset) -> Estimate:
    """Return the distance of the best improved speed from the certified optimum."""
    if run.circle[-1] != 16:
        return Estimate.unresolved("Convex steps were not tried on the circle of 16.")
    at = float(run.optimum.sel(circle=16))
    best = run.improved_speed.values
    count = int((abs(best - at) < OPTIMAL).sum())
    plain = int((abs(run.plain_speed.values - at) < OPTIMAL).sum())
    return Estimate(float(at - best.max()), remark=f"{count} of {len(best)} starts reach it; by descent alone {plain}")
