"""Figure 2: one diagonal attention head learns its coordinates one at a time.

A student head learns a teacher head from ever smaller initial weights alpha. Algorithm 1 predicts the limit of
vanishing alpha from the loss alone; the gradient flow is simulated at each alpha; the two share no dynamics code.

    alpha   initial scale: u(0) = alpha u0, v(0) = alpha v0
    t       rescaled time: time of the gradient flow divided by log(1/alpha)
    beta    (w_K * w_Q, w_V * w_O): the diagonals of W_K W_Q^T and W_V W_O^T
    T_k     predicted time at which coordinate i_k enters and the weights leave the saddle theta^(k-1)
    t_k     measured time at which beta_(i_k) is half-way between its predicted values before and after T_k

The theorem is about the limit. At a given alpha a plateau counts as resolved if it lasts so many e-folds of growth that
a coordinate that enters at its end is below `level` in its middle: at least log(1/level), by the theory alone.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.figure_2.claims import claims, metrics
from saddlescope.papers.gradual_rank.figure_2.figures import figures
from saddlescope.papers.gradual_rank.shared.head_task import HeadParams
from saddlescope.papers.gradual_rank.shared.stage_times import (
    halfway_times,
    predicted_stages,
    resolved_stages,
    run_over_scales,
)
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

if TYPE_CHECKING:
    from saddlescope.models import AttentionTeacherTask


class Params(HeadParams):
    """The toy task of appendix A. The paper gives no learning rate: gradient flow is its limit."""

    log10_scales: tuple[float, ...] = param(
        (
            -1.0,
            -2.0,
            -4.0,
            -8.0,
            -16.0,
            -32.0,
        ),
        "log10 of the initial scales alpha, decreasing",
        lt=0,
        order="decreasing",
    )
    until: float = param(1000.0, "end of the simulation in rescaled time", gt=0)
    tolerance: float = param(2e-5, "relative, of stage times; see `saddlescope.flow.gradient_flow`", ge=1e-12, le=1e-2)
    level: float = param(0.01, "|beta_i| above which coordinate i counts as learned", gt=0)
    points: int = param(701, "times at which the curves are stored, evenly spaced in their logarithm", ge=2)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1, then the flow from each scale; finished parts are cached."""
    import jax

    with jax.enable_x64(True):
        task = params.task()
        theory = context.cached("theory", partial(_predict, task, params, context.part(0.0, 0.3)))
        simulate = partial(_simulate, task, theory, params)
        flows = run_over_scales(params.log10_scales, simulate, context, 0.3, 1.0)
    return xr.merge([theory, flows], combine_attrs="drop").assign_attrs(theory.attrs)


def _predict(task: "AttentionTeacherTask", params: Params, report: Report) -> xr.Dataset:
    """Run Algorithm 1: the stages k = 1, 2, ... and the loss they predict on the stored times."""
    from saddlescope.theory import incremental_learning

    learned = incremental_learning(
        task.network, 2 * params.dim, report=lambda fraction, note: report(fraction, f"Algorithm 1, {note}")
    )
    stages = predicted_stages(learned, until=params.until)
    # A transition at T lasts O(T / log(1/alpha)): points evenly spaced in log t show early and late ones alike.
    time = np.append(0.0, np.geomspace(params.until / 50, params.until, params.points - 1))
    begun = np.searchsorted(stages.predicted_time, time, side="right")
    staircase = np.append(learned.stages[0].loss, stages.predicted_loss)
    resolved = [
        resolved_stages(learned, scale * np.log(10), efolds=-np.log(params.level)) for scale in params.log10_scales
    ]
    return stages.assign(
        resolved=(("scale", "stage"), np.stack(resolved)),
        predicted_loss_curve=("time", staircase[begun]),
        teacher=("coordinate", task.teacher),
        time=("time", time, {"units": "t / log(1/alpha)"}),
    ).assign_attrs(level=params.level, until=params.until)


def _simulate(
    task: "AttentionTeacherTask",
    theory: xr.Dataset,
    params: Params,
    log10_scale: float,
    report: Report,
) -> xr.Dataset:
    """Follow gradient flow from one scale: curves, plateaus, the order of learning, and stage times."""
    from saddlescope.flow import DiagonalInit, gradient_flow

    middle = theory.plateau_time.values
    seen = middle < params.until
    trajectory = gradient_flow(
        task.network,
        DiagonalInit(task.u0, task.v0, log_scale=log10_scale * np.log(10)),
        until=params.until,
        tolerance=params.tolerance,
        record=np.union1d(theory.time.values, middle[seen]),
        level=params.level,  # the crossings are what `verify` compares
        verify=True,
        report=lambda fraction, note: report(fraction, f"alpha = 1e{log10_scale:g}, {note}"),
    )
    plateau_beta, plateau_loss = np.full(theory.predicted_beta.shape, np.nan), np.full(middle.shape, np.nan)
    on_plateau = np.searchsorted(trajectory.times, middle[seen])
    plateau_beta[seen], plateau_loss[seen] = trajectory.beta[on_plateau], trajectory.losses[on_plateau]
    at = np.searchsorted(trajectory.times, theory.time.values)
    accuracy = trajectory.accuracy
    assert accuracy is not None
    return xr.Dataset(
        {
            "loss": ("time", trajectory.losses[at]),
            "beta": (("time", "coordinate"), trajectory.beta[at]),
            "plateau_beta": (("stage", "coordinate"), plateau_beta),
            "plateau_loss": ("stage", plateau_loss),
            "found_time": ("stage", halfway_times(trajectory, theory)),
            "accuracy": accuracy.crossing_times,
            "gradients": trajectory.evaluations.gradients,
            "energy_error": trajectory.energy_error,
        }
    )


entry = Entry(
    "gradual-rank/figure-2",
    "Figure 2: one diagonal attention head learns its coordinates one at a time",
    citation=CITATION,
    source="Section 4 and appendix A",
    params=Params,
    quick=dict(log10_scales=(-2.0, -16.0, -512.0), samples=100, tokens=5, dim=8, until=160.0, points=401),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
