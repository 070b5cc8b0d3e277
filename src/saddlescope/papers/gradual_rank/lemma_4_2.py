"""Lemma 4.2: gradient flow conserves u² - v², gradient descent loses it slowly, and float64 weights lose it below 1e-8.

The attention head of Figure 2. Gradient flow keeps u_i² - v_i² for each coordinate, so that w = u + v alone carries the
state (equations 6 and 7). The flow of this package conserves it by construction; here it is compared with DOP853, an
explicit solver in the weights (u, v) that does not use the conservation law.

    w       u + v; w' = w * g under gradient flow (equation 6)
    κ       u² - v², of the size α² for all times (equation 5)
    G       the integral of g over time, so that w = w(0) e^G
    η       learning rate

One step of gradient descent is u + η v g, v + η u g, and multiplies κ by 1 - η² g² exactly: over a time t the logarithm
of κ falls by η times the integral of g², to first order. Weights of order 1 in float64 are known to 1e-16 only, so that
below α = 1e-8 they do not determine κ.
"""

from functools import partial
from typing import Any, Literal

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.shared.head_task import HeadParams
from saddlescope.plot import Axis, Figure, Line, Panel
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

_LEARNED = 0.1  # |beta_i| from which on a coordinate counts as learned: of order 1


class Params(HeadParams):
    """The toy task of appendix A; the paper proves the lemma and runs nothing for it."""

    seed: int = param(2, "seed of the data, the teacher and the initial weights", ge=0)
    log10_scale: float = param(
        -2.0, "log10 of the initial scale α of the explicit solver and of gradient descent", ge=-4.0, le=-0.1
    )
    log10_scales: tuple[float, ...] = param(
        (-2.0, -4.0, -6.0, -8.0, -10.0, -12.0, -14.0, -16.0),
        "log10 of the initial scales α whose weights are rounded to float64",
        lt=0,
        order="decreasing",
        ge=-150.0,
    )
    learning_rates: tuple[float, ...] = param(
        (1.0, 0.5, 0.25, 0.125), "learning rates of gradient descent", gt=0, order="decreasing", least=2, scale="log"
    )
    until: float = param(105.0, "end of the simulation in rescaled time", unit="log(1/α)", gt=0)
    tolerance: float = param(1e-8, "relative tolerance of the flow's stage times", ge=1e-11, le=1e-2, scale="log")
    records: int = param(211, "number of evenly spaced times at which weights are compared", ge=2)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run the explicit solver, the flow and descent from one scale, and the flow from all, rounded to float64."""
    import jax

    with jax.enable_x64(True):
        task, parts = params.task(), []
        names = {"explicit": _explicit, "flow": _flow, "descent": _descent, "rounded": _rounded}
        for (name, compute), step in context.steps(names.items(), [0.4, 0.2, 0.1, 0.3]):
            parts.append(step.cached(name, partial(compute, task, params, step)))
    return xr.merge(parts, combine_attrs="drop").assign_attrs(log10_scale=params.log10_scale)


def _times(params: Params) -> np.ndarray:
    return np.linspace(0, params.until, params.records)


def _over_time(**arrays: np.ndarray) -> dict[str, tuple]:
    return {name: (("time", "coordinate"), array) for name, array in arrays.items()}


def _start(task: Any, log10_scale: float) -> Any:
    from saddlescope.flow import DiagonalInit

    return DiagonalInit(task.u0, task.v0, log_scale=log10_scale * np.log(10))


def _explicit(task: Any, params: Params, context: RunContext) -> xr.Dataset:
    """Solve equation 4 in (u, v) by DOP853, with G and the integral of g² as further unknowns."""
    import equinox as eqx
    import jax.numpy as jnp
    from scipy.integrate import solve_ivp

    p, alpha = 2 * params.dim, 10.0**params.log10_scale
    unit, furthest = -np.log(alpha), 0.0
    gradient = eqx.filter_jit(lambda network, beta: network.value_and_gradient(beta)[1])

    def slope(t: float, state: np.ndarray) -> np.ndarray:
        u, v = state[:p], state[p : 2 * p]
        g = -np.asarray(gradient(task.network, jnp.asarray(u * v)))
        nonlocal furthest
        furthest = max(furthest, t / unit)  # the solver's stages and second tries go back in time
        context.report(furthest / params.until, f"DOP853, t / log(1/α) = {furthest:.3g}")
        return np.concatenate([v * g, u * g, g, g * g])

    start = np.concatenate([alpha * task.u0, alpha * task.v0, np.zeros(2 * p)])
    times = _times(params)
    solution = solve_ivp(
        slope, (0, params.until * unit), start, "DOP853", t_eval=times * unit, rtol=1e-13, atol=1e-13 * alpha
    )
    u, v, integral, square = solution.y.T.reshape(-1, 4, p).transpose(1, 0, 2)
    return xr.Dataset(
        {**_over_time(u=u, v=v, integral_of_g=integral, integral_of_g2=square), "explicit_gradients": solution.nfev},
        coords={"time": ("time", times, {"units": "t / log(1/alpha)"}), "coordinate": np.arange(p)},
    )


def _flow(task: Any, params: Params, context: RunContext) -> xr.Dataset:
    """Return the weights that the flow of this package reconstructs."""
    from saddlescope.flow import gradient_flow

    times = _times(params)
    trajectory = gradient_flow(
        task.network,
        _start(task, params.log10_scale),
        until=params.until,
        tolerance=params.tolerance,
        record=times,
        report=context.report,
    )
    u, v = trajectory.parameters(times)
    return xr.Dataset({**_over_time(flow_u=u, flow_v=v), "flow_gradients": trajectory.evaluations.gradients})


def _descent(task: Any, params: Params, context: RunContext) -> xr.Dataset:
    """Return the κ of gradient descent, at each learning rate."""
    from saddlescope.flow import gradient_descent

    start, kappas = _start(task, params.log10_scale), []
    for rate, step in context.steps(params.learning_rates):
        steps = np.rint(_times(params) * -start.log_scale / rate).astype(int)
        run = gradient_descent(task.network, start, steps=int(steps[-1]), learning_rate=rate, record=np.unique(steps))
        u, v = run.parameters(np.minimum(steps * rate / -start.log_scale, run.times[-1]))
        kappas.append((u - v) * (u + v))
        step.report(1.0, f"gradient descent, learning rate {rate:g}")
    return xr.Dataset(
        {"descent_kappa": (("rate", "time", "coordinate"), np.stack(kappas))},
        coords={"rate": ("rate", list(params.learning_rates), {"long_name": "learning rate"})},
    )


def _rounded(task: Any, params: Params, context: RunContext) -> xr.Dataset:
    """Return the relative error of κ from float64 weights at the end of the run, at each scale."""
    from saddlescope.flow import gradient_flow

    errors, betas = [], []
    for scale, step in context.steps(params.log10_scales):
        trajectory = gradient_flow(task.network, _start(task, scale), until=params.until, tolerance=1e-4)
        last = trajectory.times[-1:]
        u, v = (weights[0] for weights in trajectory.parameters(last))
        kappa = 10.0 ** (2 * scale) * (task.u0 - task.v0) * (task.u0 + task.v0)
        errors.append(np.abs((u - v) * (u + v) / kappa - 1))
        betas.append(trajectory(last)[0])
        step.report(1.0, f"α = 1e{scale:g} rounded")
    return xr.Dataset(
        {
            "rounded_error": (("scale", "coordinate"), np.stack(errors)),
            "rounded_beta": (("scale", "coordinate"), np.stack(betas)),
        },
        coords={"scale": ("scale", list(params.log10_scales), {"long_name": "log10 of alpha"})},
    )


def _kappa(run: xr.Dataset, u: str = "u", v: str = "v") -> xr.DataArray:
    """Return κ = u² - v² of the stored weights, without cancellation."""
    return (run[u] - run[v]) * (run[u] + run[v])


def _largest_weight(run: xr.Dataset) -> float:
    return float(max(abs(run.u).max(), abs(run.v).max()))


def _w(run: xr.Dataset) -> xr.DataArray:
    """Return w from w(0) and G alone, by equation 6."""
    return (run.u + run.v).isel(time=0) * np.exp(run.integral_of_g)


def _decay(run: xr.Dataset) -> xr.DataArray:
    """Return the decay of κ's logarithm under gradient descent at the end, by learning rate and coordinate."""
    with np.errstate(invalid="ignore"):
        return -np.log(run.descent_kappa.isel(time=-1) / _kappa(run).isel(time=0))


