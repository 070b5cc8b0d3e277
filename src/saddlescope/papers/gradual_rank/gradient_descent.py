"""Gradient descent: the paper's own procedure beside the gradient flow of its theory.

The paper's theorem is about gradient flow; its toy experiments use SGD, and it gives neither learning rate nor batch
size. Here full-batch gradient descent and SGD train a small attention head from the flow's initial weights.

    η       learning rate
    B       samples in a minibatch; an epoch is one random permutation of all samples
    t       time / log(1/α), where a step of descent lasts η
    t_k     time at which the coordinate of stage k is half-way to its value on the predicted plateau

- On a plateau a weight grows by 1 + η g a step and not by e^(η g), so descent is late: the first stage, at T_1 = 1/g,
  by the fraction η / (2 T_1), to first order in η.
- On a plateau the minibatches of an epoch add up to the full gradient, so only the noise of an unfinished epoch shifts
  a stage. It is proportional to 1/B, and not to B^(-1/2) as with independent draws.
- In float64 weights u² - v² is lost to rounding below α = 1e-8. A coordinate that leaves and must return with the other
  sign then never does: descent ends at a saddle, without any sign of failure. Three coordinates of a diagonal linear
  network show it: coordinate 2 enters at T = 0.14, coordinate 0 with sign + at 0.32, coordinate 1 at 2.25, where 0
  leaves, and 0 again, with sign -, at 20.25. The teacher is the only minimum.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.shared.stage_times import halfway_times, predicted_stages
from saddlescope.plot import Axis, Figure, Line, Panel, Table, lines
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.metric import Metric
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.models import AttentionTeacherTask

FEATURES = ((3.0, -2.0, 0.0), (0.0, 0.0, 2.0), (-1.0, 1.0, 1.0))
TEACHER = (-1.0, -2.0, -2.0)
SADDLE = (0.0, -7 / 12, -25 / 12)  # the end of learning if coordinate 0 does not return
END = 60.0  # rescaled time at which the three coordinates have settled
SHOWN = 40.0  # rescaled time up to which they are drawn


class Params(EntryParams):
    """A head smaller than the paper's, so that many runs with many steps are cheap."""

    # Products of weights must not underflow: scales are at least 1e-100.
    log10_scales: tuple[float, ...] = param(
        (-2.0, -8.0), "log10 of the initial scales of full-batch descent", lt=0, order="decreasing", ge=-100.0
    )
    learning_rates: tuple[float, ...] = param(
        (2.0, 1.0, 0.5, 0.25), "learning rates of full-batch descent", gt=0, order="decreasing", least=2, scale="log"
    )
    batches: tuple[int, ...] = param(
        (5, 10, 20, 40), "samples in a minibatch", ge=1, least=2, order="increasing", scale="log"
    )
    runs: int = param(40, "SGD runs for each batch size, which differ in their permutations", ge=2)
    rate: float = param(0.5, "learning rate of SGD, at the smallest scale", gt=0, scale="log")
    returning_scales: tuple[float, ...] = param(
        (-2.0, -4.0, -6.0, -8.0, -10.0, -12.0, -16.0), "log10 of the initial scales of the three coordinates",
        lt=0, order="decreasing", ge=-100.0,
    )  # fmt: skip
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
        if self.batches[-1] > self.samples:
            raise InputError(f"batches must be at most samples={self.samples!r}; got {self.batches!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1, the flow, descent at each learning rate and batch size, other tasks, the three coordinates."""
    import jax

    from saddlescope.flow import DiagonalInit, gradient_descent, gradient_flow
    from saddlescope.models import attention_teacher_task, diagonal_linear_network
    from saddlescope.theory import incremental_learning

    algorithm, full, sgd, others, three = context.split(0.1, 0.25, 0.45, 0.1, 0.1)

    def make_task(seed: int) -> "AttentionTeacherTask":
        return attention_teacher_task(seed, samples=params.samples, tokens=params.tokens, dim=params.dim)

    def predict(task: "AttentionTeacherTask", stages: int, report: Report) -> xr.Dataset:
        learned = incremental_learning(task.network, 2 * params.dim, max_stages=stages, report=report)
        until = 1.5 * learned.stages[-1].time
        return predicted_stages(learned, until=until).assign_attrs(until=until)

    def start_at(log10_scale: float, task: "AttentionTeacherTask") -> DiagonalInit:
        return DiagonalInit(task.u0, task.v0, log_scale=log10_scale * np.log(10))

    def flow_times(log10_scale: float, task: "AttentionTeacherTask", theory: xr.Dataset) -> np.ndarray:
        """Return the half-way times of the flow."""
        until = theory.attrs["until"]
        flow = gradient_flow(
            task.network, start_at(log10_scale, task), until=until, tolerance=params.tolerance,
            record=np.linspace(0, until, 1001),
        )  # fmt: skip
        return halfway_times(flow, theory)

    def descent_times(
        log10_scale: float,
        rate: float,
        task: "AttentionTeacherTask",
        theory: xr.Dataset,
        batch: int | None = None,
        seed: int = 0,
    ) -> np.ndarray:
        """Return the half-way times of one run of descent."""
        start = start_at(log10_scale, task)
        duration = theory.attrs["until"] * -start.log_scale
        steps = int(duration / rate)
        # Equally many records in all runs at a scale, so that the loop is compiled once; the path between is straight.
        records = min(4000, int(duration / max(*params.learning_rates, params.rate)))
        record = np.linspace(0, steps, records + 1).astype(int)
        trajectory = gradient_descent(
            task.network, start, steps=steps, learning_rate=rate, batch=batch, seed=seed, record=record
        )
        return halfway_times(trajectory, theory)

    def full_batch() -> xr.Dataset:
        flows, descents = [], []
        for scale, step in full.steps(params.log10_scales):
            flows.append(flow_times(scale, task, theory))
            descents.append([descent_times(scale, rate, task, theory) for rate in params.learning_rates])
            step.report(1.0, f"alpha = 1e{scale:g}, full batch")
        return xr.Dataset(
            {
                "flow_time": (("scale", "stage"), np.stack(flows)),
                "descent_time": (("scale", "rate", "stage"), np.array(descents)),
            },
            coords={
                "scale": ("scale", list(params.log10_scales), {"long_name": "log10 of alpha"}),
                "rate": ("rate", list(params.learning_rates), {"long_name": "learning rate"}),
            },
        )

    def minibatches() -> xr.Dataset:
        """Return stage times of SGD at the smallest scale, and of full-batch descent at its learning rate."""
        scale, times = params.log10_scales[-1], []
        for batch, step in sgd.steps(params.batches):
            times.append([descent_times(scale, params.rate, task, theory, batch, k) for k in range(params.runs)])
            step.report(1.0, f"alpha = 1e{scale:g}, batches of {batch}")
        return xr.Dataset(
            {
                "sgd_time": (("batch", "run", "stage"), np.array(times)),
                "full_time": ("stage", descent_times(scale, params.rate, task, theory)),
            },
            coords={"batch": list(params.batches), "run": np.arange(params.runs)},
        )

    def other_tasks() -> xr.Dataset:
        """Return the delay of the first stage over η / 2, in other tasks."""
        scale, rate, found = params.log10_scales[-1], params.learning_rates[-1], []
        for seed, step in others.steps(params.instances):
            other = make_task(seed)
            first = predict(other, 1, silent)
            delay = descent_times(scale, rate, other, first)[0] - flow_times(scale, other, first)[0]
            found.append(2 * delay / rate)
            step.report(1.0, f"task {seed}")
        return xr.Dataset({"instance_ratio": ("instance", np.array(found))}, {"instance": list(params.instances)})

    def returning() -> xr.Dataset:
        """Follow the three coordinates by full-batch descent and by the flow, at each scale.

        returning_drift is the drift of u² - v², which rounding errors of descent cause.
        """
        features = np.array(FEATURES)
        network = diagonal_linear_network(features, features @ np.array(TEACHER))
        u, v = np.random.default_rng(0).standard_normal((2, 3))
        moments = np.append(np.linspace(0, SHOWN, 801), END)
        descents, flows, drifts = [], [], []
        for scale, step in three.steps(params.returning_scales):
            start = DiagonalInit(u, v, log_scale=scale * np.log(10))
            steps = int(END * -start.log_scale / params.returning_rate) + 1
            rate = END * -start.log_scale / steps  # so that the last step is at the end
            marks = np.unique(np.rint(moments / END * steps).astype(int))
            descent = gradient_descent(network, start, steps=steps, learning_rate=rate, record=marks)
            descents.append(descent(np.minimum(moments, descent.times[-1])))
            flow = gradient_flow(network, start, until=END, tolerance=params.tolerance, record=moments)
            flows.append(flow(moments))
            drifts.append(descent.conserved)
            step.report(1.0, f"three coordinates, alpha = 1e{scale:g}")
        dims = ("returning_scale", "moment", "place")
        return xr.Dataset(
            {
                "returning_descent": (dims, np.stack(descents)),
                "returning_flow": (dims, np.stack(flows)),
                "returning_drift": ("returning_scale", np.array(drifts)),
            },
            coords={"returning_scale": list(params.returning_scales), "moment": moments},
        )

    with jax.enable_x64(True):
        task = make_task(params.seed)
        theory = algorithm.cached("theory", lambda: predict(task, params.stages, algorithm.note("Algorithm 1")))
        parts = [full.cached("full", full_batch), sgd.cached("minibatches", minibatches)]
        parts.append(others.cached("others", other_tasks))
        parts.append(three.cached("returning", returning))
    return xr.merge([theory, *parts], combine_attrs="drop").assign_attrs(theory.attrs)


_TOO_SHORT = "Some of the judged stages did not happen in every run; lower the learning rates."


def _relative_delays(run: xr.Dataset) -> xr.DataArray:
    """Return descent's stage times minus the flow's, relative to T_k, by scale, learning rate and stage."""
    return (run.descent_time - run.flow_time) / run.predicted_time


def _relative_spread(run: xr.Dataset) -> xr.DataArray:
    """Return the standard deviation over runs of stage times, relative to T_k, by batch size and stage."""
    return run.sgd_time.std("run", ddof=1, skipna=False) / run.predicted_time


# The bounds follow from the first order in η that the heading derives; the next order and the O(1) of time in
# transitions, out of log(1/α) = 18 at α = 1e-8, set their widths.
claims = Claims()


@claims.add(
    "descent-power",
    "For an attention head, the delay of full-batch gradient descent behind gradient flow is proportional to the "
        "learning rate",
    quantity="fitted power of the learning rate in a stage's delay at the smallest initial scale, the value with the "
        "largest distance from 1 over stages", kind="own", source="First order in η; 10 % for the next order", low=0.9,
    high=1.1, evidence="cases", over="stages",
    why="A delay proportional to the learning rate is a power law of exponent 1, and a stage that deviates decides",
    doubt="Stages of one task, over one decade of learning rates, where the next order in η is small by choice",
)  # fmt: skip
def _delay_power(run: xr.Dataset) -> Estimate:
    errors = abs(_relative_delays(run)).isel(scale=-1)
    if errors.isnull().any():
        return Estimate.unresolved(_TOO_SHORT)
    slopes = np.polyfit(np.log(run.rate.values), np.log(errors.transpose("rate", "stage").values), 1)[0]
    worst = slopes[np.argmax(np.abs(slopes - 1))]
    return Estimate(float(worst), remark=f"{len(slopes)} stages", n=len(slopes))


@claims.add(
    "descent-delay",
    "Full-batch gradient descent reaches an attention head's first stage later than gradient flow by the fraction η "
        "/ (2 T_1)",
    quantity="ratio of the measured to this predicted delay, at the smallest learning rate η and initial scale, the "
        "value with the largest distance from 1 over tasks", kind="own",
    source="log(1 + η g) in place of η g on the first plateau; 15 % for the transition", low=0.85, high=1.15,
    evidence="cases", over="tasks",
    why="The law has no free constant: T_1 comes from the loss at the origin, so that the ratio is 1 if it holds",
    doubt="The flow's own time has an error at scale 1e-8 that the difference cancels only if both make it",
)  # fmt: skip
def _first_delay_ratio(run: xr.Dataset) -> Estimate:
    ratios = run.instance_ratio.values
    if not np.isfinite(ratios).all():
        return Estimate.unresolved(_TOO_SHORT)
    return Estimate(float(ratios[np.argmax(abs(ratios - 1))]), remark=f"{ratios.size} tasks", n=ratios.size)


@claims.add(
    "sgd-order",
    "SGD with the largest batch size learns an attention head's first diagonal entries in the order of gradient flow",
    quantity="share of SGD runs at that batch size that learn all judged entries, in the order of gradient flow",
    kind="stand-in", source="Figure 2, which the paper made with SGD; nine in ten: reading of this project", low=0.9,
    sizes=("default", "paper"), evidence="sample", over="orders of the minibatches",
    why="Algorithm 1 predicts the flow's order, so that SGD shows the predicted stages only if it keeps that order",
    doubt="A small head, one task, and stages far enough apart: with stages of nearly equal time any noise swaps them",
)  # fmt: skip
def _same_order(run: xr.Dataset) -> Estimate:
    flow = np.argsort(run.flow_time.isel(scale=-1).values)
    orders = np.argsort(run.sgd_time.isel(batch=-1).transpose("run", "stage").values, axis=1)
    learned = run.sgd_time.isel(batch=-1).notnull().all("stage").values  # NaN, not learned yet, comes last
    return Estimate.share(((orders == flow).all(1) & learned).sum(), learned.size)


@claims.add(
    "sgd-spread",
    "For an attention head, the spread of SGD's first stage time over runs is inversely proportional to batch size",
    quantity="fitted power of the batch size in the standard deviation over runs of the first stage time",
    kind="own", source="Only the noise of an unfinished epoch remains; independent draws would give -1/2",
    low=-1.3, high=-0.7, sizes=("default", "paper"),  # four runs do not resolve a standard deviation
    evidence="sample", over="orders of the minibatches",
    why="The power is -1 if only an unfinished epoch's noise shifts a stage and -1/2 if draws add up independently",
    doubt="Four batch sizes within a factor of eight make the power, and the interval takes stage times as normal",
)  # fmt: skip
def _spread_power(run: xr.Dataset) -> Estimate:
    spread = _relative_spread(run).isel(stage=0).values
    if not np.isfinite(spread).all():
        return Estimate.unresolved(_TOO_SHORT)
    x = np.log(run.batch.values)
    # The relative error of a standard deviation over n runs is 1 / sqrt(2 (n - 1)).
    doubt = 2 / np.sqrt(2 * (run.sizes["run"] - 1)) / np.sqrt(np.sum((x - x.mean()) ** 2))
    return Estimate(float(np.polyfit(x, np.log(spread), 1)[0]), float(doubt), n=run.sizes["run"])


def _distance_of_end(point: tuple[float, ...], path: str, log10_scale: float, run: xr.Dataset) -> Estimate:
    if log10_scale not in run.returning_scale.values:
        return Estimate.unresolved(f"α = 1e{log10_scale:g} is not among the `returning_scales`; add {log10_scale:g}.")
    last = run[path].sel(returning_scale=log10_scale).isel(moment=-1).values
    return Estimate(float(np.abs(last - np.array(point)).max()))


claims.add(
    "descent-right",
    "At initial scale 0.01, float64 gradient descent recovers a coefficient that vanishes and must return with the "
        "other sign",
    quantity="largest final difference of a coefficient of a three-coefficient diagonal linear network from the "
        "teacher's", kind="own", source="Algorithm 1; the teacher is the one minimum", high=1e-3, evidence="identity",
    why="A network that reaches the only minimum has let the coefficient return, which differs in sign from where it "
        "left",
    doubt="One network of three coefficients, made so that one has to return",
)(partial(_distance_of_end, TEACHER, "returning_descent", -2.0))  # fmt: skip

claims.add(
    "descent-wrong",
    "At initial scale 1e-16, float64 gradient descent ends at the saddle where a coefficient that should return "
        "stays zero",
    quantity="largest final difference of a coefficient of a three-coefficient diagonal linear network from its "
        "value at that saddle", kind="own", source="u² − v² = 1e-32 is below rounding errors of 1e-16", high=1e-3,
    evidence="identity",
    why="The saddle is where learning stops if the coefficient cannot return, so that ending there is the failure "
        "itself",
    doubt="Descent that runs longer or starts from other weights might leave the saddle by another rounding error",
)(partial(_distance_of_end, SADDLE, "returning_descent", -16.0))  # fmt: skip

claims.add(
    "flow-right",
    "At initial scale 1e-16, gradient flow recovers a coefficient that vanishes and must return with the other sign",
    quantity="largest final difference of a coefficient of a three-coefficient diagonal linear network from the "
        "teacher's", kind="own", source="Algorithm 1; the teacher is the one minimum", high=1e-3, evidence="identity",
    why="The same problem and scale at which descent fails shows that the arithmetic fails and not the network",
    doubt="The flow is integrated in coordinates that keep u² − v² by construction, so this tests the solver at one "
        "problem",
)(partial(_distance_of_end, TEACHER, "returning_flow", -16.0))  # fmt: skip

metrics = (
    Metric(
        name="stages", quantity="number of stages that the flow passes at the smallest α",
        statistic=lambda run: float((run.flow_time.isel(scale=-1) < float("inf")).sum()),
    ),
    Metric(
        name="time_error",
        quantity="largest relative difference of descent's stage times from the flow's at the smallest rate and α",
        statistic=lambda run: float(abs(run.descent_time.isel(scale=-1,
            rate=-1) / run.flow_time.isel(scale=-1) - 1).max()), scale="log",
    ),
    Metric(
        name="noise", quantity="largest relative spread of SGD's stage times at the smallest batch",
        statistic=lambda run: float((run.sgd_time.std("run") / run.sgd_time.mean("run")).isel(batch=0).max()),
        scale="log",
    ),
)  # fmt: skip


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the delays of descent, the spread of SGD, and the saddle at which float64 descent stops."""
    return [_delays(run), _returning(run)]


def _delays(run: xr.Dataset) -> Figure:
    rates, batches = run.rate.values, run.batch.values
    errors, spread = _relative_delays(run), _relative_spread(run)
    delays = [
        Line(
            x=rates,
            y=errors.sel(scale=scale, stage=k).values,
            label=f"α = 1e{scale:g}, stage {k}",
            color=int(k),
            style="solid" if scale == run.scale.values[-1] else "dotted",
        )
        for scale in run.scale.values
        for k in run.stage.values
    ]
    law = rates / (2 * float(run.predicted_time[0]))
    delays.append(Line(x=rates, y=law, label="η / (2 T_1)", style="dashed", width=1.2))
    # Runs of one batch size are drawn side by side.
    beside = batches[:, None] * 1.04 ** (run.run.values - run.run.values.mean())
    shift = (run.sgd_time / run.full_time - 1).transpose("stage", "batch", "run").values
    scatter = tuple(
        Line(x=beside.ravel(), y=shift[k].ravel(), group=f"stage {k + 1}", color=k + 1, style="points")
        for k in range(run.sizes["stage"])
    )
    guide = float(spread.isel(stage=0, batch=0)) * batches[0] / batches
    spreads = (
        *lines(spread, x="batch", hue="stage", label="stage {}", grouped=True, color=1),
        Line(x=batches, y=guide, label="1 / B", style="dashed", width=1.2),
    )
    x = Axis("samples in a minibatch B", scale="log")
    rows = tuple(
        (
            int(k),
            float(stage.predicted_time),
            float(stage.flow_time.isel(scale=-1)),
            float(stage.full_time),
            *(
                f"{float(np.mean(times)):.4g} ± {float(np.std(times, ddof=1)):.2g}"
                for times in stage.sgd_time.transpose("batch", "run").values
            ),
        )
        for k, stage in ((k, run.sel(stage=k)) for k in run.stage.values)
    )
    return Figure(
        name="delays",
        title="Delays of full-batch descent and of SGD behind gradient flow",
        caption="Left: delay of full-batch descent behind the flow, relative to T_k; dashed: the first order on a "
        "plateau. Middle: stage times of SGD relative to those of full-batch descent at the same learning rate, one "
        "point per run. Right: their standard deviation over runs. "
        "The table has the stage times at the smallest scale: of Algorithm 1, the flow, descent, and SGD, mean "
        "and standard deviation for each batch size.",
        panels=(
            Panel(
                title="full batch",
                x=Axis("learning rate η", scale="log"),
                y=Axis("(t_k − t_k of the flow) / T_k", scale="log"),
                marks=tuple(delays),
            ),
            Panel(title="SGD", x=x, y=Axis("t_k / t_k of full batch − 1"), marks=scatter),
            Panel(title="spread of SGD", x=x, y=Axis("standard deviation of t_k / T_k", scale="log"), marks=spreads),
        ),
        columns=3,
        table=Table(columns=("k", "T_k", "flow", "full batch", *(f"SGD, B = {batch}" for batch in batches)), rows=rows),
    )


def _returning(run: xr.Dataset) -> Figure:
    """Draw the coordinates at the largest and the smallest scale."""
    early = run.isel(moment=run.moment.values <= SHOWN).assign_coords(place=range(run.sizes["place"]))

    def panel(at: xr.Dataset) -> Panel:
        marks = (
            *lines(at.returning_flow, x="moment", hue="place", label=lambda _: "gradient flow", grouped=True),
            *lines(at.returning_descent, x="moment", hue="place", label=lambda _: "float64 descent", grouped=True,
                   style="dashed"),
        )  # fmt: skip
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
    "Gradient descent: the paper's own procedure beside the gradient flow of its theory", citation=CITATION,
    source="Appendix A", params=Params,
    quick=dict(log10_scales=(-8.0,), learning_rates=(0.4, 0.2), batches=(5, 20), runs=4, rate=0.2, instances=(11, 12),
        returning_scales=(-2.0, -16.0), samples=40, tokens=4, dim=6, stages=2),
    paper=dict(samples=1000, dim=50, batches=(10, 30, 100, 300)), run=run, claims=claims, figures=figures,
    metrics=metrics,
)  # fmt: skip
