"""Theorem 4.1: how fast the flow approaches its stages as the initial scale vanishes   (Theorem 4.1)

The attention head of Figure 2 is followed from initial scales down to 1e-4096, far below what floating-point numbers
hold, and each stage time is held against Algorithm 1. The theorem promises convergence and no rate; the rate is

    t_k(alpha) = T_k + C_k / log(1/alpha)

up to what is exponentially small in the length of the plateaus: the initial weights and the transitions before stage k
cost O(1) of unrescaled time, whatever alpha. Two runs then give the limit by extrapolation; and the theory, given the
initial weights, tells C_k without any run.

    alpha   initial scale: u(0) = alpha u0, v(0) = alpha v0
    t       rescaled time: time of the gradient flow divided by log(1/alpha)
    T_k     predicted time at which coordinate i_k enters and the weights leave the saddle theta^(k-1)
    t_k     measured time at which beta_(i_k) is half-way to its value on the predicted plateau
    C_k     (t_k(alpha) - T_k) log(1/alpha)

A stage is well separated if it and all stages before it are: a transition that begins before the last one has ended
changes every later C_k. Stages that follow each other so closely at a given alpha come in another order there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import log
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.shared.head_stages import (
    RESOLVED,
    STAGES,
    halfway_times,
    predicted_stages,
    resolved_stages,
)
from saddlescope.plot import Axis, Figure, Heat, Line, Mark, Panel, Table
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.metric import Metric

if TYPE_CHECKING:
    from saddlescope.flow import Trajectory
    from saddlescope.models import AttentionTeacherTask

NEAR = 0.05  # a plateau is reached if every weight is that close to theta^k in its middle
CONSTANT = 0.005  # how constant C_k should be
SEPARATED_AT = -64.0  # log10 of the scale from which on
SHOWN = 13  # stages whose C_k are drawn
COARSER = 10.0  # the tolerance of the companion run whose differences are the uncertainties, in units of the run's


@dataclass(frozen=True, kw_only=True)
class Params:
    """The toy task of appendix A, as in Figure 2, at more scales and to an earlier time."""

    log10_scales: tuple[float, ...] = (
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
    )  # log10 of the initial scales alpha, decreasing
    seed: int = 1  # of the data, the teacher and the initial weights
    samples: int = 1000  # sequences in the data set
    tokens: int = 10  # tokens in a sequence
    dim: int = 50  # dimension of a token
    stages: int = 74  # first stages that are judged; the simulation ends where the next one is predicted
    tolerance: float = 1e-7  # relative, of stage times; see `saddlescope.flow.gradient_flow`

    def __post_init__(self) -> None:
        parameter_checks.log10_scales(self, "log10_scales", least=2)
        parameter_checks.at_least(1, self, "samples", "tokens", "dim", "stages")
        parameter_checks.at_least(0, self, "seed")
        parameter_checks.between(1e-10, 1e-3, self, "tolerance")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: a small head, four scales."""
        return cls(log10_scales=(-32.0, -64.0, -1024.0, -4096.0), samples=20, tokens=4, dim=4, stages=3, tolerance=1e-6)

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
        theory = context.cached("theory", partial(_predict, task, params, context.part(0.0, 0.1)))
        flows = []
        for k, log10_scale in enumerate(params.log10_scales):
            start = 0.1 + 0.9 * k / len(params.log10_scales)
            part = context.part(start, start + 0.9 / len(params.log10_scales))
            flow = partial(_simulate, task, theory, params, log10_scale, part)
            flows.append(context.cached(f"flow{log10_scale}", flow))
            part(1.0, f"alpha = 1e{log10_scale:g} done")
    together = xr.concat(flows, dim="scale", combine_attrs="drop").assign_coords(scale=list(params.log10_scales))
    return xr.merge([theory, together], combine_attrs="drop").assign_attrs(theory.attrs)


def _predict(task: "AttentionTeacherTask", params: Params, report: Callable[[float, str], None]) -> xr.Dataset:
    """Algorithm 1: the stages k = 1, 2, ..., their C_k, and which of them each scale tells apart."""
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
    report: Callable[[float, str], None],
) -> xr.Dataset:
    """Gradient flow from one scale, and once more at a coarser tolerance: stage times and distances on plateaus."""
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


