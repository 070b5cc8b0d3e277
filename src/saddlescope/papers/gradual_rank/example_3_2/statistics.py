"""Statistics of a run of Example 3.2."""

from collections.abc import Callable

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate

ORDERS = ("limit", "finite")
"""The two predictions of a stage's time: T_k, and T_k + C_k / log(1/alpha)."""


def smallest_scale(run: xr.Dataset) -> xr.Dataset:
    """Return the run at its smallest initial scale."""
    return run.isel(scale=-1)


def _relative_errors(run: xr.Dataset, order: str) -> xr.DataArray:
    """Return |t_k / prediction - 1| of the stages compared with the flow; infinite where one was missed."""
    told, found = run.told_time.sel(order=order), run.found_time.sel(order=order)
    return abs(found / told - 1).fillna(np.inf).where(run.held)


def deepest_network(run: xr.Dataset) -> xr.Dataset:
    """Return the deepest of the networks with the fewest heads, at the smallest scale, without empty places."""
    fewest = run.isel(network=(run.heads == run.heads.min()).values)
    one = smallest_scale(fewest.isel(network=int(fewest.layers.values.argmax())))
    size = 2 * int(one.layers) * int(one.heads) * run.attrs["dim"]
    return one.isel(coordinate=slice(size), stage=one.predicted_time.notnull().values)


def missed_stages(order: str) -> Callable[[xr.Dataset], Estimate]:
    """Return the statistic of the stages outside their window, under one of the two predictions."""

    def statistic(run: xr.Dataset) -> Estimate:
        network = deepest_network(run)
        missed = network.held & network.found_time.sel(order=order).isnull()
        return Estimate(float(missed.sum()), remark=f"{network.network.item()}: {int(network.held.sum())} stages")

    return statistic


def median_error(order: str) -> Callable[[xr.Dataset], Estimate]:
    """Return the statistic of the median relative error of one of the two predictions."""

    def statistic(run: xr.Dataset) -> Estimate:
        network = deepest_network(run)
        error = float(_relative_errors(network, order).median())
        remark = f"{network.network.item()}: {int(network.held.sum())} stages"
        return Estimate(error, 3 * run.attrs["tolerance"], remark)

    return statistic


def product_dependence(run: xr.Dataset) -> Estimate:
    """Return the largest change of the output at equal products of weights, over networks."""
    return Estimate(float(run.product_error.max()))


def rank_rises(run: xr.Dataset) -> Estimate:
    """Return the most newcomers to the support between consecutive resolved plateaus, with one head a layer."""
    rises = []
    for network in run.network.values[(run.heads == 1).values]:
        one = smallest_scale(run).sel(network=network).transpose("stage", ...)
        learned = (abs(one.plateau_beta) > run.attrs["level"]).values
        learned = np.vstack([np.zeros_like(learned[:1]), learned])
        resolved = np.append(True, one.resolved.values)
        newcomers = (learned[1:] & ~learned[:-1]).sum(1)
        rises.extend(newcomers[resolved[1:] & resolved[:-1]])
    if not rises:
        return Estimate.unresolved("No network of one head has consecutive plateaus that the smallest scale resolves.")
    return Estimate(float(max(rises)), remark=f"{len(rises)} stages")


def wrong_coordinates(run: xr.Dataset) -> Estimate:
    """Return the most coordinates learned or not against the prediction on a resolved plateau."""
    last = smallest_scale(run)
    if not bool(last.resolved.any()):
        return Estimate.unresolved("No plateau lasts long enough at this scale; take a smaller one.")
    level = run.attrs["level"]  # a plateau may hold coordinates that have entered, but are predicted below it
    wrong = (abs(last.plateau_beta) > level) != (abs(last.predicted_beta.fillna(0)) > level)
    found = wrong.sum("coordinate").where(last.resolved)
    return Estimate(float(found.max()), remark=f"{int(last.resolved.sum())} plateaus resolved")


def convergence_ratio(run: xr.Dataset) -> Estimate:
    """Return the largest ratio of the median errors at one scale and the one before."""
    if run.sizes["scale"] < 2:
        return Estimate.unresolved("One scale only: there is no sequence that could converge.")
    errors = _relative_errors(run, "limit").median("stage").transpose("network", "scale").values
    return Estimate(float((errors[:, 1:] / errors[:, :-1]).max()), remark=f"{len(errors)} networks")


def correction_gain(run: xr.Dataset) -> Estimate:
    """Return the least factor by which the finite-alpha correction lowers the median error at 1e-32."""
    if -32 not in run.scale.values:
        return Estimate.unresolved("alpha = 1e-32 was not among the scales.")
    limit, finite = (_relative_errors(run.sel(scale=-32), order).median("stage") for order in ORDERS)
    return Estimate(float((limit / finite).min()), remark=f"{run.sizes['network']} networks")


def remaining_loss(run: xr.Dataset) -> Estimate:
    """Return the largest share of the loss that is left at the end of Algorithm 1."""
    if not bool(run.converged.all()):
        stuck = run.isel(network=int(run.converged.values.argmin()))
        return Estimate.unresolved(f"{stuck.network.item()}: {stuck.theory_message.item()}")
    return Estimate(float((run.predicted_loss.min("stage") / run.predicted_loss_curve.isel(time=0)).max()))
