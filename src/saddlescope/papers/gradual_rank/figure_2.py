"""Figure 2: one diagonal attention head learns its coordinates one at a time   (Section 4 and appendix A)

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

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.shared.entry_figures import PRODUCTS, entry_panel, name_of
from saddlescope.papers.gradual_rank.shared.head_stages import (
    RESOLVED,
    STAGES,
    halfway_times,
    predicted_stages,
    resolved_stages,
)
from saddlescope.plot import Axis, Figure, Line, Panel, Table
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.metric import Metric

if TYPE_CHECKING:
    from saddlescope.models import AttentionTeacherTask

FIRST = 10  # stages on which the claims are made: later ones lie closer together than the paper's scales can tell apart


@dataclass(frozen=True, kw_only=True)
class Params:
    """The toy task of appendix A. The paper gives no learning rate: gradient flow is its limit."""

    log10_scales: tuple[float, ...] = (
        -1.0,
        -2.0,
        -4.0,
        -8.0,
        -16.0,
        -32.0,
    )  # log10 of the initial scales alpha, decreasing
    seed: int = 1  # of the data, the teacher and the initial weights
    samples: int = 1000  # sequences in the data set
    tokens: int = 10  # tokens in a sequence
    dim: int = 50  # dimension of a token
    until: float = 1000.0  # end of the simulation in rescaled time
    tolerance: float = 2e-5  # relative, of stage times; see `saddlescope.flow.gradient_flow`
    level: float = 0.01  # |beta_i| above which coordinate i counts as learned
    points: int = 701  # times at which the curves are stored, evenly spaced in their logarithm

    def __post_init__(self) -> None:
        parameter_checks.log10_scales(self, "log10_scales")
        parameter_checks.at_least(1, self, "samples", "tokens", "dim")
        parameter_checks.positive(self, "until", "level")
        parameter_checks.between(1e-12, 1e-2, self, "tolerance")
        parameter_checks.at_least(2, self, "points")
        parameter_checks.at_least(0, self, "seed")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: a small head, three scales."""
        return cls(log10_scales=(-2.0, -16.0, -512.0), samples=100, tokens=5, dim=8, until=160.0, points=401)

    @classmethod
    def paper(cls) -> "Params":
        """The default is already the paper's size."""
        return cls()


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Algorithm 1, then the flow from each scale; each part is kept in the scratch folder as soon as it is there."""
    import jax

    from saddlescope.models import attention_teacher_task

    with jax.enable_x64(True):
        task = attention_teacher_task(params.seed, samples=params.samples, tokens=params.tokens, dim=params.dim)
        theory = context.cached("theory", partial(_predict, task, params, context.part(0.0, 0.3)))
        flows = []
        for k, log10_scale in enumerate(params.log10_scales):
            start = 0.3 + 0.7 * k / len(params.log10_scales)
            part = context.part(start, start + 0.7 / len(params.log10_scales))
            flow = partial(_simulate, task, theory, params, log10_scale, part)
            flows.append(context.cached(f"flow{log10_scale}", flow))
            part(1.0, f"alpha = 1e{log10_scale:g} done")
    together = xr.concat(flows, dim="scale", combine_attrs="drop").assign_coords(scale=list(params.log10_scales))
    return xr.merge([theory, together], combine_attrs="drop").assign_attrs(theory.attrs)


def _predict(task: "AttentionTeacherTask", params: Params, report: Callable[[float, str], None]) -> xr.Dataset:
    """Algorithm 1: the stages k = 1, 2, ... and the loss they predict on the stored times."""
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
    report: Callable[[float, str], None],
) -> xr.Dataset:
    """Gradient flow from one scale: curves, plateaus, the order in which coordinates are learned, and stage times."""
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


# The bounds. Theorem 4.1 promises convergence as alpha -> 0 and no rate; its proof moves each stage by O(1) e-folds of
# unrescaled time, so by O(1/log(1/alpha)) in rescaled time: about 1 % at alpha = 1e-32, where log(1/alpha) = 74.
def _algorithm_ends_at_teacher(run: xr.Dataset) -> Estimate:
    if run.attrs["theory_status"] != "converged":
        return Estimate.unresolved(run.attrs["theory_status"])
    last = run.predicted_beta.isel(stage=-1)
    return Estimate(float(abs(last - run.teacher).max()))


_TOO_SHORT = "Not all of the first stages happened before the simulation ended; raise `until`."


def _order(run: xr.Dataset) -> Estimate:

    times = run.found_time.isel(scale=-1).values
    if np.isnan(times[:FIRST]).any():
        return Estimate.unresolved(_TOO_SHORT)
    found = np.argsort(times)[:FIRST]  # NaN, not learned yet, comes last
    agree = found == np.arange(len(found))
    return Estimate(float(len(agree) if agree.all() else agree.argmin()) / len(agree))


def _times(run: xr.Dataset) -> Estimate:
    error = (abs(run.found_time / run.predicted_time - 1)).isel(scale=-1, stage=slice(FIRST))
    if error.isnull().any():
        return Estimate.unresolved(_TOO_SHORT)
    return Estimate(float(error.max()), float(run.accuracy.isel(scale=-1)))


def _wrong_coordinates(run: xr.Dataset) -> Estimate:
    first = run.isel(scale=-1, stage=slice(FIRST))
    seen = (first.resolved & first.plateau_loss.notnull()).values
    if not seen.any():
        return Estimate.unresolved("No plateau lasts long enough at this scale; take a smaller one.")
    wrong = (abs(first.plateau_beta) > run.attrs["level"]) != (first.predicted_beta != 0)
    return Estimate(float(wrong.sum("coordinate").values[seen].max()), remark=f"{seen.sum()} plateaus resolved")


def _ratio_of_errors(errors: xr.DataArray) -> Estimate:
    if errors.sizes["scale"] < 2:
        return Estimate.unresolved("One scale only: there is no sequence that could converge.")
    values = errors.values
    return Estimate(float((values[1:] / values[:-1]).max()))


def _loss_converges(run: xr.Dataset) -> Estimate:
    return _ratio_of_errors(abs(run.loss - run.predicted_loss_curve).integrate("time"))


def _weights_converge(run: xr.Dataset) -> Estimate:
    error = abs(run.plateau_beta - run.predicted_beta).max("coordinate").isel(stage=slice(FIRST))
    return _ratio_of_errors(error.median("stage"))


def _plateaus_at_one_percent(run: xr.Dataset) -> Estimate:
    from scipy.signal import find_peaks

    if -2 not in run.scale.values:
        return Estimate.unresolved("alpha = 0.01 was not among the scales.")
    loss = run.loss.sel(scale=-2).values
    rate = np.maximum(-np.diff(loss), 1e-12 * loss[0]) / np.diff(run.time.values)
    plateaus, _ = find_peaks(-np.log(rate), prominence=np.log(2))  # slower by 2 than the drops on both sides
    return Estimate(float(len(plateaus)))


claims = (
    Claim(
        name="end",
        says="Algorithm 1 ends at the teacher: largest error of its last beta",
        source="Theorem 4.1; the teacher is the one global minimum",
        statistic=_algorithm_ends_at_teacher,
        high=1e-12,
    ),
    Claim(
        name="order",
        says="At the smallest scale the first ten coordinates are learned in Algorithm 1's order: fraction that is",
        source="Theorem 4.1",
        statistic=_order,
        low=1.0,
    ),
    Claim(
        name="times",
        says="At the smallest scale the first ten stage times are Algorithm 1's: largest relative error",
        source="Theorem 4.1; 1 % for O(1) e-folds out of log(1/alpha) = 74",
        statistic=_times,
        high=0.01,
    ),
    Claim(
        name="support",
        says="On each of the first ten plateaus that the smallest scale resolves, exactly the predicted coordinates "
        "are learned: wrong ones",
        source="Theorem 4.1",
        statistic=_wrong_coordinates,
        high=0.0,
    ),
    Claim(
        name="loss-converges",
        says="The loss curves approach the staircase as alpha falls: largest ratio of distances",
        source="Figure 2a, Theorem 4.1",
        statistic=_loss_converges,
        high=1.0,
    ),
    Claim(
        name="weights-converge",
        says="The weights on the first ten plateaus approach theta^k as alpha falls: largest ratio of distances",
        source="Figure 2b, Theorem 4.1",
        statistic=_weights_converge,
        high=1.0,
    ),
    Claim(
        name="one-percent",
        says="Some stagewise learning is already clear with alpha = 0.01: plateaus of the loss after the first",
        source="Figure 2, caption; a plateau falls at most half as fast as the drops beside it",
        statistic=_plateaus_at_one_percent,
        low=1.0,
    ),
)

metrics = (
    STAGES,
    RESOLVED,
    Metric(
        name="final_loss",
        says="final loss at the smallest α",
        statistic=lambda run: float(run.loss.isel(scale=-1, time=-1)),
        scale="log",
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """The loss (Figure 2a) with the stages in a table, and the entries of both products (Figure 2b)."""
    return [_loss(run), _entries(run)]


def _alpha(log10_scale: float) -> str:
    return f"alpha = 1e{log10_scale:g}"


def _loss(run: xr.Dataset) -> Figure:

    time = run.time.values
    curves = [
        Line(x=time, y=run.loss.sel(scale=scale).values, label=_alpha(scale), color=k)
        for k, scale in enumerate(run.scale.values)
    ]
    predicted = Line(
        x=time, y=run.predicted_loss_curve.values, label="Algorithm 1", color=None, style="dashed", width=1.2
    )
    end = min(run.attrs["until"], 1.25 * float(run.predicted_time[: FIRST + 1].max()))
    begin = 0.6 * float(run.predicted_time[0])
    early = (time >= begin) & (time <= end)
    zoomed = [Line(x=line.x[early], y=line.y[early], group=line.label, color=line.color) for line in curves]
    zoomed.append(Line(x=time[early], y=predicted.y[early], group="Algorithm 1", style="dashed", width=1.2))
    x, y = Axis("time of the flow / log(1/alpha)"), Axis("loss")
    return Figure(
        name="loss",
        title="The loss falls in a staircase as the initial scale vanishes",
        caption="Loss against rescaled time for each initial scale alpha, with the staircase that Algorithm 1 "
        "predicts. Left: the first stages. The table has each stage's coordinate, its predicted time, the measured "
        "times t_k (half-way to the plateau), and predicted and measured loss on the plateau. The last column "
        "says whether the smallest alpha resolves the plateau.",
        panels=(
            Panel(title=f"the first {FIRST} stages", x=x, y=y, marks=tuple(zoomed)),
            Panel(title="all stages", x=x, y=y, marks=(*curves, predicted)),
        ),
        table=Table(columns=_columns(run), rows=tuple(_rows(run))),
    )


def _columns(run: xr.Dataset) -> tuple[str, ...]:
    measured = (f"t_k at {_alpha(scale)}" for scale in run.scale.values)
    return ("k", "coordinate", "sign", "T_k", *measured, "error", "loss", "measured loss", "resolved")


def _rows(run: xr.Dataset) -> Iterator[tuple[str | float | int, ...]]:
    for k in run.stage.values:
        stage = run.sel(stage=k)
        if stage.predicted_time > run.attrs["until"]:
            break
        smallest = stage.isel(scale=-1)
        yield (
            int(k),
            name_of(run, int(stage.predicted_coordinate)),
            "+" if stage.predicted_sign > 0 else "−",
            float(stage.predicted_time),
            *(float(t) for t in stage.found_time),
            f"{float(smallest.found_time / smallest.predicted_time - 1):+.2%}",
            float(stage.predicted_loss),
            float(smallest.plateau_loss),
            "yes" if bool(smallest.resolved) else "no",
        )


def _entries(run: xr.Dataset) -> Figure:

    smallest = float(run.scale.values[-1])
    return Figure(
        name="entries",
        title="The rank of both products rises by one coordinate at a time",
        caption="Each line is one diagonal entry of W_K W_Qᵀ (left) or W_V W_Oᵀ (right) of the learning head at the "
        "smallest initial scale; dashed, Algorithm 1's prediction. Figures 8 and 9 have all scales.",
        panels=tuple(entry_panel(run, product, smallest) for product in PRODUCTS),
    )
