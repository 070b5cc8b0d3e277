"""Statistics of a run of the entry on resolved stages."""

from math import log

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate

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


def sufficient_share(run: xr.Dataset, *, visible: bool = False) -> Estimate:
    """Return the share found of the plateaus with log(1/level) e-folds, all or the visible ones, at all scales."""
    there = (run.efolds >= enough(run)) & ((run.least > run.attrs["level"]) if visible else True)
    hits = int((there & (run.found == 1)).sum())
    return Estimate.share(hits, int(there.sum()), f"{hits} of {int(there.sum())} plateaus")


def _ratio(over: xr.DataArray, under: xr.DataArray) -> Estimate:
    """Return the ratio of two numbers of plateaus, summed over scales: its mean over dimensions and seeds."""
    top, bottom = over.sum("scale").values.ravel(), under.sum("scale").values.ravel()
    some = bottom > 0
    told = f"{int(top.sum())} against {int(bottom.sum())}"
    return Estimate.mean((top[some] / bottom[some]).astype(np.float64), told)


def found_over_predicted(run: xr.Dataset, *, efolds: float | None = None) -> Estimate:
    """Return plateaus found over those predicted, from alpha = 1e-4 on."""
    late = _late(run)
    return _ratio(found(late), predicted(late, enough(run) if efolds is None else efolds))


def classified_share(run: xr.Dataset) -> Estimate:
    """Return the share of plateaus that a threshold of FEW e-folds classifies as found or not, from alpha = 1e-4 on."""
    late = _late(run)
    there = late.efolds.notnull()
    right = int((((late.efolds >= FEW) == (late.found == 1)) & there).sum())
    return Estimate.share(right, int(there.sum()), f"{right} of {int(there.sum())} plateaus")


def held_over_found(run: xr.Dataset) -> Estimate:
    """Return plateaus that are held over those found in the predicted middles, at the two smallest scales."""
    smallest = run.isel(scale=slice(-2, None))
    return _ratio(smallest.held, found(smallest))


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


def dimension_effect(run: xr.Dataset) -> Estimate:
    """Return the share of plateaus found at alpha = 1e-8 at the smallest dimension less that at the largest."""
    if run.sizes["dim"] < 2 or -8.0 not in run.scale.values:
        return Estimate.unresolved("It takes two dimensions, and alpha = 1e-8.")
    shares = found(run).sel(scale=-8.0) / run.plateaus
    low, high = (Estimate.mean(shares.isel(dim=k).values) for k in (0, -1))
    told = f"{low.value:.2f} at dimension {int(run.dim[0])}, {high.value:.2f} at {int(run.dim[-1])}"
    return Estimate(low.value - high.value, (low.uncertainty**2 + high.uncertainty**2) ** 0.5, told)
