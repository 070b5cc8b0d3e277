"""SGD: the paper's own procedure beside the gradient flow of its theory.

The paper's theorem is about gradient flow; its toy experiments use SGD. Here SGD trains a small attention head from the
flow's initial weights.

    η       learning rate
    t       time / log(1/α), where a step of descent lasts η
    t_k     time at which the coordinate of stage k is half-way to its value on the predicted plateau
"""

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank.shared.head_task import HeadParams
from saddlescope.papers.gradual_rank.shared.stage_times import halfway_times, predicted_stages
from saddlescope.plot import Axis, Figure, Figures, Panel, lines
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param


class Params(HeadParams, seed=2, samples=200, tokens=10, dim=10):
    """A head smaller than the paper's, so that many runs with many steps are cheap."""

    # Products of weights must not underflow: scales are at least 1e-100.
    log10_scale: float = param(-8.0, "log10 of the initial scale", ge=-100.0, lt=0)
    batch: int = param(40, "samples in a minibatch of SGD; an epoch is one random permutation of all samples", ge=1)
    runs: int = param(40, "SGD runs, which differ in their permutations", ge=2)
    rate: float = param(0.5, "learning rate of SGD", gt=0, scale="log")
    stages: int = param(4, "number of first stages judged", ge=1)
    tolerance: float = param(1e-6, "relative tolerance of the flow's stage times", ge=1e-10, le=1e-3, scale="log")

    def check(self) -> None:
        if self.batch > self.samples:
            raise InputError(f"batch must be at most samples={self.samples!r}; got {self.batch!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1, the flow, and SGD."""
    import jax

    from saddlescope.flow import DiagonalInit, gradient_descent, gradient_flow
    from saddlescope.theory import incremental_learning

    algorithm, sgd = context.split(0.2, 0.8)
    with jax.enable_x64(True):
        task, report = params.task(), algorithm.note("Algorithm 1")
        start = DiagonalInit(task.u0, task.v0, log_scale=params.log10_scale * np.log(10))
        learned = incremental_learning(task.network, 2 * params.dim, max_stages=params.stages, report=report)
        until = 1.5 * learned.stages[-1].time
        theory = predicted_stages(learned, until=until)
        steps = int(until * -start.log_scale / params.rate)
        record = np.linspace(0, steps, steps // 4 + 1).astype(int)  # the path between is straight
        policies = {"steps": steps, "learning_rate": params.rate, "batch": params.batch, "record": record}

        def descend(seed: int, _: RunContext) -> xr.Dataset:
            path = gradient_descent(task.network, start, seed=seed, **policies)
            return xr.Dataset({"sgd_time": ("stage", halfway_times(path, theory))}, {"stage": theory.stage})

        moments = np.linspace(0, until, 1001)
        flow = gradient_flow(task.network, start, until=until, tolerance=params.tolerance, record=moments)
        stages = theory[["predicted_time"]].assign(flow_time=("stage", halfway_times(flow, theory)))
        return xr.merge([stages, sgd.over({"run": range(params.runs)}, descend)], combine_attrs="drop")


claims = Claims(
    limits="One small head from α = 1e-8, since the paper gives no learning rate or batch size for its own. Stages of "
    "nearly equal time are swapped by any noise of SGD."
)


@claims.stand_in(
    "sgd-order",
    "At least nine of ten runs of SGD learn one small head's first four diagonal entries in the order of gradient flow",
    "Figure 2 (b), which the paper made with SGD; order, four entries, nine in ten: this project",
    low=0.9,
)
def _same_order(run: xr.Dataset) -> Estimate:
    """Share of SGD runs that learn all judged entries in the order of gradient flow."""
    orders = np.argsort(run.sgd_time.transpose("run", "stage").values, axis=1)
    learned = run.sgd_time.notnull().all("stage").values  # NaN, not learned yet, comes last
    held = (orders == np.argsort(run.flow_time.values)).all(1) & learned
    return Estimate.share(held.sum(), held.size, over="orders of the minibatches")


def figures(run: xr.Dataset) -> Figures:
    """Draw the delays of SGD."""
    delays = (run.sgd_time - run.flow_time) / run.predicted_time
    scatter = lines(delays, x="run", hue="stage", label="stage {}", grouped=True, style="points")
    yield Figure(
        name="delays",
        title="Delays of SGD behind gradient flow",
        caption="Delay of a stage of SGD behind that of the flow, relative to T_k; one point per run and stage.",
        panels=(Panel(x=Axis("run"), y=Axis("(t_k − t_k of the flow) / T_k"), marks=scatter),),
    )


entry = Entry(
    "gradual-rank/gradient-descent",
    "SGD: the paper's own procedure beside the gradient flow of its theory",
    source="Appendix A",
    quick=dict(batch=20, runs=4, rate=0.2, samples=40, tokens=4, dim=6, stages=2),
    paper=dict(samples=1000, dim=50, batch=300),
)