_SIGN_LOST = "Gradient descent has changed the sign of u² - v²; lower the learning rates."

# The bounds. What is exact is held to 1e-10, a thousand times what thousands of steps of DOP853 at rtol 1e-13 leave.
claims = Claims()


def _drift(run: xr.Dataset, u: str = "u", v: str = "v") -> Estimate:
    drift = abs(_kappa(run, u, v) - _kappa(run).isel(time=0)).max()
    return Estimate(float(drift) / _largest_weight(run) ** 2)


claims.add(
    "conserved",
    "An explicit solver of gradient flow conserves u² - v² for each pair u, v of diagonal attention weights",
    quantity="largest change over time of u² - v², relative to the largest squared weight", kind="printed",
    source="Lemma 4.2, equation 5; the bound allows for the solver's error", high=1e-10,
    evidence="identity", over="times and weight pairs",
    why="The lemma is an equation at all times, so its largest violation by a solver that does not use it tests it",
    doubt="The error is relative to the largest squared weight, much larger than u² − v² itself at small initial "
        "scales",
)(_drift)  # fmt: skip

claims.add(
    "flow-conserves",
    "This package's gradient flow conserves u² - v² for each pair u, v of reconstructed diagonal attention weights",
    quantity="largest change over time of the reconstructed u² - v², relative to the largest squared weight",
    kind="own", source="Lemma 4.2, equation 5; the bound is that of the explicit solver", high=1e-10,
    evidence="identity", over="times and weight pairs",
    why="Weights that the package reports must obey the law that its coordinates are built on, also after their "
        "reconstruction",
    doubt="The coordinates conserve it by construction, so that only the reconstruction in float64 is tested",
)(partial(_drift, u="flow_u", v="flow_v"))  # fmt: skip


