"""Lemma 4.2: what gradient flow conserves, gradient descent loses slowly and float64 at once   (Lemma 4.2, Section 4.1)

The attention head of Figure 2. Gradient flow keeps u_i^2 - v_i^2 for each coordinate, so that w = u + v alone carries
the state (equations 6 and 7). The flow of this package conserves it by construction; here it is held against an
explicit solver in the weights (u, v), DOP853, which knows nothing of it.

    w       u + v; w' = w * g under gradient flow (equation 6)
    kappa   u^2 - v^2, of the size alpha^2 for all times (equation 5)
    G       the integral of g over time, so that w = w(0) e^G
    eta     learning rate

One step of gradient descent is u + eta v g, v + eta u g, and multiplies kappa by 1 - eta^2 g^2 exactly: over a time t
kappa decays by eta times the integral of g^2 in its logarithm, to first order. And weights of order 1 in float64 are
known to 1e-16 only, so that below alpha = 1e-8 they cannot tell what kappa is: the coordinate has forgotten where it
came from.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Figure, Line, Panel
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext

if TYPE_CHECKING:
    from saddlescope.models import AttentionTeacherTask

LEARNED = 0.1  # |beta_i| from which on a coordinate counts as learned: of order 1


@dataclass(frozen=True, kw_only=True)
class Params:
    """The toy task of appendix A; the paper proves the lemma and runs nothing for it."""

    log10_scale: float = -2.0  # log10 of the initial scale alpha of the explicit solver and of gradient descent
    log10_scales: tuple[float, ...] = (-2.0, -4.0, -6.0, -8.0, -10.0, -12.0, -14.0, -16.0)  # scales rounded to float64
    learning_rates: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125)  # of gradient descent, decreasing
    seed: int = 1  # of the data, the teacher and the initial weights
    samples: int = 1000  # sequences in the data set
    tokens: int = 10  # tokens in a sequence
    dim: int = 50  # dimension of a token
    until: float = 105.0  # end of the simulation in rescaled time
    tolerance: float = 1e-8  # relative, of stage times; see `saddlescope.flow.gradient_flow`
    records: int = 211  # times at which weights are compared, evenly spaced

    def __post_init__(self) -> None:
        parameter_checks.between(-4.0, -0.1, self, "log10_scale")  # where float64 weights still hold u^2 - v^2
        parameter_checks.log10_scales(self, "log10_scales", lowest=-150.0)
        parameter_checks.learning_rates(self, "learning_rates")
        parameter_checks.at_least(1, self, "samples", "tokens", "dim")
        parameter_checks.at_least(2, self, "records")
        parameter_checks.at_least(0, self, "seed")
        parameter_checks.positive(self, "until")
        parameter_checks.between(1e-11, 1e-2, self, "tolerance")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: a small head."""
        return cls(
            log10_scales=(-2.0, -8.0, -16.0),
            learning_rates=(0.2, 0.1, 0.05),
            samples=100,
            tokens=5,
            dim=8,
            until=24.0,
            records=49,
        )

    @classmethod
    def paper(cls) -> "Params":
        """The default is already the size of the paper's toy task."""
        return cls()


def run(params: Params, context: RunContext) -> xr.Dataset:
    """The explicit solver, the flow and gradient descent from one scale, and the flow from all, rounded to float64."""
    import jax

    from saddlescope.models import attention_teacher_task

    with jax.enable_x64(True):
        task = attention_teacher_task(params.seed, samples=params.samples, tokens=params.tokens, dim=params.dim)
        parts = [
            context.cached("explicit", partial(_explicit, task, params, context.part(0.0, 0.4))),
            context.cached("flow", partial(_flow, task, params, context.part(0.4, 0.6))),
            context.cached("descent", partial(_descent, task, params, context.part(0.6, 0.7))),
            context.cached("rounded", partial(_rounded, task, params, context.part(0.7, 1.0))),
        ]
    return xr.merge(parts, combine_attrs="drop").assign_attrs(log10_scale=params.log10_scale)


def _times(params: Params) -> np.ndarray:

    return np.linspace(0, params.until, params.records)


def _over_time(weights: tuple[np.ndarray, np.ndarray], names: tuple[str, str]) -> dict[str, tuple]:
    return {name: (("time", "coordinate"), array) for name, array in zip(names, weights, strict=True)}