# The bounds. Theorem 4.1 has no rate. The bars of stage times were set from trial runs of this instance (seed 1, full
# size) before the entry was written; 1 / log(1/alpha) and its constancy follow from the scaling of every O(1) delay.
# The uncertainty of a statistic of stage times is its change when the tolerance of the flow is ten times as large.
def _of_times(
    largest: float,
    smallest: float,
    compute: Callable[[xr.Dataset, xr.DataArray], float],
    *,
    only: str = "",
) -> Callable[[xr.Dataset], Estimate]:
    """A statistic of stage times at the scales from the largest to the smallest, given as log10.

    It is of all stages, or of those where the variable that `only` names holds.
    """

    def measure(run: xr.Dataset) -> Estimate:
        scales = run.scale.values
        if not {largest, smallest} <= set(scales.tolist()):
            return Estimate.unresolved(f"It needs alpha = 1e{largest:g} and 1e{smallest:g} among the scales.")
        judged = run.isel(scale=(scales <= largest) & (scales >= smallest))
        if only:
            judged = judged.isel(stage=run[only].values.astype(bool))
        if not judged.sizes["stage"]:
            return Estimate.unresolved(f"No stage is {only}.")
        if judged.found_time.isnull().any() or judged.coarse_time.isnull().any():
            return Estimate.unresolved("Not all stages happened before the simulation ended.")
        value, coarse = compute(judged, judged.found_time), compute(judged, judged.coarse_time)
        return Estimate(value, abs(value - coarse), f"{judged.sizes['stage']} stages")

    return measure


def _errors(run: xr.Dataset, times: xr.DataArray) -> np.ndarray:
    """Relative errors of stage times against Algorithm 1, shape (scales, stages)."""
    return abs(times / run.predicted_time - 1).transpose("scale", "stage").values


def _median(run: xr.Dataset, times: xr.DataArray) -> float:

    return float(np.median(_errors(run, times)[-1]))


def _largest(run: xr.Dataset, times: xr.DataArray) -> float:
    return float(_errors(run, times)[-1].max())


def _in_order(run: xr.Dataset, times: xr.DataArray) -> float:

    agree = np.argsort(times.isel(scale=-1).values) == np.arange(run.sizes["stage"])
    return float(len(agree) if agree.all() else agree.argmin()) / len(agree)


def _rate(run: xr.Dataset, times: xr.DataArray) -> float:

    medians = np.median(_errors(run, times), axis=1)
    return float(np.polyfit(np.log(-run.scale.values), np.log(medians), 1)[0])


def _constants(run: xr.Dataset, times: xr.DataArray) -> xr.DataArray:
    return (times - run.predicted_time) * (-run.scale * log(10))


def _variation(run: xr.Dataset, times: xr.DataArray) -> float:
    constants = _constants(run, times)
    return float(((constants.max("scale") - constants.min("scale")) / abs(constants.mean("scale"))).max())


def _extrapolated(run: xr.Dataset, times: xr.DataArray) -> float:

    from saddlescope.measure import richardson

    limits = richardson(times.transpose("scale", "stage").values, run.scale.values * np.log(10))
    return float(np.median(np.abs(limits / run.predicted_time.values - 1)))


def _corrected(run: xr.Dataset) -> xr.DataArray:
    """Algorithm 1's stage times at each scale, with C_k from the theory."""
    return run.predicted_time + run.predicted_constant / (-run.scale * log(10))


def _gain(run: xr.Dataset, times: xr.DataArray) -> float:
    left = abs(times - _corrected(run)) / run.predicted_time
    return _median(run, times) / float(left.isel(scale=-1).median())


def _reached(run: xr.Dataset) -> xr.DataArray:
    """The fraction of the plateaus in whose middle beta is near theta^k, for each scale."""
    return (run.beta_distance <= NEAR).mean("stage")


def _smallest_rise(run: xr.Dataset) -> Estimate:
    reached = _reached(run)
    return Estimate(float(reached.diff("scale").min()), remark=f"{float(reached[0]):.0%} to {float(reached[-1]):.0%}")


