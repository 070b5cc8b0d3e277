"""The claims of Lemma 4.2, with their bounds and sources."""

from collections.abc import Callable

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Claims, Estimate

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


def _w(run: xr.Dataset) -> xr.DataArray:
    """Return equation 6: w from w(0) and G alone."""
    return (run.u + run.v).isel(time=0) * np.exp(run.integral_of_g)


def kappa_decay(run: xr.Dataset) -> xr.DataArray:
    """Return the decay of kappa's logarithm under gradient descent at the end, by learning rate and coordinate."""
    with np.errstate(invalid="ignore"):
        return -np.log(run.descent_kappa.isel(time=-1) / conserved_kappa(run).isel(time=0))


_SIGN_LOST = "Descent has changed the sign of u^2 - v^2; lower the learning rates."


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


# The bounds. What is exact is held to 1e-10, a thousand times what thousands of steps of DOP853 at rtol 1e-13 leave.
claims = Claims()

claims.add(
    "conserved",
    "An explicit solver in (u, v), at alpha = 0.01, keeps u^2 - v^2",
    quantity="largest drift, relative to the largest squared weight",
    kind="printed",
    source="Lemma 4.2, equation 5",
    high=1e-10,
)(kappa_drift("u", "v"))

claims.add(
    "flow-conserves",
    "So do the weights that the flow of this package reconstructs",
    quantity="largest drift",
    kind="printed",
    source="Lemma 4.2, equation 5",
    high=1e-10,
)(kappa_drift("flow_u", "flow_v"))


@claims.add(
    "flow-agrees",
    "Both are the same trajectory",
    quantity="largest difference of a weight",
    kind="printed",
    source="A tolerance of 1e-8 in stage times of about 100, with weights that move by about 1 in a unit of time",
    high=1e-6,
)
def trajectory_difference(run: xr.Dataset) -> Estimate:
    """Return the largest difference of a weight between the explicit solver and the flow."""
    return Estimate(float(max(abs(run.flow_u - run.u).max(), abs(run.flow_v - run.v).max())))


@claims.add(
    "equation-6",
    "w = u + v is w(0) times the exponential of the integral of g",
    quantity="largest difference, relative to the largest weight",
    kind="printed",
    source="Equation 6",
    high=1e-10,
)
def equation_6_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of equation 6, relative to the largest weight."""
    return Estimate(float(abs(run.u + run.v - _w(run)).max()) / _weight(run))


@claims.add(
    "equation-7",
    "u and v follow from w and the initial weights",
    quantity="largest difference, relative to the largest weight",
    kind="printed",
    source="Equation 7",
    high=1e-10,
)
def equation_7_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of equation 7, relative to the largest weight."""
    w, kappa = _w(run), conserved_kappa(run).isel(time=0)
    u, v = (w + kappa / w) / 2, (w - kappa / w) / 2
    return Estimate(float(max(abs(u - run.u).max(), abs(v - run.v).max())) / _weight(run))


@claims.add(
    "descent-power",
    "Gradient descent lets the logarithm of u^2 - v^2 decay in proportion to the learning rate",
    quantity="power",
    kind="printed",
    source="A step multiplies it by 1 - eta^2 g^2",
    low=0.95,
    high=1.05,
)
def decay_power(run: xr.Dataset) -> Estimate:
    """Return the power of the learning rate in the decay of kappa."""
    decay = kappa_decay(run).median("coordinate", skipna=False).values
    if not (decay > 0).all():
        return Estimate.unresolved(_SIGN_LOST)
    return Estimate(float(np.polyfit(np.log(run.rate.values), np.log(decay), 1)[0]))


@claims.add(
    "descent-law",
    "At the smallest learning rate by eta times the integral of g^2",
    quantity="largest relative deviation",
    kind="printed",
    source="A step multiplies it by 1 - eta^2 g^2; 5 % for the next order in eta",
    high=0.05,
)
def decay_law_deviation(run: xr.Dataset) -> Estimate:
    """Return the largest relative deviation from eta times the integral of g^2, at the smallest learning rate."""
    first_order = run.rate * run.integral_of_g2.isel(time=-1)
    deviation = abs(kappa_decay(run) / first_order - 1).isel(rate=-1)
    if deviation.isnull().any():
        return Estimate.unresolved(_SIGN_LOST)
    return Estimate(float(deviation.max()))


claims.add(
    "held-by-float64",
    "At alpha = 0.01 float64 weights tell u^2 - v^2",
    quantity="largest relative error of a learned coordinate",
    kind="printed",
    source="A rounding of 1e-16 beside alpha^2",
    high=1e-9,
)(rounding_error(-2.0, "max"))

claims.add(
    "lost-by-float64",
    "At alpha = 1e-16 they do not, for any coordinate that has been learned",
    quantity="smallest relative error",
    kind="printed",
    source="A rounding of 1e-16 beside alpha^2",
    low=1.0,
)(rounding_error(-16.0, "min"))
