"""Claims on the KKT residuals with both multipliers."""

import math
from functools import partial

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Claims, Estimate

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


def paper_law_error(kind: str, since: float, run: xr.Dataset) -> Estimate:
    """Return the largest relative error of the law of the paper's multiplier, from a time on."""
    of = run.sel(kind=kind, multiplier=MULTIPLIERS[0])
    of = of.isel(log_time=of.log_time.values > 0.999 * since)
    ratio = of.stationarity * np.log(of.margin) / of.paper_constant
    return Estimate(float(abs(ratio - 1).max()))


def slackness_law_error(since: float, run: xr.Dataset) -> Estimate:
    """Return the largest relative error of the law of delta, from a time on."""
    of = run.sel(kind=KINDS[0], multiplier=MULTIPLIERS[1])
    of = of.isel(log_time=of.log_time.values > 0.999 * since)
    return Estimate(float(abs(of.slackness * of.margin / of.slackness_constant - 1).max()))


_THEIRS = "The paper's multiplier"

_OURS = "The incremental multiplier, conditioned instances"

_BAR = "Theorem 4.1, which has no rate; the bound is this project's bar"

# The bounds were written down before the run. Pilots: instances of seeds 1000 to 1007, from omega_0 = 0.3 and 0.03.
claims = Claims()

claims.add(
    "paper-law",
    f"{_THEIRS}, conditioned instances: epsilon ln mu is its constant from t = 1e100 on",
    quantity="largest relative error",
    kind="own",
    source="(C1) with equation 37 of appendix A.5, which has no rate; this project's law, 1 %",
    high=0.01,
)(partial(paper_law_error, KINDS[0], T100))

claims.add(
    "paper-law-raw",
    "The same on raw Gaussian data",
    quantity="value",
    kind="printed",
    source="the same; 30 %, from the pilot (11 %)",
    high=0.3,
)(partial(paper_law_error, KINDS[1], T100))

claims.add(
    "paper-law-late",
    "Posed again for conditioned instances from ln t = 1e5 on",
    quantity="value",
    kind="printed",
    source="as paper-law, which was refuted where an entry of the solution is small",
    high=0.01,
)(partial(paper_law_error, KINDS[0], 1e5))


@claims.add(
    "paper-useless",
    f"{_THEIRS} certifies nothing at times that can be written down",
    quantity="smallest epsilon of conditioned instances at ln t = 1e6",
    kind="own",
    source="erratum of this project: by its law it falls like 1 / ln ln t",
    low=0.1,
)
def smallest_stationarity(run: xr.Dataset) -> Estimate:
    """Return the smallest epsilon of the paper's multiplier at ln t = 1e6, conditioned instances."""
    values = _stationarity_at(run, KINDS[0], 1e6, MULTIPLIERS[0])
    return Estimate(float(values.min()), remark=f"{len(values)} flows, up to {float(values.max()):.2g}")


claims.add(
    "incremental-1e100", f"{_OURS}", quantity="largest epsilon at t = 1e100", kind="printed", source=_BAR, high=1e-2
)(partial(largest_stationarity, T100, False))

claims.add(
    "incremental-1e5", f"{_OURS}", quantity="largest epsilon at ln t = 1e5", kind="printed", source=_BAR, high=1e-4
)(partial(largest_stationarity, 1e5, False))


@claims.add(
    "incremental-law",
    f"{_OURS}: epsilon mu is its constant at ln t = 1e4",
    quantity="largest relative error",
    kind="own",
    source="this project's law; 5 %, from the pilot (1.6 %)",
    high=0.05,
)
def incremental_law_error(run: xr.Dataset) -> Estimate:
    """Return the largest relative error of the law of the incremental multiplier at ln t = 1e4."""
    of = run.sel(kind=KINDS[0], multiplier=MULTIPLIERS[1]).sel(log_time=1e4, method="nearest")
    return Estimate(float(abs(of.stationarity * of.margin / of.incremental_constant - 1).max()))


claims.add(
    "well-1e100",
    "Posed again for conditioned instances whose constant, known from the solution, is at most 1",
    quantity="largest epsilon at t = 1e100",
    kind="printed",
    source=f"{_BAR}; incremental-1e100 was refuted where an entry of the solution is small",
    high=1e-2,
)(partial(largest_stationarity, T100, True))

claims.add(
    "well-1e5",
    "And at ln t = 1e5",
    quantity="value",
    kind="printed",
    source=f"{_BAR}; incremental-1e5 was refuted likewise",
    high=1e-4,
)(partial(largest_stationarity, 1e5, True))

claims.add(
    "slackness",
    f"{_OURS}: delta mu is its constant from ln t = 1e3 on",
    quantity="largest relative error",
    kind="own",
    source="(C3), with this project's law; 1 %",
    high=0.01,
)(partial(slackness_law_error, 1e3))

claims.add(
    "slackness-late",
    "Posed again from ln t = 1e5 on",
    quantity="value",
    kind="printed",
    source="as above; the claim before was refuted where an entry of the solution is small",
    high=0.01,
)(partial(slackness_law_error, 1e5))


@claims.add(
    "distance",
    "Conditioned instances",
    quantity="largest epsilon' at ln t = 1e3",
    kind="own",
    source="Theorem 4.1; the bound is this project's bar on directions",
    high=1e-3,
)
def largest_distance(run: xr.Dataset) -> Estimate:
    """Return the largest epsilon' of conditioned instances at ln t = 1e3."""
    return Estimate(float(run.distance.sel(kind=KINDS[0]).sel(log_time=1e3, method="nearest").max()))


@claims.add(
    "raw-certified",
    "Raw Gaussian data stay away",
    quantity="share of instances where the incremental multiplier has an epsilon of at most 1e-2 at t = 1e100",
    kind="own",
    source="this project's, from the pilot (0 of 8)",
    high=0.5,
)
def certified_share(run: xr.Dataset) -> Estimate:
    """Return the share of Gaussian instances certified to 1e-2 at t = 1e100, from the first scale alone."""
    values = _stationarity_at(run.isel(scale=[0]), KINDS[1], T100, MULTIPLIERS[1])
    return Estimate.share((values <= 1e-2).sum(), len(values))


@claims.add(
    "raw-falls",
    "And yet its epsilon is smaller at ln t = 1e6 than at t = 1e10",
    quantity="exceptions",
    kind="printed",
    source="Theorem 4.1, where the limit exists; exact count",
    high=0.0,
)
def gaussian_exceptions(run: xr.Dataset) -> Estimate:
    """Count the Gaussian flows whose epsilon is not smaller at ln t = 1e6 than at t = 1e10."""
    early, late = (_stationarity_at(run, KINDS[1], log_time, MULTIPLIERS[1]) for log_time in (T10, 1e6))
    remark = f"of {len(early)} flows; medians {np.nanmedian(early):.2g} and {np.nanmedian(late):.2g}"
    return Estimate(float(np.sum(~(late < early))), remark=remark)
