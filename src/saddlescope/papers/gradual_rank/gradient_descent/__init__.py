"""Gradient descent: the paper's own procedure beside the gradient flow that its theory is about.

The paper's theorem is about gradient flow; its toy experiments use SGD, and it gives neither learning rate
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

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.gradient_descent.claims import claims, metrics
from saddlescope.papers.gradual_rank.gradient_descent.figures import figures
from saddlescope.papers.gradual_rank.gradient_descent.returning_coordinate import follow_returning
from saddlescope.papers.gradual_rank.shared.stage_times import halfway_times, predicted_stages
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.models import AttentionTeacherTask


class Params(EntryParams):
    """A head smaller than the paper's, so that many runs with many steps are cheap."""

    log10_scales: tuple[float, ...] = param(
        (-2.0, -8.0), "log10 of the initial scales alpha of full-batch descent", lt=0, order="decreasing", ge=-100.0
    )
    learning_rates: tuple[float, ...] = param(
        (2.0, 1.0, 0.5, 0.25), "of full-batch descent, decreasing", gt=0, order="decreasing", least=2
    )
    batches: tuple[int, ...] = param((5, 10, 20, 40), "samples in a minibatch, increasing")
    runs: int = param(24, "SGD runs for each batch size, with permutations of their own", ge=2)
    rate: float = param(0.5, "learning rate of SGD, at the smallest scale", gt=0)
    returning_scales: tuple[float, ...] = param(
        (-2.0, -4.0, -6.0, -8.0, -10.0, -12.0, -16.0), "log10; three coordinates", lt=0, order="decreasing", ge=-100.0
    )
    returning_rate: float = param(0.01, "learning rate for the three coordinates", gt=0)
    seed: int = param(1, "of the data, the teacher and the initial weights", ge=0)
    samples: int = param(200, "sequences in the data set", ge=1)
    tokens: int = param(10, "tokens in a sequence", ge=1)
    dim: int = param(10, "dimension of a token", ge=1)
    stages: int = param(4, "first stages that are judged", ge=1)
    tolerance: float = param(1e-6, "of the flow: relative, of stage times", ge=1e-10, le=1e-3)

    def check(self) -> None:
        batches = self.batches
        if len(batches) < 2 or not all(a < b for a, b in pairwise((0, *batches, self.samples + 1))):
            raise InputError(
                f"batches must be two or more, increasing, from 1 to samples={self.samples!r}; got {batches!r}."
            )


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1, the flow, descent at each learning rate and batch size, and the three coordinates."""
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


def _predict(task: "AttentionTeacherTask", params: Params, report: Report) -> xr.Dataset:
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
    """Return the half-way times of one run of descent."""
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


def _full_batch(task: "AttentionTeacherTask", theory: xr.Dataset, params: Params, report: Report) -> xr.Dataset:
    """Return stage times of the flow and of full-batch descent."""
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


def _minibatches(task: "AttentionTeacherTask", theory: xr.Dataset, params: Params, report: Report) -> xr.Dataset:
    """Return stage times of SGD at the smallest scale, and of full-batch descent at its learning rate."""
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


entry = Entry(
    "gradual-rank/gradient-descent",
    "Gradient descent: the paper's own procedure beside the gradient flow that its theory is about",
    citation=CITATION,
    source="Appendix A",
    params=Params,
    quick=dict(
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
    ),
    paper=dict(samples=1000, dim=50, batches=(10, 30, 100, 300)),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