@claims.add(
    "flow-agrees",
    "An explicit solver and this package's gradient flow compute the same diagonal attention weights over time",
    quantity="largest absolute difference of a weight between the two solvers, over weights and times", kind="own",
    source="A tolerance of 1e-8 in stage times of about 100, with weights that move by about 1 in a unit of time",
    high=1e-6,
    evidence="identity", over="times and weight pairs",
    why="Two solvers that share neither coordinates nor steps can agree over all times only if both solve the "
        "equation",
    doubt="One instance at an initial scale of 0.01; both evaluate the gradient by the same network",
)  # fmt: skip
def _flow_difference(run: xr.Dataset) -> Estimate:
    return Estimate(float(max(abs(run.flow_u - run.u).max(), abs(run.flow_v - run.v).max())))


@claims.add(
    "equation-6", "Under gradient flow, u + v equals its initial value times exp(∫g dt), with g = −∂L/∂(u v)",
    quantity="largest absolute error of this law for u + v of paired diagonal attention weights, relative to the "
        "largest weight", kind="printed", source="Equation 6; the bound allows for the solver's error", high=1e-10,
    evidence="identity", over="times and weight pairs",
    why="The integral of g is a further unknown of the explicit solver, so that the printed solution can be compared "
        "without fitting",
    doubt="The integral is computed along with the weights, at one tolerance and for one instance",
)  # fmt: skip
def _equation_6_error(run: xr.Dataset) -> Estimate:
    return Estimate(float(abs(run.u + run.v - _w(run)).max()) / _largest_weight(run))


