"""Statistics of the norms and losses of both flows."""

import xarray as xr

from saddlescope.reproduction.claim import Estimate

WEIGHTS, FACTORS = "W alone", "keys and queries"


def _both(run: xr.Dataset, norm: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the excess of a norm along W alone and along keys and queries."""
    return run[norm].sel(flow=WEIGHTS), run[norm].sel(flow=FACTORS)


def _count(run: xr.Dataset, holds: xr.DataArray) -> Estimate:
    hits = int(holds.sum())
    return Estimate(hits / run.sizes["draw"], remark=f"{hits} of {run.sizes['draw']} draws")


def share_below(run: xr.Dataset, *, from_start: bool) -> Estimate:
    """Return the share of draws with keys and queries below W alone, at the last or at all times."""
    alone, pairs = _both(run, "nuclear")
    below = pairs < alone
    return _count(run, below.all("time") if from_start else below.isel(time=-1))


def falling_share(run: xr.Dataset) -> Estimate:
    """Return the share of draws whose nuclear excess of keys and queries falls at all times."""
    return _count(run, (_both(run, "nuclear")[1].diff("time") < 0).all("time"))


def remaining_excess(run: xr.Dataset) -> Estimate:
    """Return the largest part of the first nuclear excess that remains at the last time."""
    pairs = _both(run, "nuclear")[1]
    ratio = pairs.isel(time=-1) / pairs.isel(time=0)
    return Estimate(float(ratio.max(skipna=False)), remark=f"median {float(ratio.median()):.3g}")


def last_excess(run: xr.Dataset, norm: str, of: str, *, largest: bool) -> Estimate:
    """Return the largest or smallest excess over the draws at the last time."""
    last = run[norm].sel(flow=of).isel(time=-1)
    value = last.max(skipna=False) if largest else last.min(skipna=False)
    return Estimate(float(value), remark=f"median {float(last.median()):.3g} of {run.sizes['draw']} draws")


def loss_law_error(run: xr.Dataset, of: str, log10_time: float | None) -> Estimate:
    """Return the largest relative deviation of the loss from its law, at a time or at the last."""
    ratio = run.loss_ratio.sel(flow=of).isel(
        time=-1 if log10_time is None else int((run.log10_time.values == log10_time).argmax())
    )
    off = abs(ratio - 1)
    return Estimate(float(off.max(skipna=False)), remark=f"median {float(off.median()):.2g}")
