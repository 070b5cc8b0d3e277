"""Figure 2 of the first version: diagonal and full weights learn one direction at a time.

Panels (a) to (c) show an attention head with diagonal weights, (d) to (f) one with full weights: the diagonals, or the
singular values, of W_V W_O^T and W_K W_Q^T, and the loss. The first version says that full weights fall beyond its
theory. Here they have one (`saddlescope.theory.low_rank.greedy_algorithm`): the next direction is the top singular
pair of -dL/dB, and it comes when its exponent reaches 1. It is compared with the flow, which shares no dynamics code
with it.

    alpha   initial scale of all weights
    t       time of the gradient flow divided by log(1/alpha)
    T_k     predicted time at which the k-th singular value rises, in the limit of vanishing alpha
    t_k     measured time at which it first passes half of its value on its predicted plateau

The teacher of (a) to (f) has few directions. With a teacher of full rank and alpha = 1e-4 stages blur: panels (g), (h).
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.figure_2_v1.claims import FIRST, claims, metrics
from saddlescope.papers.gradual_rank.figure_2_v1.figures import figures
from saddlescope.papers.gradual_rank.shared.diagonal_entries import PRODUCTS
from saddlescope.papers.gradual_rank.shared.stage_times import halfway_times, predicted_stages, run_over_scales
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.flow import FactoredTrajectory
    from saddlescope.models import FullAttentionTeacherTask


class Params(EntryParams):
    """The first version gives Gaussian tokens of 50 dimensions and a teacher, but no scale, rank or learning rate."""

    log10_scales: tuple[float, ...] = param(
        (-8.0, -32.0, -128.0), "log10 of the initial scales of full weights, decreasing", lt=0, order="decreasing"
    )
    log10_diagonal: float = param(-8.0, "log10 of the initial scale of diagonal weights")
    log10_blurred: float = param(-4.0, "log10 of the initial scale at which a teacher of full rank is learned")
    seed: int = param(1, "of the data, the teachers and the initial weights", ge=0)
    samples: int = param(200, "sequences in the data set", ge=1)
    tokens: int = param(5, "tokens in a sequence", ge=1)
    dim: int = param(8, "dimension of a token, and of the head", ge=1)
    rank: int = param(3, "of the teacher's two products", ge=1)
    tolerance: float = param(1e-4, "relative, of stage times; see `saddlescope.flow.factored_flow`", ge=1e-11, le=1e-2)
    level: float = param(0.01, "singular value, as part of the largest its product ever has, above which it counts")
    points: int = param(400, "times at which the curves are stored", ge=2)

    def check(self) -> None:
        for name in ("log10_diagonal", "log10_blurred"):
            if not -1e4 < getattr(self, name) < 0:
                raise InputError(f"{name} must be negative, above -1e4; got {getattr(self, name)!r}.")
        if self.rank > self.dim:
            raise InputError(f"rank must be at most dim={self.dim}; got {self.rank!r}.")
        if not 0 < self.level < 1:
            raise InputError(f"level must be between 0 and 1; got {self.level!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run the prediction, the flow of full weights from each scale, the blurred one, and the diagonal head."""
    import jax

    from saddlescope.models import full_attention_teacher_task

    sizes = {"samples": params.samples, "tokens": params.tokens, "dim": params.dim}
    with jax.enable_x64(True):
        task = full_attention_teacher_task(params.seed, rank=params.rank, **sizes)
        theory = context.cached("theory", partial(_predict, task, params, context.part(0.0, 0.2)))
        until = 1.15 * float(theory.predicted_time[-1])
        simulate = partial(_simulate, task, theory, params, until)
        flows = run_over_scales(params.log10_scales, simulate, context, 0.2, 0.8)
        full = full_attention_teacher_task(params.seed, **sizes)
        blurred = context.cached("blurred", partial(_blurred, full, params, until, context.part(0.8, 0.9)))
        diagonal = context.cached("diagonal", partial(_diagonal, params, context.part(0.9, 1.0)))
        context.report(1.0, "done")
    return xr.merge([theory, flows, blurred, diagonal], combine_attrs="drop").assign_attrs(
        theory.attrs,
        log10_blurred=params.log10_blurred,
        log10_diagonal=params.log10_diagonal,
        diagonal_status=diagonal.attrs["theory_status"],
    )