def _ratio_of_distances(run: xr.Dataset) -> Estimate:
    distance = run.theta_distance.median("stage").values
    return Estimate(float((distance[1:] / distance[:-1]).max()))


def _distance_on_resolved(run: xr.Dataset) -> Estimate:
    last = run.isel(scale=-1)
    seen = last.resolved.astype(bool)
    if not seen.any():
        return Estimate.unresolved("No plateau lasts long enough at this scale; take a smaller one.")
    return Estimate(float(last.beta_distance.where(seen).max()), remark=f"{int(seen.sum())} plateaus resolved")


_BAR = "Theorem 4.1; the bar is from trial runs of this instance"

claims = (
    Claim(
        name="median-error",
        says="At alpha = 1e-32 the stage times are Algorithm 1's: median relative error",
        source=_BAR,
        statistic=_of_times(-32.0, -32.0, _median),
        high=0.0036,
    ),
    Claim(
        name="largest-error",
        says="At alpha = 1e-32 the stage times are Algorithm 1's: largest relative error",
        source=_BAR,
        statistic=_of_times(-32.0, -32.0, _largest),
        high=0.035,
    ),
    Claim(
        name="order",
        says="At alpha = 1e-4096 all coordinates are learned in Algorithm 1's order: fraction before the first that is "
        "not",
        source="Theorem 4.1",
        statistic=_of_times(-4096.0, -4096.0, _in_order),
        low=1.0,
    ),
    Claim(
        name="rate",
        says="The median error falls as 1 / log(1/alpha): its power, from 1e-32 to 1e-4096",
        source="O(1) of time out of log(1/alpha); the theorem has no rate. 10 % for stages that blur at 1e-32",
        statistic=_of_times(-32.0, -4096.0, _rate),
        low=-1.1,
        high=-0.9,
    ),
    Claim(
        name="constants",
        says="C_k does not depend on alpha from 1e-64 to 1e-1024 for well-separated stages: largest relative variation",
        source="What a transition leaves at the next is below 0.5 % after log(200) = 5.3 e-folds",
        statistic=_of_times(-64.0, -1024.0, _variation, only="separated"),
        high=CONSTANT,
    ),
    Claim(
        name="extrapolation",
        says="Stage times extrapolated from 1e-1024 and 1e-4096 are Algorithm 1's: median relative error",
        source=_BAR,
        statistic=_of_times(-1024.0, -4096.0, _extrapolated),
        high=1e-6,
    ),
    Claim(
        name="correction",
        says="With C_k from the theory alone the error at 1e-32 is smaller: factor between the medians",
        source="What the theory leaves out is exponentially small where stages are separated; the bar is from before "
        "the theory had C_k",
        statistic=_of_times(-32.0, -32.0, _gain),
        low=5.0,
    ),
    Claim(
        name="plateaus-rise",
        says="More plateaus are reached (within 0.05) as alpha falls: smallest change of their fraction",
        source="Theorem 4.1",
        statistic=_smallest_rise,
        low=0.0,
    ),
    Claim(
        name="plateaus",
        says="In the middle of every plateau that the smallest scale resolves, beta is that of theta^k: largest "
        "difference",
        source="Theorem 4.1; 0.05 after half of 2 log(20) = 6 e-folds",
        statistic=_distance_on_resolved,
        high=NEAR,
    ),
    Claim(
        name="weights-converge",
        says="In the middle of plateaus the weights approach theta^k as alpha falls: largest ratio of median distances",
        source="Theorem 4.1",
        statistic=_ratio_of_distances,
        high=1.0,
    ),
)

