"""Statistics behind the claims of the entry `generalisation_map`."""

import xarray as xr

from saddlescope.papers.concept_learning.generalisation_map.simulations import LEARNED
from saddlescope.reproduction.claim import Estimate

_SMALL = 0.0011  # scales up to here are small starts
_CLEAR = 0.05  # predicted outputs nearer to one half than this are on the border
_APART = 1 / 3  # share up to which the strengths differ by a factor of 2, and concepts come one after the other


# The bounds: the theory is that of small starts and well separated stages, with no rate; how near the runs come to it
# was seen in pilots on other seeds.
def border_share(run: xr.Dataset, *, model: str) -> Estimate:
    """Return the share of starts that fail at the stop just where the theory says, away from the border."""
    one = run.sel(model=model)
    judged = one.at_stop.where(abs(one.output - LEARNED) > _CLEAR)
    right = ((judged < LEARNED) == (one.output < LEARNED)) & judged.notnull()
    return Estimate.share(
        float(right.sum()), float(judged.count()), f"{int(right.sum())} of {int(judged.count())} starts"
    )


def _largest_error(off: xr.DataArray) -> Estimate:
    if not int(off.count()):
        return Estimate.unresolved(f"No start of a scale up to {_SMALL:g} came so far by the horizon.")
    return Estimate(float(off.max()), remark=f"{int(off.count())} starts; mean {float(off.mean()):.2g}")


def output_error(run: xr.Dataset, *, model: str, apart: bool = True) -> Estimate:
    """Return the largest error of the predicted output at the stop, of small starts."""
    one = run.sel(model=model, scale=slice(None, _SMALL))
    off = abs(one.at_stop - one.output)
    return _largest_error(off.where(one.share <= _APART) if apart else off)


def time_error(run: xr.Dataset, *, model: str) -> Estimate:
    """Return the largest relative error of the time at which the last concept is learned, of small starts."""
    one = run.sel(model=model, scale=slice(None, _SMALL))
    return _largest_error(abs(one.learned / one.predicted - 1).where(one.share <= _APART))


def budget_share(run: xr.Dataset, *, model: str) -> Estimate:
    """Return the share of starts that generalize within the budget just where the predicted last stage does."""
    one = run.sel(model=model)
    right = (one.at_budget >= LEARNED) == (one.predicted <= run.attrs["budget"])
    return Estimate.share(float(right.sum()), right.size, f"{int(right.sum())} of {right.size} starts")


def failed_share(run: xr.Dataset) -> xr.DataArray:
    """Return the share of starts in each cell that fail at the stop; NaN where not all have come to it."""
    return (run.at_stop < LEARNED).where(run.at_stop.notnull()).mean("start", skipna=False)


def scale_effect(run: xr.Dataset) -> Estimate:
    """Return the difference between the shares that fail at the stop at the smallest and the largest scale."""
    if run.sizes["scale"] < 2:
        return Estimate.unresolved("There are no two scales.")
    shares = failed_share(run)
    shares = shares.where(shares.notnull().all("scale")).mean(["model", "diverse", "ratio", "sigma"])
    return Estimate(float(abs(shares[0] - shares[-1])), remark=_by_value(shares))


def diversity_effect(run: xr.Dataset, *, diverse: str, least: bool = False) -> Estimate:
    """Return the share that fails at the stop at the largest sigma less that at the smallest, or the least."""
    if run.sizes["sigma"] < 2:
        return Estimate.unresolved("There are no two diversities.")
    shares = failed_share(run).sel(diverse=diverse)
    shares = shares.where(shares.notnull().all("sigma")).mean(["model", "ratio", "scale"])
    return Estimate(float(shares[-1] - (shares.min() if least else shares[0])), remark=_by_value(shares))


def _by_value(shares: xr.DataArray) -> str:
    """Return the values over one axis as a string."""
    along = shares[shares.dims[0]].values
    return ", ".join(f"{value:.3f} at {at:g}" for value, at in zip(shares.values, along, strict=True))
