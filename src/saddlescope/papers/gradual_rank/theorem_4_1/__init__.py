"""Theorem 4.1: how fast the flow approaches its stages as the initial scale vanishes.

The attention head of Figure 2 is followed from initial scales down to 1e-4096, far below what floating-point numbers
hold, and each stage time is compared with Algorithm 1. The theorem promises convergence and no rate; the rate is

    t_k(alpha) = T_k + C_k / log(1/alpha)

up to what is exponentially small in the length of the plateaus: the initial weights and the transitions before stage k
cost O(1) of unrescaled time, whatever alpha. Two runs then give the limit by extrapolation; and the theory, given the
initial weights, gives C_k without any run.

    alpha   initial scale: u(0) = alpha u0, v(0) = alpha v0
    t       rescaled time: time of the gradient flow divided by log(1/alpha)
    T_k     predicted time at which coordinate i_k enters and the weights leave the saddle theta^(k-1)
    t_k     measured time at which beta_(i_k) is half-way to its value on the predicted plateau
    C_k     (t_k(alpha) - T_k) log(1/alpha)

A stage is well separated if it and all stages before it are: a transition that begins before the last one has ended
changes every later C_k. Stages that follow each other so closely at a given alpha come in another order there.
"""

from functools import partial
from math import log
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.shared.head_task import HeadParams
from saddlescope.papers.gradual_rank.shared.stage_times import (
    halfway_times,
    predicted_stages,
    resolved_stages,
    run_over_scales,
)
from saddlescope.papers.gradual_rank.theorem_4_1.claims import CONSTANT, NEAR, claims, metrics
from saddlescope.papers.gradual_rank.theorem_4_1.figures import figures
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

if TYPE_CHECKING:
    from saddlescope.flow import Trajectory
    from saddlescope.models import AttentionTeacherTask

SEPARATED_AT = -64.0  # log10 of the scale from which on

COARSER = 10.0  # the tolerance of the companion run whose differences are the uncertainties, in units of the run's


class Params(HeadParams):
    """The toy task of appendix A, as in Figure 2, at more scales and to an earlier time."""

    log10_scales: tuple[float, ...] = param(
        (
            -1.0,
            -2.0,
            -4.0,
            -8.0,
            -16.0,
            -32.0,
            -64.0,
            -256.0,
            -1024.0,
            -4096.0,
        ),
        "log10 of the initial scales alpha, decreasing",
        lt=0,
        order="decreasing",
        least=2,
    )
    stages: int = param(74, "first stages that are judged; the simulation ends where the next one is predicted", ge=1)
    tolerance: float = param(1e-7, "relative, of stage times; see `saddlescope.flow.gradient_flow`", ge=1e-10, le=1e-3)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1, then the flow from each scale; finished parts are cached."""
    import jax

    with jax.enable_x64(True):
        task = params.task()
        theory = context.cached("theory", partial(_predict, task, params, context.part(0.0, 0.1)))
        simulate = partial(_simulate, task, theory, params)
        flows = run_over_scales(params.log10_scales, simulate, context, 0.1, 1.0)
    return xr.merge([theory, flows], combine_attrs="drop").assign_attrs(theory.attrs)


def _predict(task: "AttentionTeacherTask", params: Params, report: Report) -> xr.Dataset:
    """Run Algorithm 1: the stages k = 1, 2, ..., their C_k, and the stages that each scale separates."""
    from saddlescope.theory import incremental_learning

    learned = incremental_learning(
        task.network,
        2 * params.dim,
        weights=(task.u0, task.v0),
        max_stages=params.stages,
        report=lambda fraction, note: report(fraction, f"Algorithm 1, {note}"),
    )
    assert learned.corrections is not None  # weights were given
    until = learned.end if np.isfinite(learned.end) else 1.25 * learned.stages[-1].time
    stages = predicted_stages(learned, until=until)
    # What a transition leaves decays by one e-fold after another: by these, to as much as C_k may vary.
    separated = resolved_stages(learned, SEPARATED_AT * np.log(10), efolds=log(1 / CONSTANT))
    # In the middle of a plateau half of its e-folds have passed.
    resolved = [resolved_stages(learned, scale * np.log(10), efolds=2 * log(1 / NEAR)) for scale in params.log10_scales]
    return stages.assign(
        predicted_constant=("stage", learned.corrections[1:]),
        separated=("stage", np.logical_and.accumulate(separated)),
        resolved=(("scale", "stage"), np.stack(resolved)),
    ).assign_attrs(until=until)


def _simulate(
    task: "AttentionTeacherTask",
    theory: xr.Dataset,
    params: Params,
    log10_scale: float,
    report: Report,
) -> xr.Dataset:
    """Follow gradient flow from one scale at two tolerances: stage times and distances on plateaus."""
    from saddlescope.flow import DiagonalInit, gradient_flow

    middle, until = theory.plateau_time.values, theory.attrs["until"]
    record = np.union1d(np.linspace(0, until, 1001), middle)

    def follow(tolerance: float, start: float, stop: float) -> "Trajectory":
        return gradient_flow(
            task.network,
            DiagonalInit(task.u0, task.v0, log_scale=log10_scale * np.log(10)),
            until=until,
            tolerance=tolerance,
            record=record,
            report=lambda done, note: report(start + (stop - start) * done, f"alpha = 1e{log10_scale:g}, {note}"),
        )

    trajectory, coarse = follow(params.tolerance, 0.0, 0.6), follow(COARSER * params.tolerance, 0.6, 1.0)
    # |u| and |v|, since the paper fixes their signs without loss of generality; beta has the sign of their product.
    weights = np.abs(trajectory.parameters(middle))
    saddles = np.sqrt(np.abs(theory.predicted_beta.values))
    return xr.Dataset(
        {
            "found_time": ("stage", halfway_times(trajectory, theory)),
            "coarse_time": ("stage", halfway_times(coarse, theory)),
            "beta_distance": ("stage", np.abs(trajectory(middle) - theory.predicted_beta.values).max(1)),
            "theta_distance": ("stage", np.abs(weights - saddles).max((0, 2))),
            "gradients": trajectory.evaluations.gradients,
            "coarse_gradients": coarse.evaluations.gradients,
        }
    )


entry = Entry(
    "gradual-rank/theorem-4-1",
    "Theorem 4.1: how fast the flow approaches its stages as the initial scale vanishes",
    citation=CITATION,
    source="Theorem 4.1",
    params=Params,
    quick=dict(log10_scales=(-32.0, -64.0, -1024.0, -4096.0), samples=20, tokens=4, dim=4, stages=3, tolerance=1e-6),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
