"""Statistics of alignment along the flow of K and Q."""

import xarray as xr

from saddlescope.papers.softmax_attention.shared.aligned_params import KINDS
from saddlescope.reproduction.claim import Estimate

START = float("-inf")  # ln t


def largest(name: str, kind: str, run: xr.Dataset) -> Estimate:
    """Return the largest value of a variable along the aligned flows of a kind."""
    of = run[name].sel(kind=kind)
    return Estimate(float(of.max()), remark=f"{of.sizes['instance']} flows to ln t = 1e6")


def smallest_broken_alignment(run: xr.Dataset) -> Estimate:
    """Return the smallest final residual on data without (iii)."""
    of = run.alignment.sel(kind=KINDS[2]).isel(log_time=-1)
    return Estimate(float(of.min()), remark=f"{of.sizes['instance']} flows, up to {float(of.max()):.2g}")


def _change(run: xr.Dataset, since: float) -> xr.DataArray:
    """Return the residual at the end over that at an earlier time."""
    residual = run.perturbed_alignment
    k = 0 if since < 0 else int(abs(run.log_time.values - since).argmin())
    return residual.isel(log_time=-1) / residual.isel(log_time=k)


def least_change(since: float, run: xr.Dataset) -> Estimate:
    """Return the smallest change of the residual of a perturbed start since a time."""
    change = _change(run, since)
    return Estimate(float(change.min()), remark=f"{change.size} flows; median {float(change.median()):.2g}")


def most_change(run: xr.Dataset) -> Estimate:
    """Return the largest change of the residual of a perturbed start since the start."""
    change = _change(run, START)
    return Estimate(float(change.max()), remark=f"{change.size} flows; median {float(change.median()):.2g}")


def largest_excess(run: xr.Dataset) -> Estimate:
    """Return the largest final nuclear-norm excess from the most perturbed starts."""
    last = run.excess.isel(log_time=-1, eta=-1)
    if bool(last.isnull().any()):
        return Estimate.unresolved("A margin of a flow is not positive at its end.")
    return Estimate(float(last.max()), remark=f"{last.size} flows, perturbed by {float(last.eta):g}")
