"""Statistics of a run of Lemma 4.2."""

from collections.abc import Callable

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate

LEARNED = 0.1  # |beta_i| from which on a coordinate counts as learned: of order 1


def conserved_kappa(run: xr.Dataset, u: str = "u", v: str = "v") -> xr.DataArray:
    """Return kappa = u^2 - v^2 of the stored weights, without cancellation."""
    return (run[u] - run[v]) * (run[u] + run[v])


def _weight(run: xr.Dataset) -> float:
    """Return the largest weight of the run."""
    return float(max(abs(run.u).max(), abs(run.v).max()))


def kappa_drift(u: str, v: str) -> Callable[[xr.Dataset], Estimate]:
    """Return the statistic of kappa's largest drift, relative to the largest squared weight."""

    def measure(run: xr.Dataset) -> Estimate:
        kappa = conserved_kappa(run, u, v)
        return Estimate(float(abs(kappa - conserved_kappa(run).isel(time=0)).max()) / _weight(run) ** 2)

    return measure


def trajectory_difference(run: xr.Dataset) -> Estimate:
    """Return the largest difference of a weight between the explicit solver and the flow."""
    return Estimate(float(max(abs(run.flow_u - run.u).max(), abs(run.flow_v - run.v).max())))


def _w(run: xr.Dataset) -> xr.DataArray:
    """Return equation 6: w from w(0) and G alone."""
    return (run.u + run.v).isel(time=0) * np.exp(run.integral_of_g)


def equation_6_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of equation 6, relative to the largest weight."""
    return Estimate(float(abs(run.u + run.v - _w(run)).max()) / _weight(run))


def equation_7_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of equation 7, relative to the largest weight."""
    w, kappa = _w(run), conserved_kappa(run).isel(time=0)
    u, v = (w + kappa / w) / 2, (w - kappa / w) / 2
    return Estimate(float(max(abs(u - run.u).max(), abs(v - run.v).max())) / _weight(run))


def kappa_decay(run: xr.Dataset) -> xr.DataArray:
    """Return the decay of kappa's logarithm under gradient descent at the end, by learning rate and coordinate."""
    with np.errstate(invalid="ignore"):
        return -np.log(run.descent_kappa.isel(time=-1) / conserved_kappa(run).isel(time=0))


_SIGN_LOST = "Descent has changed the sign of u^2 - v^2; lower the learning rates."


def decay_power(run: xr.Dataset) -> Estimate:
    """Return the power of the learning rate in the decay of kappa."""
    decay = kappa_decay(run).median("coordinate", skipna=False).values
    if not (decay > 0).all():
        return Estimate.unresolved(_SIGN_LOST)
    return Estimate(float(np.polyfit(np.log(run.rate.values), np.log(decay), 1)[0]))


def decay_law_deviation(run: xr.Dataset) -> Estimate:
    """Return the largest relative deviation from eta times the integral of g^2, at the smallest learning rate."""
    first_order = run.rate * run.integral_of_g2.isel(time=-1)
    deviation = abs(kappa_decay(run) / first_order - 1).isel(rate=-1)
    if deviation.isnull().any():
        return Estimate.unresolved(_SIGN_LOST)
    return Estimate(float(deviation.max()))


def rounding_error(log10_scale: float, worst: str) -> Callable[[xr.Dataset], Estimate]:
    """Return the "max" or "min" over the learned coordinates of kappa's relative error at one scale."""

    def measure(run: xr.Dataset) -> Estimate:
        if log10_scale not in run.scale.values:
            return Estimate.unresolved(f"alpha = 1e{log10_scale:g} was not among the scales.")
        at = run.sel(scale=log10_scale)
        learned = abs(at.rounded_beta) >= LEARNED
        if not learned.any():
            return Estimate.unresolved("No coordinate was learned before the simulation ended; raise `until`.")
        value = getattr(at.rounded_error.where(learned), worst)()
        return Estimate(float(value), remark=f"{int(learned.sum())} coordinates learned")

    return measure