def _explicit(task: "AttentionTeacherTask", params: Params, report: Callable[[float, str], None]) -> xr.Dataset:
    """Equation 4 in (u, v) by DOP853, with G and the integral of g^2 beside it."""
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
        report(furthest / params.until, f"DOP853, t / log(1/alpha) = {furthest:.3g}")
        return np.concatenate([v * g, u * g, g, g * g])

    start = np.concatenate([alpha * task.u0, alpha * task.v0, np.zeros(2 * p)])
    times = _times(params)
    solution = solve_ivp(
        slope, (0, params.until * unit), start, "DOP853", t_eval=times * unit, rtol=1e-13, atol=1e-13 * alpha
    )
    u, v, integral, square = solution.y.T.reshape(-1, 4, p).transpose(1, 0, 2)
    return xr.Dataset(
        {
            **_over_time((u, v), ("u", "v")),
            **_over_time((integral, square), ("integral_of_g", "integral_of_g2")),
            "explicit_gradients": solution.nfev,
        },
        coords={"time": ("time", times, {"units": "t / log(1/alpha)"}), "coordinate": np.arange(p)},
    )


def _flow(task: "AttentionTeacherTask", params: Params, report: Callable[[float, str], None]) -> xr.Dataset:
    """The weights that the flow of this package reconstructs."""
    from saddlescope.flow import DiagonalInit, gradient_flow

    start = DiagonalInit(task.u0, task.v0, log_scale=params.log10_scale * np.log(10))
    trajectory = gradient_flow(
        task.network, start, until=params.until, tolerance=params.tolerance, record=_times(params), report=report
    )
    return xr.Dataset(
        {
            **_over_time(trajectory.parameters(_times(params)), ("flow_u", "flow_v")),
            "flow_gradients": trajectory.evaluations.gradients,
        }
    )


def _descent(task: "AttentionTeacherTask", params: Params, report: Callable[[float, str], None]) -> xr.Dataset:
    """The kappa of gradient descent, at each learning rate."""
    from saddlescope.flow import DiagonalInit, gradient_descent

    start = DiagonalInit(task.u0, task.v0, log_scale=params.log10_scale * np.log(10))
    kappas = []
    for k, rate in enumerate(params.learning_rates):
        steps = np.rint(_times(params) * -start.log_scale / rate).astype(int)
        run = gradient_descent(task.network, start, steps=int(steps[-1]), learning_rate=rate, record=np.unique(steps))
        u, v = run.parameters(np.minimum(steps * rate / -start.log_scale, run.times[-1]))
        kappas.append((u - v) * (u + v))
        report((k + 1) / len(params.learning_rates), f"gradient descent, learning rate {rate:g}")
    return xr.Dataset(
        {"descent_kappa": (("rate", "time", "coordinate"), np.stack(kappas))},
        coords={"rate": ("rate", list(params.learning_rates), {"long_name": "learning rate"})},
    )


def _rounded(task: "AttentionTeacherTask", params: Params, report: Callable[[float, str], None]) -> xr.Dataset:
    """At each scale, what float64 weights at the end of the run say of kappa, relative to what it is."""
    from saddlescope.flow import DiagonalInit, gradient_flow

    errors, betas = [], []
    for k, scale in enumerate(params.log10_scales):
        start = DiagonalInit(task.u0, task.v0, log_scale=scale * np.log(10))
        trajectory = gradient_flow(task.network, start, until=params.until, tolerance=1e-4)
        last = trajectory.times[-1:]
        u, v = (weights[0] for weights in trajectory.parameters(last))
        kappa = 10.0 ** (2 * scale) * (task.u0 - task.v0) * (task.u0 + task.v0)
        errors.append(np.abs((u - v) * (u + v) / kappa - 1))
        betas.append(trajectory(last)[0])
        report((k + 1) / len(params.log10_scales), f"alpha = 1e{scale:g} rounded")
    return xr.Dataset(
        {
            "rounded_error": (("scale", "coordinate"), np.stack(errors)),
            "rounded_beta": (("scale", "coordinate"), np.stack(betas)),
        },
        coords={"scale": ("scale", list(params.log10_scales), {"long_name": "log10 of alpha"})},
    )


