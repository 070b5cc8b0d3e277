"""Lemma 4.2: gradient flow conserves u² - v², so that w = u + v alone carries the state.

The attention head of Figure 2, followed by DOP853, an explicit solver in the weights (u, v) that does not use the
conservation law (the flow of this package conserves it by construction).

    κ       u² - v², of the size α² for all times (equation 5)
    G       the integral of g over time, so that w = w(0) e^G (equation 6)

One step of gradient descent is u + η v g, v + η u g, and multiplies κ by 1 - η² g² exactly.
"""

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.shared.head_task import HeadParams
from saddlescope.plot import Axis, Figure, Figures, Line, Panel
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param


class Params(HeadParams, seed=2):
    """The toy task of appendix A; the paper proves the lemma and runs nothing for it."""

    log10_scale: float = param(-2.0, "log10 of the initial scale α", ge=-4.0, le=-0.1)
    until: float = param(105.0, "end of the simulation in rescaled time", unit="log(1/α)", gt=0)
    records: int = param(211, "number of evenly spaced times at which weights are compared", ge=2)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Solve equation 4 in (u, v) by DOP853, with G as a further unknown."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    from scipy.integrate import solve_ivp

    with jax.enable_x64(True):
        task = params.task()
        p, alpha = task.u0.size, 10.0**params.log10_scale
        unit, furthest = -np.log(alpha), 0.0
        gradient = eqx.filter_jit(lambda network, beta: network.value_and_gradient(beta)[1])

        def slope(t: float, state: np.ndarray) -> np.ndarray:
            u, v = state[:p], state[p : 2 * p]
            g = -np.asarray(gradient(task.network, jnp.asarray(u * v)))
            nonlocal furthest
            furthest = max(furthest, t / unit)  # the solver's stages and second tries go back in time
            context.report(furthest / params.until, f"DOP853, t / log(1/α) = {furthest:.3g}")
            return np.concatenate([v * g, u * g, g])

        times = np.linspace(0, params.until, params.records)
        start = np.concatenate([alpha * task.u0, alpha * task.v0, np.zeros(p)])
        solution = solve_ivp(
            slope, (0, params.until * unit), start, "DOP853", t_eval=times * unit, rtol=1e-13, atol=1e-13 * alpha
        )
    paths = dict(zip(("u", "v", "integral_of_g"), solution.y.T.reshape(-1, 3, p).transpose(1, 0, 2), strict=True))
    return xr.Dataset(
        {name: (("time", "coordinate"), path) for name, path in paths.items()},
        coords={"time": ("time", times, {"units": "t / log(1/alpha)"}), "coordinate": np.arange(p)},
    )


def _kappa(run: xr.Dataset) -> xr.DataArray:
    """Return κ = u² - v², without cancellation."""
    return (run.u - run.v) * (run.u + run.v)


def _largest_weight(run: xr.Dataset) -> float:
    return float(max(abs(run.u).max(), abs(run.v).max()))


def _w(run: xr.Dataset) -> xr.DataArray:
    """Return w from w(0) and G alone, by equation 6."""
    return (run.u + run.v).isel(time=0) * np.exp(run.integral_of_g)


claims = Claims(
    limits="One head at α = 0.01; the bounds are a thousand times what thousands of steps of DOP853 leave at rtol "
    "1e-13. Errors are relative to the largest weight, which is much larger than u² − v² itself. g is equation "
    "4's. Equation 7 follows from 5 by algebra."
)


@claims.printed(
    "conserved", "Gradient flow of diagonal weights conserves each u² − v²", "Lemma 4.2, equation 5", high=1e-10
)
def _drift(run: xr.Dataset) -> Estimate:
    """Largest change over time of u² − v², relative to the largest squared weight."""
    return Estimate(float(abs(_kappa(run) - _kappa(run).isel(time=0)).max()) / _largest_weight(run) ** 2)


@claims.printed(
    "equation-6", "In gradient flow of diagonal weights, u + v grows by the factor exp(∫g dt)", "Equation 6", high=1e-10
)
def _equation_6_error(run: xr.Dataset) -> Estimate:
    """Largest error of this law, relative to the largest weight."""
    return Estimate(float(abs(run.u + run.v - _w(run)).max()) / _largest_weight(run))


@claims.printed(
    "equation-7", "In gradient flow of diagonal weights, u + v, u(0) and v(0) give u and v", "Equation 7", high=1e-10
)
def _equation_7_error(run: xr.Dataset) -> Estimate:
    """Largest error of a weight computed from u + v and the initial u² − v², relative to the largest weight."""
    w, kappa = _w(run), _kappa(run).isel(time=0)
    u, v = (w + kappa / w) / 2, (w - kappa / w) / 2
    return Estimate(float(max(abs(u - run.u).max(), abs(v - run.v).max())) / _largest_weight(run))


def figures(run: xr.Dataset) -> Figures:
    """Draw the error of equations 5 to 7 over time."""
    late = run.isel(time=slice(1, None))  # at time 0 nothing is lost, which a logarithmic axis cannot show
    size, kappa = _largest_weight(run), _kappa(run)
    errors = {"u² − v²": (kappa - kappa.isel(time=0)) / size**2, "u + v, equation 6": (run.u + run.v - _w(run)) / size}
    marks = []
    for k, (name, error) in enumerate(errors.items()):
        worst = abs(error).max("coordinate").sel(time=late.time).values
        marks.append(Line(x=late.time.values, y=np.maximum(worst, 1e-18), label=name, color=k))
    yield Figure(
        name="conservation",
        title="Errors of the conservation law and of equation 6 over time",
        caption="Largest error over pairs of weights, relative to the largest weight or its square.",
        panels=(Panel(x=Axis("time / log(1/α)"), y=Axis("error", scale="log"), marks=tuple(marks)),),
    )


entry = Entry(
    "gradual-rank/lemma-4-2",
    "Lemma 4.2: gradient flow conserves u² − v², and u + v carries the state",
    source="Lemma 4.2, Section 4.1",
    quick=dict(samples=100, tokens=5, dim=8, until=24.0, records=49),
)
