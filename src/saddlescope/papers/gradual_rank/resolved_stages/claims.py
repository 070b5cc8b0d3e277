"""The claims of the entry on resolved stages, with their bounds and sources."""

from functools import partial
from math import log

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.metric import Metric

FEW = 2.0  # e-folds: the size of a correction to a stage time, on both sides of a plateau

_LATE = -3.9  # log10 of the scale from which on numbers are compared: before, hardly a plateau exists


def predicted(run: xr.Dataset, efolds: float) -> xr.DataArray:
    """Return the number of plateaus with so many e-folds, over dim, seed and scale."""
    return (run.efolds >= efolds).sum("plateau")


def found(run: xr.Dataset) -> xr.DataArray:
    """Return the number of plateaus found, over dim, seed and scale."""
    return run.found.sum("plateau")


def enough(run: xr.Dataset) -> float:
    """Return log(1/level): the e-folds from which on Figure 2 counts a plateau as resolved."""
    return log(1 / run.attrs["level"])


def _late(run: xr.Dataset, at: float = _LATE) -> xr.Dataset:
    return run.sel(scale=run.scale <= at)


def _ratio(over: xr.DataArray, under: xr.DataArray) -> Estimate:
    """Return the ratio of two numbers of plateaus, summed over scales: its mean over dimensions and seeds."""
    top, bottom = over.sum("scale").values.ravel(), under.sum("scale").values.ravel()
    some = bottom > 0
    told = f"{int(top.sum())} against {int(bottom.sum())}"
    return Estimate.mean((top[some] / bottom[some]).astype(np.float64), told)


# The bounds: the e-folds that a plateau needs are of order one by the theory, no more is known; the rest from pilots on
# seeds 101 to 106 at dimensions 4 and 8.
claims = Claims()


@claims.add(
    "sufficient",
    "As first posed: a plateau with log(1/level) e-folds is there",
    quantity="share of them found in the predicted middle, at all scales",
    kind="printed",
    source="Theorem 4.1 and near_ties; corrections of order 1 that it does not know, some per cent",
    low=0.97,
)
def sufficient_share(run: xr.Dataset, *, visible: bool = False) -> Estimate:
    """Return the share found of the plateaus with log(1/level) e-folds, all or the visible ones, at all scales."""
    there = (run.efolds >= enough(run)) & ((run.least > run.attrs["level"]) if visible else True)
    hits = int((there & (run.found == 1)).sum())
    return Estimate.share(hits, int(there.sum()), f"{hits} of {int(there.sum())} plateaus")


claims.add(
    "sufficient-visible",
    "The same of plateaus on which every learned coordinate is to come above the level",
    quantity="value",
    kind="printed",
    source="Theorem 4.1 and near_ties, posed after small entries of the teacher had been counted against them; the same bound",
    low=0.97,
)(partial(sufficient_share, visible=True))


@claims.add(
    "number",
    "As first posed",
    quantity="that is the number of plateaus; found over predicted, from 1e-4 on",
    kind="own",
    source="Figure 2's criterion; the bounds this project's, from before the pilot",
    low=0.9,
    high=1.1,
)
def found_over_predicted(run: xr.Dataset, *, efolds: float | None = None) -> Estimate:
    """Return plateaus found over those predicted, from alpha = 1e-4 on."""
    late = _late(run)
    return _ratio(found(late), predicted(late, enough(run) if efolds is None else efolds))


claims.add(
    "number-two",
    "Two e-folds are enough on the average",
    quantity="the same ratio with them",
    kind="printed",
    source="one of correction on either side of a plateau; the bounds from a pilot on other seeds",
    low=0.9,
    high=1.1,
)(partial(found_over_predicted, efolds=FEW))


@claims.add(
    "each-plateau",
    "Two e-folds tell of each plateau whether it is found, from 1e-4 on",
    quantity="share of them",
    kind="own",
    source="near_ties; the bound this project's: what is near two e-folds is told by chance",
    low=0.8,
)
def classified_share(run: xr.Dataset) -> Estimate:
    """Return the share of plateaus that a threshold of FEW e-folds classifies as found or not, from alpha = 1e-4 on."""
    late = _late(run)
    there = late.efolds.notnull()
    right = int((((late.efolds >= FEW) == (late.found == 1)) & there).sum())
    return Estimate.share(right, int(there.sum()), f"{right} of {int(there.sum())} plateaus")


