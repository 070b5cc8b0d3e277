"""Statistics of the KKT residuals with both multipliers."""

import math

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate

KINDS = ("conditioned", "Gaussian")


MULTIPLIERS = ("paper's", "incremental")


T10, T100 = 10 * math.log(10), 100 * math.log(10)  # ln t at t = 1e10 and 1e100


def _stationarity_at(run: xr.Dataset, kind: str, log_time: float, multiplier: str) -> np.ndarray:
    """Return epsilon of all flows of a kind at one time."""
    chosen = run.stationarity.sel(kind=kind, multiplier=multiplier).sel(log_time=log_time, method="nearest")
    return chosen.values.ravel()


def largest_stationarity(log_time: float, well: bool, run: xr.Dataset) -> Estimate:
    """Return the incremental multiplier's largest epsilon, of all conditioned instances or of well-conditioned ones."""
    values = _stationarity_at(run, KINDS[0], log_time, MULTIPLIERS[1])
    constants = run.incremental_constant.sel(kind=KINDS[0]).values.ravel()
    chosen = values[constants <= 1] if well else values
    if not len(chosen):
        return Estimate.unresolved("No instance of the run has a constant of at most 1.")
    remark = f"{len(chosen)} of {len(values)} flows; median {np.median(chosen):.2g}"
    return Estimate(float(chosen.max()), remark=f"{remark}; the largest constant is {float(constants.max()):.3g}")


def smallest_stationarity(run: xr.Dataset) -> Estimate:
    """Return the smallest epsilon of the paper's multiplier at ln t = 1e6, conditioned instances."""
    values = _stationarity_at(run, KINDS[0], 1e6, MULTIPLIERS[0])
    return Estimate(float(values.min()), remark=f"{len(values)} flows, up to {float(values.max()):.2g}")


def paper_law_error(kind: str, since: float, run: xr.Dataset) -> Estimate:
    """Return the largest relative error of the law of the paper's multiplier, from a time on."""
    of = run.sel(kind=kind, multiplier=MULTIPLIERS[0])
    of = of.isel(log_time=of.log_time.values > 0.999 * since)
    ratio = of.stationarity * np.log(of.margin) / of.paper_constant
    return Estimate(float(abs(ratio - 1).max()))


def incremental_law_error(run: xr.Dataset) -> Estimate:
    """Return the largest relative error of the law of the incremental multiplier at ln t = 1e4."""
    of = run.sel(kind=KINDS[0], multiplier=MULTIPLIERS[1]).sel(log_time=1e4, method="nearest")
    return Estimate(float(abs(of.stationarity * of.margin / of.incremental_constant - 1).max()))


def slackness_law_error(since: float, run: xr.Dataset) -> Estimate:
    """Return the largest relative error of the law of delta, from a time on."""
    of = run.sel(kind=KINDS[0], multiplier=MULTIPLIERS[1])
    of = of.isel(log_time=of.log_time.values > 0.999 * since)
    return Estimate(float(abs(of.slackness * of.margin / of.slackness_constant - 1).max()))


def largest_distance(run: xr.Dataset) -> Estimate:
    """Return the largest epsilon' of conditioned instances at ln t = 1e3."""
    return Estimate(float(run.distance.sel(kind=KINDS[0]).sel(log_time=1e3, method="nearest").max()))


def certified_share(run: xr.Dataset) -> Estimate:
    """Return the share of Gaussian instances certified to 1e-2 at t = 1e100, from the first scale alone."""
    values = _stationarity_at(run.isel(scale=[0]), KINDS[1], T100, MULTIPLIERS[1])
    return Estimate.share((values <= 1e-2).sum(), len(values))


def gaussian_exceptions(run: xr.Dataset) -> Estimate:
    """Count the Gaussian flows whose epsilon is not smaller at ln t = 1e6 than at t = 1e10."""
    early, late = (_stationarity_at(run, KINDS[1], log_time, MULTIPLIERS[1]) for log_time in (T10, 1e6))
    remark = f"of {len(early)} flows; medians {np.nanmedian(early):.2g} and {np.nanmedian(late):.2g}"
    return Estimate(float(np.sum(~(late < early))), remark=remark)