# The bounds. What is exact is held to 1e-10, a thousand times what thousands of steps of DOP853 at rtol 1e-13 leave.
def _kappa(run: xr.Dataset, u: str = "u", v: str = "v") -> xr.DataArray:
    return (run[u] - run[v]) * (run[u] + run[v])


def _weight(run: xr.Dataset) -> float:
    """The largest weight of the run."""
    return float(max(abs(run.u).max(), abs(run.v).max()))


def _drift(u: str, v: str) -> Callable[[xr.Dataset], Estimate]:
    def measure(run: xr.Dataset) -> Estimate:
        kappa = _kappa(run, u, v)
        return Estimate(float(abs(kappa - _kappa(run).isel(time=0)).max()) / _weight(run) ** 2)

    return measure


def _disagreement(run: xr.Dataset) -> Estimate:
    return Estimate(float(max(abs(run.flow_u - run.u).max(), abs(run.flow_v - run.v).max())))


def _w(run: xr.Dataset) -> xr.DataArray:
    """Equation 6: w from w(0) and G alone."""
    return (run.u + run.v).isel(time=0) * np.exp(run.integral_of_g)


def _equation_6(run: xr.Dataset) -> Estimate:
    return Estimate(float(abs(run.u + run.v - _w(run)).max()) / _weight(run))


def _equation_7(run: xr.Dataset) -> Estimate:
    w, kappa = _w(run), _kappa(run).isel(time=0)
    u, v = (w + kappa / w) / 2, (w - kappa / w) / 2
    return Estimate(float(max(abs(u - run.u).max(), abs(v - run.v).max())) / _weight(run))


def _decay(run: xr.Dataset) -> xr.DataArray:
    """How far gradient descent has let kappa decay at the end, in its logarithm, by learning rate and coordinate."""
    with np.errstate(invalid="ignore"):
        return -np.log(run.descent_kappa.isel(time=-1) / _kappa(run).isel(time=0))


_SIGN_LOST = "Descent has changed the sign of u^2 - v^2; lower the learning rates."


def _power(run: xr.Dataset) -> Estimate:

    decay = _decay(run).median("coordinate", skipna=False).values
    if not (decay > 0).all():
        return Estimate.unresolved(_SIGN_LOST)
    return Estimate(float(np.polyfit(np.log(run.rate.values), np.log(decay), 1)[0]))


def _law(run: xr.Dataset) -> Estimate:
    first_order = run.rate * run.integral_of_g2.isel(time=-1)
    deviation = abs(_decay(run) / first_order - 1).isel(rate=-1)
    if deviation.isnull().any():
        return Estimate.unresolved(_SIGN_LOST)
    return Estimate(float(deviation.max()))


def _rounding(log10_scale: float, worst: str) -> Callable[[xr.Dataset], Estimate]:
    """The "max" or "min" over the learned coordinates of kappa's relative error at one scale."""

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


