"""Claims on the norm that each flow minimises, and on the laws of its loss."""

from functools import partial

import xarray as xr

from saddlescope.reproduction.claim import Claims, Estimate

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


claims = Claims()

claims.add(
    "frobenius",
    "W alone",
    quantity="the Frobenius norm is minimised; largest excess at the last time",
    kind="printed",
    source="Section 4.2 after Tarzanagh et al. (2023a); excess is O(1 / ln t), the bound from trial runs on other seeds",
    high=1e-4,
)(partial(last_excess, norm="frobenius", of=WEIGHTS, largest=True))


@claims.add(
    "nuclear",
    "Keys and queries, as printed, outside Assumption 4",
    quantity="the nuclear norm is minimised; largest part of the excess at t = 1e10 that is left at the last time",
    kind="printed",
    source="Section 4.2; no proof and no rate outside Assumption 4, the bound from trial runs on other seeds",
    high=0.25,
)
def remaining_excess(run: xr.Dataset) -> Estimate:
    """Return the largest part of the first nuclear excess that remains at the last time."""
    pairs = _both(run, "nuclear")[1]
    ratio = pairs.isel(time=-1) / pairs.isel(time=0)
    return Estimate(float(ratio.max(skipna=False)), remark=f"median {float(ratio.median()):.3g}")


@claims.add(
    "falls",
    "The nuclear excess of keys and queries falls between all recorded times",
    quantity="part of the draws",
    kind="own",
    source="This project's, every draw",
    low=1.0,
)
def falling_share(run: xr.Dataset) -> Estimate:
    """Return the share of draws whose nuclear excess of keys and queries falls at all times."""
    return _count(run, (_both(run, "nuclear")[1].diff("time") < 0).all("time"))


claims.add(
    "below",
    "It is below that of W alone at the last time",
    quantity="part of the draws",
    kind="printed",
    source="Section 4.2; every draw",
    low=1.0,
)(partial(share_below, from_start=False))

claims.add(
    "below-from-the-first",
    "It is below that of W alone at all recorded times",
    quantity="part of the draws",
    kind="own",
    source="This project's, stronger than what section 4.2 says; every draw",
    low=1.0,
)(partial(share_below, from_start=True))

claims.add(
    "not-nuclear",
    "W alone does not minimise the nuclear norm",
    quantity="smallest excess at the last time",
    kind="own",
    source="Section 4.2; the bound this project's, far above what is left at that time",
    low=0.01,
)(partial(last_excess, norm="nuclear", of=WEIGHTS, largest=False))

claims.add(
    "not-frobenius",
    "Keys and queries do not minimise the Frobenius norm",
    quantity="smallest excess at the last time",
    kind="own",
    source="Section 4.2; the bound this project's",
    low=0.01,
)(partial(last_excess, norm="frobenius", of=FACTORS, largest=False))

claims.add(
    "loss-of-weights",
    "W alone",
    quantity="t (L - L*) is |W_F|_F^2 at t = 1e100; largest relative deviation",
    kind="own",
    source="This project's law, from W = W_F ln t + O(1); the bound is its bar",
    high=1e-4,
)(partial(loss_law_error, of=WEIGHTS, log10_time=100.0))

claims.add(
    "loss-of-factors",
    "Keys and queries",
    quantity="t mu (L - L*) is |W_*|_* / 2 at the last time; largest relative deviation",
    kind="own",
    source="This project's law, the nuclear counterpart of the diagonal one, without a proof; the bound from trial runs on other seeds",
    high=0.03,
)(partial(loss_law_error, of=FACTORS, log10_time=None))
