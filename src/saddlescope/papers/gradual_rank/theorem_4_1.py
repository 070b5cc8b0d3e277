"""Theorem 4.1: how fast the flow approaches its stages as the initial scale vanishes.

Attention heads like that of Figure 2, from several seeds, are followed from initial scales down to 1e-4096, far below
the range of floating-point numbers. The theorem promises convergence and no rate; the rate is

    t_k(α) = T_k + C_k / log(1/α)

up to terms that are exponentially small in the length of the plateaus: the initial weights and the transitions before
stage k cost O(1) of unrescaled time at any α. The theory gives C_k from the initial weights without any run.

    t       rescaled time: time of the gradient flow divided by log(1/α)
    t_k     measured time at which β_(i_k) is half-way to its value on the predicted plateau
    C_k     (t_k(α) - T_k) log(1/α)

A stage is well separated if it and all stages before it are: a transition that begins before the last one has ended
changes every later C_k.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import log

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.shared import stage_times
from saddlescope.papers.gradual_rank.shared.head_task import HeadSizes
from saddlescope.plot import Axis, Figure, Figures, Heat, Line, Panel
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param

SEPARATED_AT = -64.0  # log10 of the largest scale at which well-separated stages are separated
COARSER = 10.0  # tolerance of the second run, whose differences are the uncertainties, in units of the first run's
NEAR = 0.05  # a plateau is reached if every product of weights is that close to β^k in its middle
FLOOR = 1e-5  # errors below it may be those of the flow
CONSTANT = 0.005  # trace of a transition at the next, relative to C_k, below which a stage is well separated


class Params(HeadSizes, samples=100, tokens=5, dim=8):
    """The toy task of appendix A on several instances, smaller but for the paper size."""

    seeds: tuple[int, ...] = param(
        tuple(range(11, 19)), "seeds of the data, the teacher and the initial weights", ge=0, order="distinct"
    )
    log10_scales: tuple[float, ...] = param(
        (-2.0, -8.0, -32.0, -64.0, -1024.0, -4096.0), "log10 of the initial scales", lt=0, order="decreasing", least=2
    )
    stages: int = param(12, "number of first stages judged; the simulation ends where the next is predicted", ge=1)
    tolerance: float = param(1e-7, "relative tolerance of the stage times", ge=1e-10, le=1e-3, scale="log")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1 and the flows on each instance; finished parts are cached."""
    import jax

    with jax.enable_x64(True):
        return context.over({"seed": params.seeds}, partial(_instance, params), join="outer")