claims = (
    Claim(
        name="conserved",
        says="An explicit solver in (u, v), at alpha = 0.01, keeps u^2 - v^2: largest drift, relative to the largest "
        "squared weight",
        source="Lemma 4.2, equation 5",
        statistic=_drift("u", "v"),
        high=1e-10,
    ),
    Claim(
        name="flow-conserves",
        says="So do the weights that the flow of this package reconstructs: largest drift",
        source="Lemma 4.2, equation 5",
        statistic=_drift("flow_u", "flow_v"),
        high=1e-10,
    ),
    Claim(
        name="flow-agrees",
        says="Both are the same trajectory: largest difference of a weight",
        source="A tolerance of 1e-8 in stage times of about 100, with weights that move by about 1 in a unit of time",
        statistic=_disagreement,
        high=1e-6,
    ),
    Claim(
        name="equation-6",
        says="w = u + v is w(0) times the exponential of the integral of g: largest difference, relative to the "
        "largest weight",
        source="Equation 6",
        statistic=_equation_6,
        high=1e-10,
    ),
    Claim(
        name="equation-7",
        says="u and v follow from w and the initial weights: largest difference, relative to the largest weight",
        source="Equation 7",
        statistic=_equation_7,
        high=1e-10,
    ),
    Claim(
        name="descent-power",
        says="Gradient descent lets the logarithm of u^2 - v^2 decay in proportion to the learning rate: power",
        source="A step multiplies it by 1 - eta^2 g^2",
        statistic=_power,
        low=0.95,
        high=1.05,
    ),
    Claim(
        name="descent-law",
        says="At the smallest learning rate by eta times the integral of g^2: largest relative deviation",
        source="A step multiplies it by 1 - eta^2 g^2; 5 % for the next order in eta",
        statistic=_law,
        high=0.05,
    ),
    Claim(
        name="held-by-float64",
        says="At alpha = 0.01 float64 weights tell u^2 - v^2: largest relative error of a learned coordinate",
        source="A rounding of 1e-16 beside alpha^2",
        statistic=_rounding(-2.0, "max"),
        high=1e-9,
    ),
    Claim(
        name="lost-by-float64",
        says="At alpha = 1e-16 they do not, for any coordinate that has been learned: smallest relative error",
        source="A rounding of 1e-16 beside alpha^2",
        statistic=_rounding(-16.0, "min"),
        low=1.0,
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """The drift over time, by learning rate, and what float64 holds at each scale."""
    kappa, first = _kappa(run), _kappa(run).isel(time=0)
    start = slice(1, None)  # at time 0 nothing is lost, which a logarithmic axis cannot show
    time = run.time.values[start]

    def lost(of: xr.DataArray) -> np.ndarray:
        relative = abs(of / first - 1).median("coordinate").isel(time=start)
        return np.maximum(relative.values, 1e-16)

    curves = [
        Line(x=time, y=lost(run.descent_kappa.sel(rate=rate)), group="gradient descent", color=3, width=1.1)
        for rate in run.rate.values
    ]
    law = abs(run.rate.isel(rate=-1) * run.integral_of_g2).median("coordinate").isel(time=start)
    curves += [
        Line(x=time, y=law.values, group="eta ∫ g²", style="dashed", width=1.2),
        Line(x=time, y=lost(kappa), label="explicit solver", color=0),
        Line(x=time, y=lost(_kappa(run, "flow_u", "flow_v")), label="flow of this package", color=2),
    ]
    decay, rates = _decay(run).median("coordinate").values, run.rate.values
    first_order = run.rate * run.integral_of_g2.isel(time=-1).median("coordinate")
    by_rate = (
        Line(x=rates, y=decay, group="gradient descent", color=3),
        Line(x=rates, y=first_order.values, group="eta ∫ g²", style="dashed", width=1.2),
    )
    learned = abs(run.rounded_beta) >= LEARNED
    alpha = 10.0**run.scale.values
    rounded = [
        Line(
            x=alpha,
            y=np.where(learned.sel(coordinate=i), np.maximum(run.rounded_error.sel(coordinate=i), 1e-17), np.nan),
            group="learned coordinates, rounded",
            color=4,
            width=0.8,
        )
        for i in run.coordinate.values
        if learned.sel(coordinate=i).any()
    ]
    rounded.append(Line(x=alpha, y=2.0**-53 / alpha**2, label="2⁻⁵³ / alpha²", style="dashed", width=1.2))
    drift = Axis("|u² − v²| lost, relative", scale="log")
    decayed = Axis("decay of log |u² − v²|", scale="log")
    return [
        Figure(
            name="conservation",
            title="Gradient flow conserves u² − v²; gradient descent does not, nor can float64 hold it",
            caption="Left: how much of u² − v² each way of training has lost, median over coordinates. Descent "
            "is drawn at each learning rate, with the first order for the smallest; what the explicit solver and the "
            "flow lose is rounding. Middle: descent's loss at the end is proportional to the learning rate, as "
            "1 − eta² g² for each step says. Right: the exact weights of learned coordinates, rounded to float64, and "
            "the relative error of their u² − v²: below alpha = 1e-8 nothing is left of it.",
            panels=(
                Panel(title="over time", x=Axis("time / log(1/alpha)"), y=drift, marks=tuple(curves)),
                Panel(title="by learning rate", x=Axis("learning rate eta", scale="log"), y=decayed, marks=by_rate),
                Panel(
                    title="weights rounded to float64",
                    x=Axis("alpha", scale="log"),
                    y=Axis("relative error of u² − v²", scale="log"),
                    marks=tuple(rounded),
                ),
            ),
            columns=3,
        )
    ]