@claims.add(
    "equation-7",
    "Under gradient flow, paired weights u and v follow at all times from u + v and the initial weights",
    quantity="largest absolute error of a diagonal attention weight computed from u + v and conserved u² - v², "
        "relative to the largest weight",
    kind="printed", source="Equation 7; the bound allows for the solver's error", high=1e-10,
    evidence="identity", over="times and weight pairs",
    why="The equation claims that u + v and the start determine both weights, and both are computed from these alone",
    doubt="It follows from the conservation law by algebra, so that a failure would be one of rounding",
)  # fmt: skip
def _equation_7_error(run: xr.Dataset) -> Estimate:
    w, kappa = _w(run), _kappa(run).isel(time=0)
    u, v = (w + kappa / w) / 2, (w - kappa / w) / 2
    return Estimate(float(max(abs(u - run.u).max(), abs(v - run.v).max())) / _largest_weight(run))


@claims.add(
    "descent-power",
    "Under gradient descent, the logarithm of u² - v² of paired attention weights falls in proportion to the "
        "learning rate",
    quantity="largest distance from 1 of the fitted power of the learning rate in the total fall of log |u² - v²|, "
        "over weight pairs", kind="own", source="A step multiplies u² - v² by 1 - η² g²; 0.05 for higher orders",
    high=0.05,
    evidence="cases", over="weight pairs",
    why="If each step multiplies u² − v² by 1 − η² g², a time of 1/η steps loses a logarithm in proportion to η",
    doubt="Four rates within a factor of eight, on the path of one instance; other paths have other higher orders",
)  # fmt: skip
def _decay_power(run: xr.Dataset) -> Estimate:
    decay = _decay(run).transpose("rate", "coordinate").values
    if not (decay > 0).all():
        return Estimate.unresolved(_SIGN_LOST)
    powers = np.polyfit(np.log(run.rate.values), np.log(decay), 1)[0]
    return Estimate.largest(abs(powers - 1), f"powers {powers.min():.3f} to {powers.max():.3f}")


@claims.add(
    "descent-law",
    "Under gradient descent, log |u² - v²| of paired attention weights falls by the learning rate times ∫g² dt",
    quantity="largest relative deviation from this law, with g = −∂L/∂(u v), over weight pairs at the smallest "
        "learning rate",
    kind="own", source="A step multiplies u² - v² by 1 - η² g²; 5 % for the next order in η", high=0.05,
    evidence="cases", over="weight pairs",
    why="The sum of log(1 − η² g²) over steps is in first order η times an integral, known from the flow without "
        "descent",
    doubt="The first-order law is tested at the smallest rate alone, where 5 % is a wide bar",
)  # fmt: skip
def _decay_law_deviation(run: xr.Dataset) -> Estimate:
    first_order = run.rate * run.integral_of_g2.isel(time=-1)
    deviation = abs(_decay(run) / first_order - 1).isel(rate=-1)
    if deviation.isnull().any():
        return Estimate.unresolved(_SIGN_LOST)
    return Estimate.largest(deviation)


def _rounding_error(run: xr.Dataset, log10_scale: float, worst: Literal["max", "min"]) -> Estimate:
    """Return the extreme relative error of κ over the learned coordinates at one scale."""
    if log10_scale not in run.scale.values:
        return Estimate.unresolved(f"The run has no α = 1e{log10_scale:g}; add {log10_scale:g} to log10_scales.")
    at = run.sel(scale=log10_scale)
    learned = abs(at.rounded_beta) >= _LEARNED
    if not learned.any():
        return Estimate.unresolved("No coordinate was learned before the simulation ended; raise `until`.")
    value = getattr(at.rounded_error.where(learned), worst)()
    return Estimate(float(value), remark=f"{int(learned.sum())} coordinates learned", n=int(learned.sum()))


claims.add(
    "held-by-float64",
    "At initial scale 0.01, float64 weights determine u² - v² of each learned attention weight pair to nine digits",
    quantity="largest relative error of u² - v² computed from weights u, v rounded to float64, over learned pairs",
    kind="own", source="A rounding of 1e-16, compared with α²", high=1e-9,
    evidence="cases", over="learned weight pairs",
    why="Weights rounded to float64 carry u² − v² to the digits that this error counts, here at α = 0.01",
    doubt="Rounding errors are tested at one time of one run, with the exact value from the initial weights",
)(partial(_rounding_error, log10_scale=-2.0, worst="max"))  # fmt: skip

