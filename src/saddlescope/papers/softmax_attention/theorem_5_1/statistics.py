"""Statistics of aligned flows, their quadratures and the solutions of the nuclear-norm problem."""

import math

import xarray as xr

from saddlescope.papers.softmax_attention.shared.aligned_params import KINDS
from saddlescope.reproduction.claim import Estimate

FLOWS = ("keys and queries", "W alone")


T100 = 100 * math.log(10)  # ln t at t = 1e100


def assumptions_share(run: xr.Dataset) -> Estimate:
    """Return the share of instances that meet all assumptions of the theorem."""
    of = run.sel(kind=KINDS[0])
    remark = (
        f"{int(of.against.sum())} queries of {of.sizes['instance'] * of.sizes['sample']} point against their tokens"
    )
    return Estimate(float(of.assumptions.mean()), remark=remark)


def quadrature_error(kind: str, flow: str, run: xr.Dataset) -> Estimate:
    """Return the largest relative error of a flow against its quadrature."""
    of = run.error.sel(kind=kind, flow=flow)
    return Estimate(float(of.max()), remark=f"{of.sizes['instance']} flows, {of.sizes['log_time']} times to ln t = 1e6")


def largest_excess(flow: str, run: xr.Dataset) -> Estimate:
    """Return the largest final nuclear-norm excess of a flow."""
    return Estimate(float(run.excess.sel(kind=KINDS[0], flow=flow).isel(log_time=-1).max()))


def largest(name: str, run: xr.Dataset) -> Estimate:
    """Return the largest value of a variable."""
    return Estimate(float(run[name].max()))


def loss_law_error(run: xr.Dataset) -> Estimate:
    """Return the largest relative error of the law of the loss at t = 1e100."""
    return Estimate(float(abs(run.loss_law.sel(log_time=T100, method="nearest")).max()))


def second_solution_distance(run: xr.Dataset) -> Estimate:
    """Return the smallest relative distance of a second solution from the limit."""
    worst = float(run.second_defect.max())
    if worst > 1e-9:
        return Estimate.unresolved(f"What was to be a second solution misses a margin or the optimum by {worst:.2g}.")
    return Estimate(float(run.second_distance.min()), remark=f"second solutions are solutions to {worst:.1g}")