metrics = (
    STAGES,
    RESOLVED,
    Metric(
        name="distance",
        says="distance to θ^k at the smallest α, median over plateaus",
        statistic=lambda run: float(run.theta_distance.isel(scale=-1).median()),
        scale="log",
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """Errors against alpha with their law, and what each scale resolves."""
    return [_convergence(run), _resolution(run)]


def _e_folds(run: xr.Dataset) -> np.ndarray:
    return -run.scale.values * log(10)


def _convergence(run: xr.Dataset) -> Figure:

    unit = _e_folds(run)
    errors = _errors(run, run.found_time)  # NaN where a stage did not happen
    left = abs((run.found_time - _corrected(run)) / run.predicted_time).transpose("scale", "stage").values
    median = np.median(errors, axis=1)
    x = Axis("log(1/alpha)", scale="log")
    marks: list[Line | Mark] = [
        Line(x=unit, y=errors.max(1), label="largest", color=3),
        Line(x=unit, y=median, label="median", color=0),
        Line(x=unit, y=np.median(left, axis=1), label="median, with C_k from theory", color=2),
        Line(
            x=unit,
            y=median[-1] * unit[-1] / unit,
            label="1 / log(1/alpha)",
            color=None,
            style="dashed",
            width=1.2,
        ),
    ]
    if np.isfinite(median[-2:]).all():
        last = run.isel(scale=[-2, -1])
        marks.append(Mark(at=_extrapolated(last, last.found_time), label="median, extrapolated from two", axis="y"))
    constants = _constants(run, run.found_time).transpose("scale", "stage").values
    lines = []
    for k in range(min(SHOWN, run.sizes["stage"])):
        style = "solid" if run.separated.values[k] else "dotted"
        lines.append(Line(x=unit, y=constants[:, k], label=f"k = {k + 1}", color=k, style=style))
        lines.append(
            Line(
                x=unit[-1:],
                y=run.predicted_constant.values[k : k + 1],
                group="C_k from theory",
                color=k,
                style="points",
            )
        )
    return Figure(
        name="convergence",
        title="Stage times approach Algorithm 1's as 1 / log(1/alpha)",
        caption="Left: median and largest relative error of all stage times against log(1/alpha), with the law, and "
        "what is left with C_k from the theory, or by extrapolation of two runs. Right: the error times log(1/alpha) "
        "for the first stages. It is a constant C_k of each stage as soon as the stages before it are told apart; "
        "dotted lines are of stages that are not well separated at 1e-64. Points are the theory's C_k.",
        panels=(
            Panel(title="error of the stage times", x=x, y=Axis("|t_k / T_k − 1|", scale="log"), marks=tuple(marks)),
            Panel(title="C_k", x=x, y=Axis("(t_k − T_k) log(1/alpha)"), marks=tuple(lines)),
        ),
        table=_table(run),
    )


def _table(run: xr.Dataset) -> Table:

    measured = (f"t_k at 1e{scale:g}" for scale in run.scale.values)
    constants = _constants(run, run.found_time).isel(scale=-1)
    rows = (
        (
            int(k),
            int(stage.predicted_coordinate),
            float(stage.predicted_time),
            *(float(t) for t in stage.found_time),
            float(stage.predicted_constant),
            float(constants.sel(stage=k)),
            "yes" if bool(stage.separated) else "no",
        )
        for k, stage in ((k, run.sel(stage=k)) for k in run.stage.values)
    )
    return Table(
        columns=("k", "coordinate", "T_k", *measured, "C_k", "C_k at the smallest", "well separated"), rows=tuple(rows)
    )


def _resolution(run: xr.Dataset) -> Figure:

    unit = _e_folds(run)
    resolved = run.resolved.transpose("scale", "stage").values.mean(1)
    reached = Panel(
        title="plateaus told apart",
        x=Axis("log(1/alpha)", scale="log"),
        y=Axis("fraction of plateaus", range=(0.0, 1.05)),
        marks=(
            Line(x=unit, y=_reached(run).values, label=f"reached within {NEAR:g}"),
            Line(x=unit, y=resolved, label="resolved, by the theory alone", style="dashed"),
        ),
    )
    distance = run.theta_distance.transpose("scale", "stage").values
    heat = Panel(
        title="largest |theta − theta^k| in the middle of plateau k",
        x=Axis("stage k"),
        y=Axis("log10 log(1/alpha)"),
        marks=(Heat(x=run.stage.values, y=np.log10(unit), z=np.maximum(distance, 1e-12), scale="log"),),
    )
    return Figure(
        name="plateaus",
        title="Ever more plateaus are reached as the initial scale vanishes",
        caption="Left: the fraction of plateaus in whose middle all products of weights are near those of theta^k, "
        "beside the fraction that the theory calls long enough at that alpha. Right: the largest difference of a "
        "weight, stage by stage.",
        panels=(reached, heat),
    )