claims.add(
    "lost-by-float64",
    "At initial scale 1e-16, float64 weights lose u² - v² of each learned attention weight pair completely",
    quantity="smallest relative error of u² - v² computed from weights u, v rounded to float64, over learned pairs",
    kind="own", source="A rounding of 1e-16, compared with α²", low=1.0,
    evidence="cases", over="learned weight pairs",
    why="An error as large as the value itself means that no digit is left in rounded weights",
    doubt="An implementation that stores the sum and the difference of the weights keeps the digits, as this package "
        "does",
)(partial(_rounding_error, log10_scale=-16.0, worst="min"))  # fmt: skip


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the drift over time and by learning rate, and the error of float64 at each scale."""
    first = _kappa(run).isel(time=0)
    start = slice(1, None)  # at time 0 nothing is lost, which a logarithmic axis cannot show
    time = run.time.values[start]

    def lost(of: xr.DataArray) -> np.ndarray:
        return np.maximum(abs(of / first - 1).median("coordinate").isel(time=start).values, 1e-16)

    law = abs(run.rate.isel(rate=-1) * run.integral_of_g2).median("coordinate").isel(time=start)
    curves = [
        *(
            Line(x=time, y=lost(run.descent_kappa.sel(rate=rate)), group="gradient descent", color=3, width=1.1)
            for rate in run.rate.values
        ),
        Line(x=time, y=law.values, group="η ∫ g²", style="dashed", width=1.2),
        Line(x=time, y=lost(_kappa(run)), label="explicit solver", color=0),
        Line(x=time, y=lost(_kappa(run, "flow_u", "flow_v")), label="flow of this package", color=2),
    ]
    rates, first_order = run.rate.values, run.rate * run.integral_of_g2.isel(time=-1).median("coordinate")
    by_rate = (
        Line(x=rates, y=_decay(run).median("coordinate").values, group="gradient descent", color=3),
        Line(x=rates, y=first_order.values, group="η ∫ g²", style="dashed", width=1.2),
    )
    learned, alpha = abs(run.rounded_beta) >= _LEARNED, 10.0**run.scale.values
    errors = np.maximum(run.rounded_error, 1e-17).where(learned).transpose("coordinate", "scale").values
    rounded = [
        Line(x=alpha, y=row, group="learned coordinates, rounded", color=4, width=0.8)
        for row in errors
        if np.isfinite(row).any()
    ]
    rounded.append(Line(x=alpha, y=2.0**-53 / alpha**2, label="2⁻⁵³ / α²", style="dashed", width=1.2))
    change, fall = (Axis(name, scale="log") for name in ("|u² − v²| lost, relative", "fall of log |u² − v²|"))
    return [
        Figure(
            name="conservation",
            title="Loss of u² − v² under gradient flow, under gradient descent and in float64",
            caption="Left: relative change of u² − v² over time, median over coordinates, for gradient descent at each "
            "learning rate, for two solvers of gradient flow, and, dashed, in first order for the smallest rate. "
            "Middle: the change under gradient descent at the end against the learning rate; dashed: first order, from "
            "1 − η² g² for each step. Right: the weights of learned coordinates, rounded to float64, and the relative "
            "error of their u² − v² against α.",
            panels=(
                Panel(title="over time", x=Axis("time / log(1/α)"), y=change, marks=tuple(curves)),
                Panel(title="by learning rate", x=Axis("learning rate η", scale="log"), y=fall, marks=by_rate),
                Panel(
                    title="weights rounded to float64",
                    x=Axis("α", scale="log"),
                    y=Axis("relative error of u² − v²", scale="log"),
                    marks=tuple(rounded),
                ),
            ),
            columns=3,
        )
    ]


entry = Entry(
    "gradual-rank/lemma-4-2",
    "Lemma 4.2: gradient flow conserves u² − v², while gradient descent and float64 rounding lose it",
    citation=CITATION, source="Lemma 4.2, Section 4.1", params=Params,
    quick=dict(log10_scales=(-2.0, -8.0, -16.0), learning_rates=(0.2, 0.1, 0.05), samples=100, tokens=5, dim=8,
        until=24.0, records=49), run=run, claims=claims, figures=figures,
)  # fmt: skip