@claims.add(
    "without-theory",
    "A count that knows no theory gives as many at the two smallest scales",
    quantity="held over found",
    kind="printed",
    source="Theorem 4.1; the bounds from a pilot on other seeds",
    low=0.9,
    high=1.1,
)
def held_over_found(run: xr.Dataset) -> Estimate:
    """Return plateaus that are held over those found in the predicted middles, at the two smallest scales."""
    smallest = run.isel(scale=slice(-2, None))
    return _ratio(smallest.held, found(smallest))


@claims.add(
    "unresolved",
    "What is not resolved falls more slowly than 1/L",
    quantity="power of L, from 1e-8 on",
    kind="own",
    source="this project's; the bounds from a pilot on other seeds: -0.73",
    low=-1.0,
    high=-0.5,
)
def unresolved_power(run: xr.Dataset) -> Estimate:
    """Return the power of L with which the share that is not found falls, between alpha = 1e-8 and the smallest."""
    late = _late(run, -7.9)
    if late.sizes["scale"] < 2 or run.sizes["seed"] < 2:
        return Estimate.unresolved("It takes two scales up to 1e-8, and two seeds.")
    lost = (late.plateaus - found(late)).sum("dim").transpose("seed", "scale").values.astype(float)
    if not lost.sum(0).all():
        return Estimate.unresolved("At one of these scales all plateaus are found.")
    times = -late.scale.values * log(10)

    def slope(counts: np.ndarray) -> float:
        return float(np.polyfit(np.log(times), np.log(np.maximum(counts, 0.5)), 1)[0])

    # The jackknife over seeds: the sum over all but one.
    slopes = np.array([slope(lost.sum(0) - one) for one in lost])
    error = 1.96 * (len(lost) - 1) ** 0.5 * float(slopes.std())
    return Estimate(slope(lost.sum(0)), error, f"{lost.sum(0).astype(int).tolist()} of {int(run.plateaus.sum())}")


claims.add(
    "one-over-log",
    "As first posed: it falls as 1/L, as if plateaus had any length alike near 0",
    quantity="power of L, from 1e-8 on",
    kind="own",
    source="a density of lengths that is finite at 0; the bounds this project's, from before the pilot",
    low=-1.15,
    high=-0.85,
)(unresolved_power)


@claims.add(
    "dimension",
    "More coordinates crowd more",
    quantity="share found at 1e-8 at the smallest dimension less that at the largest",
    kind="own",
    source="this project's: as many times in one range of them; the bound a difference",
    low=0.0,
)
def dimension_effect(run: xr.Dataset) -> Estimate:
    """Return the share of plateaus found at alpha = 1e-8 at the smallest dimension less that at the largest."""
    if run.sizes["dim"] < 2 or -8.0 not in run.scale.values:
        return Estimate.unresolved("It takes two dimensions, and alpha = 1e-8.")
    shares = found(run).sel(scale=-8.0) / run.plateaus
    low, high = (Estimate.mean(shares.isel(dim=k).values) for k in (0, -1))
    told = f"{low.value:.2f} at dimension {int(run.dim[0])}, {high.value:.2f} at {int(run.dim[-1])}"
    return Estimate(low.value - high.value, (low.uncertainty**2 + high.uncertainty**2) ** 0.5, told)


metrics = (
    Metric(
        name="found_share",
        quantity="share of all plateaus found at the smallest scale",
        statistic=lambda run: float(found(run).isel(scale=-1).sum() / run.plateaus.sum()),
    ),
    Metric(
        name="found_over_predicted",
        quantity="plateaus found over those with two e-folds, at the smallest scale",
        statistic=lambda run: float(
            found(run).isel(scale=-1).sum() / max(int(predicted(run, FEW).isel(scale=-1).sum()), 1)
        ),
    ),
)