def _instance(params: Params, seed: int, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1, then the flow from each scale at two tolerances."""
    from saddlescope.flow import DiagonalInit, gradient_flow
    from saddlescope.theory import incremental_learning

    algorithm, flow = context.split(0.1, 0.9)
    task = params.task_of(seed)
    learned = incremental_learning(
        task.network,
        2 * params.dim,
        weights=(task.u0, task.v0),
        max_stages=params.stages,
        report=algorithm.note("Algorithm 1"),
    )
    assert learned.corrections is not None  # weights were given
    until = learned.end if np.isfinite(learned.end) else 1.25 * learned.stages[-1].time
    theory = stage_times.predicted_stages(learned, until=until)
    # A trace of a transition decays by one e-fold after another: by these, below CONSTANT.
    separated = stage_times.resolved_stages(learned, SEPARATED_AT * log(10), efolds=log(1 / CONSTANT))
    efolds = 2 * log(1 / NEAR)  # in the middle of a plateau half of its e-folds have passed
    middle = theory.plateau_time.values
    # |u| and |v|, since the paper fixes their signs without loss of generality; beta has the sign of their product.
    saddles = np.sqrt(np.abs(theory.predicted_beta.values))

    def simulate(log10_scale: float, step: RunContext) -> xr.Dataset:
        trajectory, coarse = (
            gradient_flow(
                task.network,
                DiagonalInit(task.u0, task.v0, log_scale=log10_scale * log(10)),
                until=until,
                tolerance=tolerance,
                record=np.union1d(np.linspace(0, until, 1001), middle),
                report=part.report,
            )
            for tolerance, part in step.steps((params.tolerance, COARSER * params.tolerance), weights=(0.6, 0.4))
        )
        weights = np.abs(trajectory.parameters(middle))
        resolved = stage_times.resolved_stages(learned, log10_scale * log(10), efolds=efolds)
        return xr.Dataset(
            {
                "resolved": ("stage", resolved.astype(float)),
                "found_time": ("stage", stage_times.halfway_times(trajectory, theory)),
                "coarse_time": ("stage", stage_times.halfway_times(coarse, theory)),
                "beta_distance": ("stage", np.abs(trajectory(middle) - theory.predicted_beta.values).max(1)),
                "theta_distance": ("stage", np.abs(weights - saddles).max((0, 2))),
            },
            {"stage": theory.stage},
        )

    return xr.merge([theory[["predicted_time"]], flow.over({"scale": params.log10_scales}, simulate)]).assign(
        predicted_constant=("stage", learned.corrections[1:]),
        separated=("stage", np.logical_and.accumulate(separated).astype(float)),
    )


def _relative_errors(run: xr.Dataset, times: xr.DataArray) -> np.ndarray:
    """Return relative errors of stage times against Algorithm 1, shape (scales, stages)."""
    return abs(times / run.predicted_time - 1).transpose("scale", "stage").values


def _delay_constants(run: xr.Dataset, times: xr.DataArray) -> xr.DataArray:
    """Return C_k = (t_k - T_k) log(1/α), by scale and stage."""
    return ((times - run.predicted_time) * (-run.scale * log(10))).transpose("scale", "stage")


def instances(run: xr.Dataset) -> list[xr.Dataset]:
    """Return the instances, one per seed, each with its own stages only."""
    each = (run.isel(seed=k) for k in range(run.sizes["seed"]))
    return [one.isel(stage=one.predicted_time.notnull().values) for one in each]


claims = Claims(
    limits="Eight heads of dimension 8 with twelve stages each, down to α = 1e-4096. The theorem is a limit without a "
    "rate: `weights-converge` judges the trend over six scales, by the median over a head's plateaus, down to the "
    "error of the flow, while that of one plateau that α does not separate may rise. It compares |u| and |v| with the "
    "saddle's, since the paper fixes their signs. `plateaus` judges the worst of the plateaus that the theory calls "
    "long enough. C_k / log(1/α) is this project's theory; stages that overlap at 1e-32 have errors of another kind."
)


@claims.reading(
    "weights-converge",
    "As α falls to 1e-4096, small heads' weights half-way between stage times tend to Algorithm 1's saddles, in "
    "the median over stages",
    "Theorem 4.1: lim θ(t log(1/α)) = θ^k for t in (T_k, T_(k+1)); half-way, median and trend: this project",
    high=1.0,
)
def _ratio_of_distances(run: xr.Dataset) -> Estimate:
    """Largest ratio, from one α to the next smaller, of the median over plateaus of their weight error."""
    distance = run.theta_distance.median("stage").transpose("seed", "scale").values
    before, after = distance[:, :-1], distance[:, 1:]
    shown = np.maximum(before, after) > FLOOR
    if not shown.any():
        return Estimate.unresolved(f"All distances are below {FLOOR:g}, which the flow does not resolve.")
    ratios = (np.maximum(after, FLOOR) / np.maximum(before, FLOOR))[shown]
    remark = f"{ratios.size} of {shown.size} pairs of scales; the others are below {FLOOR:g}"
    return Estimate.largest(ratios, remark, over="pairs of scales of all heads")


@claims.reading(
    "order",
    "From initial scale 1e-4096, small heads learn their first twelve diagonal entries in Algorithm 1's order",
    "Theorem 4.1, a limit; 1e-4096 is this project's choice",
    low=1.0,
)
def _order(run: xr.Dataset) -> Estimate:
    """Share of the learned diagonal entries before the first one out of order, smallest over heads."""

    def share(one: xr.Dataset, times: xr.DataArray) -> float:
        agree = np.argsort(times.isel(scale=-1).values) == np.arange(one.sizes["stage"])
        return float(np.logical_and.accumulate(agree).mean())

    return _of_stage_times(run, -4096.0, -4096.0, share, Estimate.smallest)


@claims.reading(
    "plateaus",
    "Midway on every plateau that α = 1e-4096 separates, small heads' weight products are within 0.05 of Algorithm 1's",
    "Theorem 4.1; 0.05 after half of 2 log(20) = 6 e-folds",
    high=NEAR,
)
def _distance_on_resolved(run: xr.Dataset) -> Estimate:
    """Largest absolute difference of a product of weights in the middle of such a plateau from the predicted one."""
    last = run.isel(scale=-1)
    distances = last.beta_distance.values[(last.resolved == 1).values]
    if not distances.size:
        return Estimate.unresolved("No plateau lasts long enough at the smallest scale; take a smaller one.")
    return Estimate.largest(distances, over="resolved plateaus of all heads")


@claims.extension(
    "rate",
    "From α = 1e-32 to 1e-4096, the median error of Algorithm 1's stage times for small heads falls as 1 / log(1/α)",
    "O(1) of time out of log(1/α), 10 % for stages that overlap at 1e-32",
    low=-1.1,
    high=-0.9,
)
def _rate(run: xr.Dataset) -> Estimate:
    """Fitted power of log(1/α) in the median relative error over stages, from 1e-32 to 1e-4096, mean over heads."""

    def power(one: xr.Dataset, times: xr.DataArray) -> float:
        medians = np.median(_relative_errors(one, times), axis=1)
        return float(np.polyfit(np.log(-one.scale.values), np.log(medians), 1)[0])

    return _of_stage_times(run, -32.0, -4096.0, power, Estimate.mean)


def _of_stage_times(
    run: xr.Dataset,
    largest: float,
    smallest: float,
    compute: Callable[[xr.Dataset, xr.DataArray], float],
    summary: Callable[..., Estimate],
) -> Estimate:
    """Return the estimate, over heads, of a statistic of stage times at scales from one to another, as log10.

    Its uncertainty is at least its largest change at a ten times larger tolerance of the flow.
    """
    scales = run.scale.values
    if not {largest, smallest} <= set(scales.tolist()):
        return Estimate.unresolved(f"It needs α = 1e{largest:g} and 1e{smallest:g}; add them to `log10_scales`.")
    values, changes, stages = [], [], 0
    for judged in instances(run.isel(scale=(scales <= largest) & (scales >= smallest))):
        if judged.found_time.isnull().any() or judged.coarse_time.isnull().any():
            return Estimate.unresolved("A simulation ended before the last of the judged stages.")
        values.append(compute(judged, judged.found_time))
        changes.append(abs(values[-1] - compute(judged, judged.coarse_time)))
        stages += judged.sizes["stage"]
    found = summary(values, f"{stages} stages", over="heads")
    return replace(found, uncertainty=max(found.uncertainty, *changes))


SHOWN = 13  # stages whose C_k are drawn


def figures(run: xr.Dataset) -> Figures:
    """Draw the first head: errors against alpha with their law and constants, and the distance from each saddle."""
    first = instances(run)[0]
    unit = -first.scale.values * log(10)
    x = Axis("log(1/α)", scale="log")
    errors = _relative_errors(first, first.found_time)  # NaN where a stage did not happen
    median = np.median(errors, axis=1)
    marks = (
        Line(x=unit, y=errors.max(1), label="largest", color=3),
        Line(x=unit, y=median, label="median", color=0),
        Line(x=unit, y=median[-1] * unit[-1] / unit, label="1 / log(1/α)", style="dashed", width=1.2),
    )
    constants, curves = _delay_constants(first, first.found_time).values, []
    for k in range(min(SHOWN, first.sizes["stage"])):
        style = "solid" if first.separated.values[k] else "dotted"
        theory = first.predicted_constant.values[k : k + 1]
        curves.append(Line(x=unit, y=constants[:, k], label=f"k = {k + 1}", color=k, style=style))
        curves.append(Line(x=unit[-1:], y=theory, group="C_k from theory", color=k, style="points"))
    distance = np.maximum(first.theta_distance.transpose("scale", "stage").values, 1e-12)
    heat = Heat(x=first.stage.values, y=np.log10(unit), z=distance, scale="log")
    theta = "largest |θ − θ^k| in the middle of plateau k"
    yield Figure(
        name="convergence",
        title="Errors of Algorithm 1's stage times and plateaus against the initial scale",
        caption="Left: median and largest relative error of all stage times against log(1/α), with the law. "
        "Middle: the error times log(1/α) for the first stages; its limit is the constant C_k. Dotted: stages that "
        "are not well separated at 1e-64. Points: the theory's C_k. Right: the largest difference of a weight from "
        "the saddle in the middle of each plateau.",
        panels=(
            Panel(title="error of the stage times", x=x, y=Axis("|t_k / T_k − 1|", scale="log"), marks=marks),
            Panel(title="C_k", x=x, y=Axis("(t_k − T_k) log(1/α)"), marks=tuple(curves)),
            Panel(title=theta, x=Axis("stage k"), y=Axis("log10 log(1/α)"), marks=(heat,)),
        ),
        columns=3,
    )


entry = Entry(
    "gradual-rank/theorem-4-1",
    "Theorem 4.1: how fast the flow approaches its stages as the initial scale vanishes",
    source="Theorem 4.1",
    quick=dict(seeds=(11, 12), log10_scales=(-32.0, -64.0, -1024.0, -4096.0), samples=20, tokens=4, dim=4, stages=3),
    paper=dict(seeds=(11, 12, 13), samples=1000, tokens=10, dim=50, stages=74),
    metrics=(stage_times.STAGES, stage_times.RESOLVED),
)