def _predict(task: "FullAttentionTeacherTask", params: Params, report: Report) -> xr.Dataset:
    """Predict the stages k = 1, 2, ...: which singular value of which product rises, and how long plateaus last."""
    from saddlescope.theory import low_rank_learning

    d = params.dim
    learned = low_rank_learning(
        task.network, [(d, d)] * 2, width=d, report=lambda fraction, note: report(fraction, f"prediction, {note}")
    )
    stages = learned.stages[1:]
    if not stages:
        raise InputError(f"No direction is ever learned: {learned.message} Choose another seed.")
    entered = np.array([stage.entered for stage in stages])
    index = np.array([stage.ranks[p] - 1 for stage, p in zip(stages, entered, strict=True)])
    values = np.zeros((len(stages), 2, d))
    for k, stage in enumerate(stages):
        for p, s in enumerate(stage.singular_values):
            values[k, p, : len(s)] = s
    begins = np.array([stage.time for stage in stages])
    ends = np.append(begins[1:], 1.15 * begins[-1])
    # What ends a plateau grows through its second half at sigma; at the end of the run nothing does.
    fastest = np.array([max(rates[0] for rates in stage.rates) for stage in stages])
    return xr.Dataset(
        {
            "predicted_time": ("stage", begins),
            "predicted_product": ("stage", entered),
            "predicted_index": ("stage", index),
            "predicted_loss": ("stage", np.array([stage.loss for stage in stages])),
            "predicted_values": (("stage", "product", "index"), values),
            "predicted_ranks": (("stage", "product"), np.array([stage.ranks for stage in stages])),
            "plateau_time": ("stage", (begins + ends) / 2),
            "efolds_per_log": ("stage", fastest * (ends - begins)),
        },
        coords={"stage": np.arange(1, len(stages) + 1), "product": list(PRODUCTS.values()), "index": np.arange(d)},
        attrs={
            "theory_status": learned.status.value,
            "theory_message": learned.message,
            "initial_loss": learned.stages[0].loss,
            "level": params.level,
        },
    )


def _simulate(
    task: "FullAttentionTeacherTask",
    theory: xr.Dataset,
    params: Params,
    until: float,
    log10_scale: float,
    report: Report,
) -> xr.Dataset:
    """Follow full weights from one scale: curves, stage times, and the values in the middle of plateaus."""
    from saddlescope.flow import FactorInit, factored_flow

    start = FactorInit(pairs=task.pairs, log_scale=log10_scale * np.log(10))
    time = np.linspace(0.0, until, params.points)
    middle = theory.plateau_time.values
    note = f"alpha = 1e{log10_scale:g}"
    trajectory, companion = (
        factored_flow(
            task.network,
            start,
            until=until,
            tolerance=tolerance,
            record=np.union1d(time, middle),
            report=lambda fraction, at, offset=offset: report((offset + fraction) / 2, f"{note}, {at}"),
        )
        for tolerance, offset in ((params.tolerance, 0), (10 * params.tolerance, 1))
    )
    found, other = _stage_times(trajectory, theory), _stage_times(companion, theory)
    at, on = np.searchsorted(trajectory.times, time), np.searchsorted(trajectory.times, middle)
    return xr.Dataset(
        {
            "loss": ("time", trajectory.losses[at]),
            "values": (("time", "product", "index"), trajectory.singular_values[at]),
            "plateau_values": (("stage", "product", "index"), trajectory.singular_values[on]),
            "plateau_loss": ("stage", trajectory.losses[on]),
            "found_time": ("stage", found),
            "found_error": ("stage", np.abs(found - other)),
            "in_transit": _in_transit(trajectory),
            "conserved": trajectory.conserved,
            "gradients": trajectory.evaluations.gradients,
        },
        coords={"time": ("time", time, {"units": trajectory.time_unit}), "index": theory.index.values},
    )


def _stage_times(trajectory: "FactoredTrajectory", theory: xr.Dataset) -> np.ndarray:
    """Return t_k: when each stage's singular value first passes half of its value on the predicted plateau."""
    levels = np.full(trajectory.log_singular_values.shape[1:], np.inf)
    where = theory.predicted_product.values, theory.predicted_index.values
    levels[where] = theory.predicted_values.values[(np.arange(theory.sizes["stage"]), *where)] / 2
    levels[np.isinf(levels)] = 1e6 * levels[where].max()  # never passed
    return trajectory.rises(levels)[where]


