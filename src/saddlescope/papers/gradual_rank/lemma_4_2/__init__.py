"""Lemma 4.2: what gradient flow conserves, gradient descent loses slowly and float64 at once.

The attention head of Figure 2. Gradient flow keeps u_i^2 - v_i^2 for each coordinate, so that w = u + v alone carries
the state (equations 6 and 7). The flow of this package conserves it by construction; here it is compared with an
explicit solver in the weights (u, v), DOP853, which knows nothing of it.

    w       u + v; w' = w * g under gradient flow (equation 6)
    kappa   u^2 - v^2, of the size alpha^2 for all times (equation 5)
    G       the integral of g over time, so that w = w(0) e^G
    eta     learning rate

One step of gradient descent is u + eta v g, v + eta u g, and multiplies kappa by 1 - eta^2 g^2 exactly: over a time t
kappa decays by eta times the integral of g^2 in its logarithm, to first order. And weights of order 1 in float64 are
known to 1e-16 only, so that below alpha = 1e-8 they do not determine kappa: the coordinate has forgotten where it
came from.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.lemma_4_2.claims import claims
from saddlescope.papers.gradual_rank.lemma_4_2.figures import figures
from saddlescope.papers.gradual_rank.shared.head_task import HeadParams
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

if TYPE_CHECKING:
    from saddlescope.models import AttentionTeacherTask


class Params(HeadParams):
    """The toy task of appendix A; the paper proves the lemma and runs nothing for it."""

    log10_scale: float = param(
        -2.0, "log10 of the initial scale alpha of the explicit solver and of gradient descent", ge=-4.0, le=-0.1
    )
    log10_scales: tuple[float, ...] = param(
        (-2.0, -4.0, -6.0, -8.0, -10.0, -12.0, -14.0, -16.0),
        "scales rounded to float64",
        lt=0,
        order="decreasing",
        ge=-150.0,
    )
    learning_rates: tuple[float, ...] = param(
        (1.0, 0.5, 0.25, 0.125), "of gradient descent, decreasing", gt=0, order="decreasing", least=2
    )
    until: float = param(105.0, "end of the simulation in rescaled time", gt=0)
    tolerance: float = param(1e-8, "relative, of stage times; see `saddlescope.flow.gradient_flow`", ge=1e-11, le=1e-2)
    records: int = param(211, "times at which weights are compared, evenly spaced", ge=2)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run the explicit solver, the flow and descent from one scale, and the flow from all, rounded to float64."""
    import jax

    with jax.enable_x64(True):
        task = params.task()
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


def _explicit(task: "AttentionTeacherTask", params: Params, report: Report) -> xr.Dataset:
    """Solve equation 4 in (u, v) by DOP853, with G and the integral of g^2 beside it."""
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


def _flow(task: "AttentionTeacherTask", params: Params, report: Report) -> xr.Dataset:
    """Return the weights that the flow of this package reconstructs."""
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


def _descent(task: "AttentionTeacherTask", params: Params, report: Report) -> xr.Dataset:
    """Return the kappa of gradient descent, at each learning rate."""
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


def _rounded(task: "AttentionTeacherTask", params: Params, report: Report) -> xr.Dataset:
    """Return the relative error of kappa from float64 weights at the end of the run, at each scale."""
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


entry = Entry(
    "gradual-rank/lemma-4-2",
    "Lemma 4.2: what gradient flow conserves, gradient descent loses slowly and float64 at once",
    citation=CITATION,
    source="Lemma 4.2, Section 4.1",
    params=Params,
    quick=dict(
        log10_scales=(-2.0, -8.0, -16.0),
        learning_rates=(0.2, 0.1, 0.05),
        samples=100,
        tokens=5,
        dim=8,
        until=24.0,
        records=49,
    ),
    run=run,
    claims=claims,
    figures=figures,
)
