"""Gradient descent: the paper's own procedure beside the gradient flow that its theory is about   (Appendix A)

The paper's theorem is about gradient flow; its toy experiments are made with SGD, and it gives neither learning rate
nor batch size. Here full-batch gradient descent and SGD train a small attention head from the flow's initial weights.

    eta     learning rate
    B       samples in a minibatch; an epoch is one random permutation of all samples
    t       time / log(1/alpha), where a step of descent lasts eta
    t_k     when the coordinate of stage k is half-way to its value on the predicted plateau

- On a plateau a weight grows by 1 + eta g a step and not by e^(eta g), so that descent is late: the first stage, at
  T_1 = 1/g, by the fraction eta / (2 T_1), to first order in eta.
- On a plateau the minibatches of an epoch add up to the full gradient, so that only the noise of an unfinished epoch
  shifts a stage. It is proportional to 1/B, and not to B^(-1/2) as with independent draws.
- In float64 weights u^2 - v^2 is lost to rounding below alpha = 1e-8. A coordinate that leaves and must come back with
  the other sign then never does: descent ends at a saddle, and nothing says so. Three coordinates of a diagonal linear
  network show it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank.gradient_descent.returning_coordinate import (
    SADDLE,
    TEACHER,
    draw_returning,
    end_from,
    follow_returning,
)
from saddlescope.papers.gradual_rank.shared.head_stages import halfway_times, predicted_stages
from saddlescope.plot import Axis, Figure, Line, Panel, Table
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.metric import Metric

if TYPE_CHECKING:
    from saddlescope.models import AttentionTeacherTask


@dataclass(frozen=True, kw_only=True)
class Params:
    """A head smaller than the paper's, so that many runs with many steps are cheap."""

    log10_scales: tuple[float, ...] = (-2.0, -8.0)  # log10 of the initial scales alpha of full-batch descent
    learning_rates: tuple[float, ...] = (2.0, 1.0, 0.5, 0.25)  # of full-batch descent, decreasing
    batches: tuple[int, ...] = (5, 10, 20, 40)  # samples in a minibatch, increasing
    runs: int = 24  # SGD runs for each batch size, with permutations of their own
    rate: float = 0.5  # learning rate of SGD, at the smallest scale
    returning_scales: tuple[float, ...] = (-2.0, -4.0, -6.0, -8.0, -10.0, -12.0, -16.0)  # log10; three coordinates
    returning_rate: float = 0.01  # learning rate for the three coordinates
    seed: int = 1  # of the data, the teacher and the initial weights
    samples: int = 200  # sequences in the data set
    tokens: int = 10  # tokens in a sequence
    dim: int = 10  # dimension of a token
    stages: int = 4  # first stages that are judged
    tolerance: float = 1e-6  # of the flow: relative, of stage times

    def __post_init__(self) -> None:
        # Products of weights must not underflow.
        parameter_checks.log10_scales(self, "log10_scales", "returning_scales", lowest=-100.0)
        parameter_checks.learning_rates(self, "learning_rates")
        parameter_checks.positive(self, "rate", "returning_rate")
        parameter_checks.at_least(1, self, "samples", "tokens", "dim", "stages")
        parameter_checks.at_least(2, self, "runs")  # to have a spread
        parameter_checks.at_least(0, self, "seed")
        parameter_checks.between(1e-10, 1e-3, self, "tolerance")
        batches = self.batches
        if len(batches) < 2 or not all(a < b for a, b in pairwise((0, *batches, self.samples + 1))):
            raise InputError(
                f"batches must be two or more, increasing, from 1 to samples={self.samples!r}; got {batches!r}."
            )

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: a smaller head, fewer runs."""
        return cls(
            log10_scales=(-8.0,),
            learning_rates=(0.4, 0.2),
            batches=(5, 20),
            runs=4,
            rate=0.2,
            returning_scales=(-2.0, -16.0),
            samples=40,
            tokens=4,
            dim=6,
            stages=2,
        )

    @classmethod
    def paper(cls) -> "Params":
        """The toy task's size in appendix A; learning rate and batch size are ours, since the paper has none."""
        return cls(samples=1000, dim=50, batches=(10, 30, 100, 300))


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Algorithm 1, the flow, descent at each learning rate and batch size, and the three coordinates."""
    import jax

    from saddlescope.models import attention_teacher_task

    with jax.enable_x64(True):
        task = attention_teacher_task(params.seed, samples=params.samples, tokens=params.tokens, dim=params.dim)
        theory = context.cached("theory", partial(_predict, task, params, context.part(0.0, 0.1)))
        returning = partial(
            follow_returning,
            params.returning_scales,
            params.returning_rate,
            params.tolerance,
            context.part(0.9, 1.0),
        )
        parts = [
            theory,
            context.cached("full", partial(_full_batch, task, theory, params, context.part(0.1, 0.4))),
            context.cached("minibatches", partial(_minibatches, task, theory, params, context.part(0.4, 0.9))),
            context.cached("returning", returning),
        ]
    return xr.merge(parts, combine_attrs="drop").assign_attrs(theory.attrs)


def _predict(task: "AttentionTeacherTask", params: Params, report: Callable[[float, str], None]) -> xr.Dataset:
    from saddlescope.theory import incremental_learning

    learned = incremental_learning(
        task.network,
        2 * params.dim,
        max_stages=params.stages,
        report=lambda fraction, note: report(fraction, f"Algorithm 1, {note}"),
    )
    until = 1.5 * learned.stages[-1].time
    return predicted_stages(learned, until=until).assign_attrs(until=until)


def _descent_times(
    task: "AttentionTeacherTask",
    theory: xr.Dataset,
    params: Params,
    log10_scale: float,
    rate: float,
    batch: int | None = None,
    seed: int = 0,
) -> np.ndarray:
    """The half-way times of one run of descent."""
    from saddlescope.flow import DiagonalInit, gradient_descent

    start = DiagonalInit(task.u0, task.v0, log_scale=log10_scale * np.log(10))
    duration = theory.attrs["until"] * -start.log_scale
    steps = int(duration / rate)
    # Equally many records in all runs at a scale, so that the loop is compiled once; between them the path is straight.
    records = min(4000, int(duration / max(*params.learning_rates, params.rate)))
    trajectory = gradient_descent(
        task.network,
        start,
        steps=steps,
        learning_rate=rate,
        batch=batch,
        seed=seed,
        record=np.linspace(0, steps, records + 1).astype(int),
    )
    return halfway_times(trajectory, theory)


def _full_batch(
    task: "AttentionTeacherTask", theory: xr.Dataset, params: Params, report: Callable[[float, str], None]
) -> xr.Dataset:
    """Stage times of the flow and of full-batch descent."""
    from saddlescope.flow import DiagonalInit, gradient_flow

    flows, descents = [], []
    for k, scale in enumerate(params.log10_scales):
        start = DiagonalInit(task.u0, task.v0, log_scale=scale * np.log(10))
        until = theory.attrs["until"]
        flow = gradient_flow(
            task.network,
            start,
            until=until,
            tolerance=params.tolerance,
            record=np.linspace(0, until, 1001),
        )
        flows.append(halfway_times(flow, theory))
        descents.append([_descent_times(task, theory, params, scale, rate) for rate in params.learning_rates])
        report((k + 1) / len(params.log10_scales), f"alpha = 1e{scale:g}, full batch")
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


def _minibatches(
    task: "AttentionTeacherTask", theory: xr.Dataset, params: Params, report: Callable[[float, str], None]
) -> xr.Dataset:
    """Stage times of SGD at the smallest scale, and of full-batch descent at its learning rate."""
    scale = params.log10_scales[-1]
    times = np.full((len(params.batches), params.runs, theory.sizes["stage"]), np.nan)
    for b, batch in enumerate(params.batches):
        for r in range(params.runs):
            times[b, r] = _descent_times(task, theory, params, scale, params.rate, batch, seed=r)
        report((b + 1) / len(params.batches), f"alpha = 1e{scale:g}, batches of {batch}")
    return xr.Dataset(
        {
            "sgd_time": (("batch", "run", "stage"), times),
            "full_time": ("stage", _descent_times(task, theory, params, scale, params.rate)),
        },
        coords={"batch": list(params.batches), "run": np.arange(params.runs)},
    )


# The bounds follow from the first order in eta that the heading derives; the next order and the O(1) of time in
# transitions, out of log(1/alpha) = 18 at alpha = 1e-8, set their widths.
_TOO_SHORT = "Not all of the judged stages happened in every run; lower the learning rates."


def _errors(run: xr.Dataset) -> xr.DataArray:
    """How much later descent is than the flow, relative to T_k, by scale, learning rate and stage."""
    return (run.descent_time - run.flow_time) / run.predicted_time


def _power(run: xr.Dataset) -> Estimate:

    errors = abs(_errors(run)).isel(scale=-1)
    if errors.isnull().any():
        return Estimate.unresolved(_TOO_SHORT)
    slopes = np.polyfit(np.log(run.rate.values), np.log(errors.transpose("rate", "stage").values), 1)[0]
    worst = slopes[np.argmax(np.abs(slopes - 1))]
    return Estimate(float(worst), remark=f"{len(slopes)} stages")


def _first_delay(run: xr.Dataset) -> Estimate:
    error = _errors(run).isel(scale=-1, rate=-1, stage=0)
    if error.isnull():
        return Estimate.unresolved(_TOO_SHORT)
    return Estimate(float(error / (run.rate[-1] / (2 * run.predicted_time[0]))))


def _same_order(run: xr.Dataset) -> Estimate:
    """NaN, not learned yet, comes last."""
    flow = np.argsort(run.flow_time.isel(scale=-1).values)
    orders = np.argsort(run.sgd_time.isel(batch=-1).transpose("run", "stage").values, axis=1)
    learned = run.sgd_time.isel(batch=-1).notnull().all("stage").values
    return Estimate(float(((orders == flow).all(1) & learned).mean()))


def _spread(run: xr.Dataset) -> xr.DataArray:
    """The standard deviation over runs of stage times, relative to T_k, by batch size and stage."""
    return run.sgd_time.std("run", ddof=1, skipna=False) / run.predicted_time


def _spread_power(run: xr.Dataset) -> Estimate:

    spread = _spread(run).isel(stage=0).values
    if not np.isfinite(spread).all():
        return Estimate.unresolved(_TOO_SHORT)
    x = np.log(run.batch.values)
    # The logarithm of a standard deviation over n runs is known to 1 / sqrt(2 (n - 1)).
    doubt = 2 / np.sqrt(2 * (run.sizes["run"] - 1)) / np.sqrt(np.sum((x - x.mean()) ** 2))
    return Estimate(float(np.polyfit(x, np.log(spread), 1)[0]), float(doubt))


claims = (
    Claim(
        name="descent-power",
        says="Full-batch descent is late by a fraction proportional to the learning rate: power at the smallest scale, "
        "of the stage where it is furthest from 1",
        source="First order in eta; 10 % for the next",
        statistic=_power,
        low=0.9,
        high=1.1,
    ),
    Claim(
        name="descent-delay",
        says="The first stage by eta / (2 T_1): ratio at the smallest learning rate and scale",
        source="log(1 + eta g) for eta g on the first plateau; 15 % for the transition",
        statistic=_first_delay,
        low=0.85,
        high=1.15,
    ),
    Claim(
        name="sgd-order",
        says="SGD with the largest batch learns the coordinates in the flow's order: fraction of runs",
        source="Figure 2, which the paper made with SGD",
        statistic=_same_order,
        low=1.0,
    ),
    Claim(
        name="sgd-spread",
        says="The spread of SGD's first stage time over runs falls as 1/B: power",
        source="Only an unfinished epoch's noise is left; -1/2 with independent draws",
        statistic=_spread_power,
        low=-1.3,
        high=-0.7,
    ),
    Claim(
        name="descent-right",
        says="At alpha = 0.01 descent brings back the coordinate that left: distance of its end from the teacher",
        source="Algorithm 1; the teacher is the one minimum",
        statistic=end_from(TEACHER, "returning_descent", -2.0),
        high=1e-3,
    ),
    Claim(
        name="descent-wrong",
        says="At alpha = 1e-16 it does not, and ends at a saddle: distance of its end from that saddle",
        source="u^2 - v^2 = 1e-32 beside roundings of 1e-16",
        statistic=end_from(SADDLE, "returning_descent", -16.0),
        high=1e-3,
    ),
    Claim(
        name="flow-right",
        says="The flow of this package brings it back at alpha = 1e-16: distance of its end from the teacher",
        source="Algorithm 1; the teacher is the one minimum",
        statistic=end_from(TEACHER, "returning_flow", -16.0),
        high=1e-3,
    ),
)

metrics = (
    Metric(
        name="stages",
        says="stages of the flow at the smallest α",
        statistic=lambda run: float((run.flow_time.isel(scale=-1) < float("inf")).sum()),
    ),
    Metric(
        name="time_error",
        says="descent's stage times off the flow's, at the smallest rate and α, largest relative",
        statistic=lambda run: float(
            abs(run.descent_time.isel(scale=-1, rate=-1) / run.flow_time.isel(scale=-1) - 1).max()
        ),
        scale="log",
    ),
    Metric(
        name="noise",
        says="spread of SGD's stage times at the smallest batch, largest relative",
        statistic=lambda run: float((run.sgd_time.std("run") / run.sgd_time.mean("run")).isel(batch=0).max()),
        scale="log",
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """How late descent is, the spread of SGD, and the saddle at which float64 descent stops."""
    return [_delays(run), draw_returning(run)]


def _delays(run: xr.Dataset) -> Figure:

    rates, errors = run.rate.values, _errors(run)
    first = float(run.predicted_time[0])
    delays = [
        Line(
            x=rates,
            y=errors.sel(scale=scale, stage=k).values,
            label=f"alpha = 1e{scale:g}, stage {k}",
            color=int(k),
            style="solid" if scale == run.scale.values[-1] else "dotted",
        )
        for scale in run.scale.values
        for k in run.stage.values
    ]
    delays.append(Line(x=rates, y=rates / (2 * first), label="eta / (2 T_1)", style="dashed", width=1.2))
    batches, spread = run.batch.values, _spread(run)
    # Runs of one batch size stand side by side.
    beside = batches[:, None] * 1.04 ** (run.run.values - run.run.values.mean())
    shift = (run.sgd_time / run.full_time - 1).transpose("stage", "batch", "run").values
    scatter = [
        Line(x=beside.ravel(), y=shift[k].ravel(), group=f"stage {k + 1}", color=k + 1, style="points")
        for k in range(run.sizes["stage"])
    ]
    spreads = [
        Line(x=batches, y=spread.sel(stage=k).values, group=f"stage {k}", color=int(k)) for k in run.stage.values
    ]
    guide = float(spread.isel(stage=0, batch=0)) * batches[0] / batches
    spreads.append(Line(x=batches, y=guide, label="1 / B", style="dashed", width=1.2))
    x = Axis("samples in a minibatch B", scale="log")
    rows = tuple(
        (
            int(k),
            float(run.predicted_time.sel(stage=k)),
            float(run.flow_time.isel(scale=-1).sel(stage=k)),
            float(run.full_time.sel(stage=k)),
            *(
                f"{float(np.mean(times)):.4g} ± {float(np.std(times, ddof=1)):.2g}"
                for times in run.sgd_time.sel(stage=k).transpose("batch", "run").values
            ),
        )
        for k in run.stage.values
    )
    return Figure(
        name="delays",
        title="Descent is late in proportion to its learning rate; minibatches scatter it in proportion to 1/B",
        caption="Left: how much later full-batch descent is than the flow, relative to T_k, with the first order of a "
        "plateau. Middle: stage times of SGD relative to those of full-batch descent at the same learning rate, one "
        "point a run; noise delays them, the more the smaller the batch. Right: their standard deviation over runs. "
        "The table has the stage times at the smallest scale: of Algorithm 1, the flow, descent, and SGD, mean "
        "and standard deviation for each batch size.",
        panels=(
            Panel(
                title="full batch",
                x=Axis("learning rate eta", scale="log"),
                y=Axis("(t_k − t_k of the flow) / T_k", scale="log"),
                marks=tuple(delays),
            ),
            Panel(title="SGD", x=x, y=Axis("t_k / t_k of full batch − 1"), marks=tuple(scatter)),
            Panel(
                title="spread of SGD", x=x, y=Axis("standard deviation of t_k / T_k", scale="log"), marks=tuple(spreads)
            ),
        ),
        columns=3,
        table=Table(columns=("k", "T_k", "flow", "full batch", *(f"SGD, B = {batch}" for batch in batches)), rows=rows),
    )