def _in_transit(trajectory: "FactoredTrajectory") -> float:
    """Return the average number of singular values that rise at a time: summed times of rising over their union.

    Rising is passing from 5 % to 50 % of the value at the end. What ends below a thousandth of the largest is no
    direction of the teacher.
    """
    last = trajectory.singular_values[-1]
    large = last > 1e-3 * last.max()
    levels = np.where(large, last, 1e6 * last.max())
    begin, end = (trajectory.rises(part * levels)[large] for part in (0.05, 0.5))
    begin, end = np.nan_to_num(begin), np.nan_to_num(end)  # what is that large at the start has begun at 0
    order = np.argsort(begin)
    begin, end = begin[order], end[order]
    latest = np.maximum.accumulate(end)
    covered = end[0] - begin[0] + np.sum(np.maximum(latest[1:] - np.maximum(begin[1:], latest[:-1]), 0.0))
    return float(np.sum(end - begin) / covered)


def _blurred(task: "FullAttentionTeacherTask", params: Params, until: float, report: Report) -> xr.Dataset:
    """Follow full weights that learn a teacher of full rank from a larger scale."""
    from saddlescope.flow import FactorInit, factored_flow

    time = np.linspace(0.0, until, params.points)
    trajectory = factored_flow(
        task.network,
        FactorInit(pairs=task.pairs, log_scale=params.log10_blurred * np.log(10)),
        until=until,
        tolerance=params.tolerance,
        record=time,
        report=lambda fraction, at: report(fraction, f"teacher of full rank, {at}"),
    )
    return xr.Dataset(
        {
            "blurred_loss": ("time", trajectory.losses),
            "blurred_values": (("time", "product", "index"), trajectory.singular_values),
            "blurred_in_transit": _in_transit(trajectory),
        }
    )


def _diagonal(params: Params, report: Report) -> xr.Dataset:
    """Run Algorithm 1 on the head with diagonal weights, and the flow at one scale."""
    from saddlescope.flow import DiagonalInit, gradient_flow
    from saddlescope.models import attention_teacher_task
    from saddlescope.theory import incremental_learning

    task = attention_teacher_task(params.seed, samples=params.samples, tokens=params.tokens, dim=params.dim)
    learned = incremental_learning(task.network, 2 * params.dim)
    times = [stage.time for stage in learned.stages]
    until = 1.5 * times[min(FIRST + 1, len(times) - 1)]
    time = np.linspace(0.0, until, params.points)
    stages = predicted_stages(learned, until=until)
    trajectory = gradient_flow(
        task.network,
        DiagonalInit(task.u0, task.v0, log_scale=params.log10_diagonal * np.log(10)),
        until=until,
        tolerance=params.tolerance,
        record=time,
        report=lambda fraction, at: report(fraction, f"diagonal weights, {at}"),
    )
    at = np.searchsorted(trajectory.times, time)
    rename = {"stage": "diagonal_stage"}
    kept = stages[["predicted_time", "predicted_loss"]].rename(
        {"predicted_time": "diagonal_predicted_time", "predicted_loss": "diagonal_predicted_loss", **rename}
    )
    return kept.assign(
        diagonal_time=("diagonal_time", time),
        diagonal_loss=("diagonal_time", trajectory.losses[at]),
        diagonal_beta=(("diagonal_time", "product", "index"), trajectory.beta[at].reshape(-1, 2, params.dim)),
        diagonal_found_time=("diagonal_stage", halfway_times(trajectory, stages)),
    ).assign_attrs(theory_status=learned.status.value)


entry = Entry(
    "gradual-rank/figure-2-v1",
    "Figure 2 of the first version: diagonal and full weights learn one direction at a time",
    citation=CITATION,
    source="section 5 of version 1",
    params=Params,
    quick=dict(
        log10_scales=(-32.0, -128.0),
        log10_blurred=-1.0,
        points=120,
        tolerance=1e-3,
        samples=40,
        tokens=4,
        dim=3,
        rank=2,
    ),
    paper=dict(log10_scales=(-8.0,), samples=1000, tokens=10, dim=50, rank=4),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
