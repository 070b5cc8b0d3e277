"""Gradient descent: the paper's own procedure beside the gradient flow of its theory.

The paper's theorem is about gradient flow; its toy experiments use SGD, and it gives neither learning rate nor batch
size. Here full-batch gradient descent and SGD train a small attention head from the flow's initial weights.

    η       learning rate
    t       time / log(1/α), where a step of descent lasts η
    t_k     time at which the coordinate of stage k is half-way to its value on the predicted plateau

- On a plateau a weight grows by 1 + η g a step and not by e^(η g), so descent is late: the first stage, at T_1 = 1/g,
  by the fraction η / (2 T_1), to first order in η.
- In float64 weights u² - v² is lost to rounding below α = 1e-8. A coordinate that leaves and must return with the other
  sign then never does: descent ends at a saddle, without any sign of failure. Three coordinates of a diagonal linear
  network show it: coordinate 2 enters at T = 0.14, coordinate 0 with sign + at 0.32, coordinate 1 at 2.25, where 0
  leaves, and 0 again, with sign -, at 20.25. The teacher is the only minimum.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.shared.stage_times import halfway_times, predicted_stages
from saddlescope.plot import Axis, Figure, Line, Panel, lines
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

if TYPE_CHECKING:
    from saddlescope.flow import DiagonalInit
    from saddlescope.models import AttentionTeacherTask

FEATURES = ((3.0, -2.0, 0.0), (0.0, 0.0, 2.0), (-1.0, 1.0, 1.0))
TEACHER = (-1.0, -2.0, -2.0)
SADDLE = (0.0, -7 / 12, -25 / 12)  # the end of learning if coordinate 0 does not return
END = 60.0  # rescaled time at which the three coordinates have settled
SHOWN = 40.0  # rescaled time up to which they are drawn


class Params(EntryParams):
    """A head smaller than the paper's, so that many runs with many steps are cheap."""

    # Products of weights must not underflow: scales are at least 1e-100.
    log10_scale: float = param(-8.0, "log10 of the initial scale of descent and SGD", ge=-100.0, lt=0)
    learning_rates: tuple[float, ...] = param(
        (2.0, 1.0, 0.5, 0.25), "learning rates of full-batch descent", gt=0, order="decreasing", least=2, scale="log"
    )
    batch: int = param(40, "samples in a minibatch of SGD; an epoch is one random permutation of all samples", ge=1)
    runs: int = param(40, "SGD runs, which differ in their permutations", ge=2)
    rate: float = param(0.5, "learning rate of SGD", gt=0, scale="log")
    returning_scales: tuple[float, ...] = param(
        (-2.0, -16.0), "log10 of the initial scales of the three coordinates", lt=0, order="decreasing", ge=-100.0
    )
    returning_rate: float = param(0.01, "learning rate of the three coordinates", gt=0, scale="log")
    instances: tuple[int, ...] = param(
        (11, 12, 13, 14, 15), "seeds of further tasks, for the delay of the first stage", ge=0, order="distinct"
    )
    seed: int = param(2, "seed of the data, the teacher and the initial weights", ge=0)
    samples: int = param(200, "sequences in the data set", ge=1)
    tokens: int = param(10, "tokens in a sequence", ge=1)
    dim: int = param(10, "dimension of a token", ge=1)
    stages: int = param(4, "number of first stages judged", ge=1)
    tolerance: float = param(1e-6, "relative tolerance of the flow's stage times", ge=1e-10, le=1e-3, scale="log")

    def check(self) -> None:
        if self.batch > self.samples:
            raise InputError(f"batch must be at most samples={self.samples!r}; got {self.batch!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1, the flow, descent at each learning rate, SGD, other tasks, the three coordinates."""
    import jax

    algorithm, full, sgd, others, three = context.split(0.1, 0.25, 0.35, 0.1, 0.2)
    with jax.enable_x64(True):
        task = _task(params, params.seed)
        report = algorithm.note("Algorithm 1")
        theory = algorithm.cached("theory", lambda: _predict(params, task, params.stages, report))

        def full_batch() -> xr.Dataset:
            descents = []
            for rate, step in full.steps(params.learning_rates):
                descents.append(_descent_times(params, rate, task, theory))
                step.report(1.0, f"full batch, learning rate {rate:g}")
            return xr.Dataset(
                {
                    "flow_time": ("stage", _flow_times(params, task, theory)),
                    "descent_time": (("rate", "stage"), descents),
                },
                coords={"rate": ("rate", list(params.learning_rates), {"long_name": "learning rate"})},
            )

        def minibatches() -> xr.Dataset:
            times = []
            for k, step in sgd.steps(range(params.runs)):
                times.append(_descent_times(params, params.rate, task, theory, params.batch, k))
                step.report(1.0, f"batches of {params.batch}, run {k + 1}")
            return xr.Dataset({"sgd_time": (("run", "stage"), np.array(times))}, coords={"run": np.arange(params.runs)})

        def other_tasks() -> xr.Dataset:
            """Return the delay of the first stage over η / 2, in other tasks."""
            rate, found = params.learning_rates[-1], []
            for seed, step in others.steps(params.instances):
                other = _task(params, seed)
                first = _predict(params, other, 1, silent)
                delay = _descent_times(params, rate, other, first)[0] - _flow_times(params, other, first)[0]
                found.append(2 * delay / rate)
                step.report(1.0, f"task {seed}")
            return xr.Dataset({"instance_ratio": ("instance", np.array(found))}, {"instance": list(params.instances)})

        parts = [full.cached("full", full_batch), sgd.cached("minibatches", minibatches)]
        parts.append(others.cached("others", other_tasks))
        parts.append(three.cached("returning", partial(_returning, params, three)))
    return xr.merge([theory, *parts], combine_attrs="drop").assign_attrs(theory.attrs)


def _task(params: Params, seed: int) -> "AttentionTeacherTask":
    from saddlescope.models import attention_teacher_task

    return attention_teacher_task(seed, samples=params.samples, tokens=params.tokens, dim=params.dim)


def _predict(params: Params, task: "AttentionTeacherTask", stages: int, report: Report) -> xr.Dataset:
    from saddlescope.theory import incremental_learning

    learned = incremental_learning(task.network, 2 * params.dim, max_stages=stages, report=report)
    until = 1.5 * learned.stages[-1].time
    return predicted_stages(learned, until=until).assign_attrs(until=until)


def _start(params: Params, task: "AttentionTeacherTask") -> "DiagonalInit":
    from saddlescope.flow import DiagonalInit

    return DiagonalInit(task.u0, task.v0, log_scale=params.log10_scale * np.log(10))


def _flow_times(params: Params, task: "AttentionTeacherTask", theory: xr.Dataset) -> np.ndarray:
    """Return the half-way times of the flow."""
    from saddlescope.flow import gradient_flow

    until, record = theory.attrs["until"], np.linspace(0, theory.attrs["until"], 1001)
    flow = gradient_flow(task.network, _start(params, task), until=until, tolerance=params.tolerance, record=record)
    return halfway_times(flow, theory)


def _descent_times(
    params: Params,
    rate: float,
    task: "AttentionTeacherTask",
    theory: xr.Dataset,
    batch: int | None = None,
    seed: int = 0,
) -> np.ndarray:
    """Return the half-way times of one run of descent."""
    from saddlescope.flow import gradient_descent

    start = _start(params, task)
    duration = theory.attrs["until"] * -start.log_scale
    steps = int(duration / rate)
    # Equally many records in all runs, so that the loop is compiled once; the path between is straight.
    records = min(4000, int(duration / max(*params.learning_rates, params.rate)))
    record = np.linspace(0, steps, records + 1).astype(int)
    trajectory = gradient_descent(
        task.network, start, steps=steps, learning_rate=rate, batch=batch, seed=seed, record=record
    )
    return halfway_times(trajectory, theory)


def _returning(params: Params, context: RunContext) -> xr.Dataset:
    """Follow the three coordinates by full-batch descent and by the flow, at each scale."""
    from saddlescope.flow import DiagonalInit, gradient_descent, gradient_flow
    from saddlescope.models import diagonal_linear_network

    features = np.array(FEATURES)
    network = diagonal_linear_network(features, features @ np.array(TEACHER))
    u, v = np.random.default_rng(0).standard_normal((2, 3))
    moments = np.append(np.linspace(0, SHOWN, 801), END)
    descents, flows = [], []
    for scale, step in context.steps(params.returning_scales):
        start = DiagonalInit(u, v, log_scale=scale * np.log(10))
        steps = int(END * -start.log_scale / params.returning_rate) + 1
        rate = END * -start.log_scale / steps  # so that the last step is at the end
        marks = np.unique(np.rint(moments / END * steps).astype(int))
        descent = gradient_descent(network, start, steps=steps, learning_rate=rate, record=marks)
        descents.append(descent(np.minimum(moments, descent.times[-1])))
        flow = gradient_flow(network, start, until=END, tolerance=params.tolerance, record=moments)
        flows.append(flow(moments))
        step.report(1.0, f"three coordinates, alpha = 1e{scale:g}")
    dims = ("returning_scale", "moment", "place")
    return xr.Dataset(
        {"returning_descent": (dims, np.stack(descents)), "returning_flow": (dims, np.stack(flows))},
        coords={"returning_scale": list(params.returning_scales), "moment": moments},
    )


def _relative_delays(run: xr.Dataset) -> xr.DataArray:
    """Return descent's stage times minus the flow's, relative to T_k, by learning rate and stage."""
    return (run.descent_time - run.flow_time) / run.predicted_time


claims = Claims(
    limits="A small head, since the paper gives no learning rate or batch size for its own. SGD keeps the order "
    "where stages are far enough apart; stages of nearly equal time are swapped by any noise. The delay is "
    "the first order in η on the first plateau; 15 % allows for the transition, out of log(1/α) = 18. The "
    "network of three coefficients was made for the float64 claim; the flow, which keeps u² − v², and descent "
    "from 1e-2 reach the teacher."
)


@claims.stand_in(
    "sgd-order",
    "SGD learns a head's first diagonal entries in the order of gradient flow",
    "Figure 2, which the paper made with SGD; nine runs in ten",
    low=0.9,
    sizes=("default", "paper"),
)
def _same_order(run: xr.Dataset) -> Estimate:
    """Share of SGD runs that learn all judged entries in the order of gradient flow."""
    orders = np.argsort(run.sgd_time.transpose("run", "stage").values, axis=1)
    learned = run.sgd_time.notnull().all("stage").values  # NaN, not learned yet, comes last
    held = (orders == np.argsort(run.flow_time.values)).all(1) & learned
    return Estimate.share(held.sum(), held.size, over="orders of the minibatches")


@claims.extension(
    "descent-delay",
    "Full-batch gradient descent reaches a head's first stage later than gradient flow by the fraction η / (2 T_1)",
    "log(1 + η g) in place of η g on the first plateau; 15 % for the transition",
    low=0.85,
    high=1.15,
)
def _first_delay_ratio(run: xr.Dataset) -> Estimate:
    """Ratio of the measured to this delay at the smallest learning rate, the one farthest from 1 over tasks."""
    ratios = run.instance_ratio.values
    if not np.isfinite(ratios).all():
        return Estimate.unresolved("The first stage did not happen in every run; lower the learning rates.")
    farthest = float(ratios[np.argmax(abs(ratios - 1))])
    return replace(Estimate.largest(ratios, over="tasks"), value=farthest)


@claims.extension(
    "descent-wrong",
    "At initial scale 1e-16, float64 gradient descent ends at a saddle, where a coefficient that should return stays 0",
    "u² − v² = 1e-32 is below rounding errors of 1e-16",
    high=1e-3,
)
def _distance_from_saddle(run: xr.Dataset) -> Estimate:
    """Largest final difference of a coefficient of a diagonal linear network from its value at that saddle."""
    if -16.0 not in run.returning_scale.values:
        return Estimate.unresolved("α = 1e-16 is not among the `returning_scales`; add -16.")
    last = run.returning_descent.sel(returning_scale=-16.0).isel(moment=-1).values
    return Estimate(float(np.abs(last - np.array(SADDLE)).max()))


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the delays of descent and SGD, and the saddle at which float64 descent stops."""
    rates, delays = run.rate.values, _relative_delays(run)
    law = rates / (2 * float(run.predicted_time[0]))
    marks = (
        *lines(delays, x="rate", hue="stage", label="stage {}"),
        Line(x=rates, y=law, label="η / (2 T_1)", style="dashed", width=1.2),
    )
    shift = ((run.sgd_time - run.flow_time) / run.predicted_time).transpose("stage", "run").values
    scatter = tuple(
        Line(x=run.run.values, y=row, group=f"stage {k + 1}", color=k, style="points") for k, row in enumerate(shift)
    )
    late = Axis("(t_k − t_k of the flow) / T_k")
    return [
        Figure(
            name="delays",
            title="Delays of full-batch descent and of SGD behind gradient flow",
            caption="Left: delay of full-batch descent behind the flow, relative to T_k; dashed: the first order on "
            "the first plateau. Right: the same of SGD, one point per run and stage.",
            panels=(
                Panel(
                    title="full batch",
                    x=Axis("learning rate η", scale="log"),
                    y=replace(late, scale="log"),
                    marks=marks,
                ),
                Panel(title="SGD", x=Axis("run"), y=late, marks=scatter),
            ),
        ),
        _drawn_return(run),
    ]


def _drawn_return(run: xr.Dataset) -> Figure:
    """Draw the coordinates at the largest and the smallest scale."""
    early = run.isel(moment=run.moment.values <= SHOWN).assign_coords(place=range(run.sizes["place"]))

    def panel(at: xr.Dataset) -> Panel:
        marks = (
            *lines(at.returning_flow, x="moment", hue="place", label=lambda _: "gradient flow", grouped=True),
            *lines(
                at.returning_descent,
                x="moment",
                hue="place",
                label=lambda _: "float64 descent",
                grouped=True,
                style="dashed",
            ),
        )
        title = f"α = 1e{float(at.returning_scale):g}"
        return Panel(title=title, x=Axis("time / log(1/α)"), y=Axis("entry of β"), marks=marks)

    return Figure(
        name="returning",
        title="A coordinate that leaves and returns with the other sign",
        caption="Three coordinates of a diagonal linear network, by gradient flow (solid) and by float64 descent "
        "(dashed), at the largest and the smallest scale. By Algorithm 1 one of them enters with sign +, leaves when "
        "the next one enters, and returns with sign −. In float64 its return is lost once u² − v² = α² is below "
        "rounding errors of 1e-16.",
        panels=tuple(panel(early.isel(returning_scale=k)) for k in (0, -1)),
    )


entry = Entry(
    "gradual-rank/gradient-descent",
    "Gradient descent: the paper's own procedure beside the gradient flow of its theory",
    citation=CITATION,
    source="Appendix A",
    params=Params,
    quick=dict(
        learning_rates=(0.4, 0.2), batch=20, runs=4, rate=0.2, instances=(11, 12), samples=40, tokens=4, dim=6, stages=2
    ),
    paper=dict(samples=1000, dim=50, batch=300),
    run=run,
    claims=claims,
    figures=figures,
)
