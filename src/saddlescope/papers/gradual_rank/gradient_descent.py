"""Gradient descent: the paper's own procedure beside the gradient flow of its theory.

The paper's theorem is about gradient flow; its toy experiments use SGD. Here full-batch gradient descent and SGD train
a small attention head from the flow's initial weights.

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

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope.papers.gradual_rank.shared.head_task import HeadParams
from saddlescope.papers.gradual_rank.shared.stage_times import halfway_times, predicted_stages
from saddlescope.plot import Axis, Figure, Figures, Line, Panel, lines
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param

FEATURES = ((3.0, -2.0, 0.0), (0.0, 0.0, 2.0), (-1.0, 1.0, 1.0))
TEACHER = (-1.0, -2.0, -2.0)
SADDLE = (0.0, -7 / 12, -25 / 12)  # the end of learning if coordinate 0 does not return
END = 60.0  # rescaled time at which the three coordinates have settled
SHOWN = 40.0  # rescaled time up to which they are drawn


class Params(HeadParams, seed=2, samples=200, tokens=10, dim=10):
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
    stages: int = param(4, "number of first stages judged", ge=1)
    tolerance: float = param(1e-6, "relative tolerance of the flow's stage times", ge=1e-10, le=1e-3, scale="log")

    def check(self) -> None:
        if self.batch > self.samples:
            raise InputError(f"batch must be at most samples={self.samples!r}; got {self.batch!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1, the flow, descent at each learning rate, SGD, other tasks, the three coordinates."""
    import jax

    algorithm, full, sgd, others, three = context.split(0.1, 0.25, 0.35, 0.1, 0.2)

    def delay(seed: int, _: RunContext) -> xr.Dataset:
        """Return the delay of the first stage over η / 2, in another task."""
        other, rate = _Head(params, seed, stages=1), params.learning_rates[-1]
        return xr.Dataset({"instance_ratio": 2 * (other.descent(rate)[0] - other.flow()[0]) / rate})

    with jax.enable_x64(True):
        head = _Head(params, params.seed, params.stages, algorithm.note("Algorithm 1"))
        parts = [
            head.theory[["predicted_time"]].assign(flow_time=("stage", head.flow())),
            full.over({"rate": params.learning_rates}, lambda rate, _: head.times("descent_time", rate)),
            sgd.over({"run": range(params.runs)}, lambda k, _: head.times("sgd_time", params.rate, params.batch, k)),
            others.over({"instance": params.instances}, delay),
            three.over({"returning_scale": params.returning_scales}, partial(_returning, params)),
        ]
    return xr.merge(parts, combine_attrs="drop")


class _Head:
    """A head with the stages of Algorithm 1, whose times are measured in flows and descents."""

    def __init__(self, params: Params, seed: int, stages: int, report: Report = silent):
        from saddlescope.flow import DiagonalInit
        from saddlescope.theory import incremental_learning

        self.params, task = params, params.task_of(seed)
        self.network = task.network
        self.start = DiagonalInit(task.u0, task.v0, log_scale=params.log10_scale * np.log(10))
        learned = incremental_learning(self.network, 2 * params.dim, max_stages=stages, report=report)
        self.until = 1.5 * learned.stages[-1].time
        self.theory = predicted_stages(learned, until=self.until)

    def flow(self) -> np.ndarray:
        """Return the half-way times of the flow."""
        from saddlescope.flow import gradient_flow

        record, tolerance = np.linspace(0, self.until, 1001), self.params.tolerance
        flow = gradient_flow(self.network, self.start, until=self.until, tolerance=tolerance, record=record)
        return halfway_times(flow, self.theory)

    def descent(self, rate: float, batch: int | None = None, seed: int = 0) -> np.ndarray:
        """Return the half-way times of one run of descent."""
        from saddlescope.flow import gradient_descent

        duration = self.until * -self.start.log_scale
        steps = int(duration / rate)
        # Equally many records in all runs, so that the loop is compiled once; the path between is straight.
        records = min(4000, int(duration / max(*self.params.learning_rates, self.params.rate)))
        record, how = np.linspace(0, steps, records + 1).astype(int), {"batch": batch, "seed": seed}
        path = gradient_descent(self.network, self.start, steps=steps, learning_rate=rate, record=record, **how)
        return halfway_times(path, self.theory)

    def times(self, name: str, rate: float, batch: int | None = None, seed: int = 0) -> xr.Dataset:
        """Return the half-way times of one run of descent, over `stage`."""
        return xr.Dataset({name: ("stage", self.descent(rate, batch, seed))}, {"stage": self.theory.stage})


def _returning(params: Params, scale: float, _: RunContext) -> xr.Dataset:
    """Follow the three coordinates by full-batch descent and by the flow."""
    from saddlescope.flow import DiagonalInit, gradient_descent, gradient_flow
    from saddlescope.models import diagonal_linear_network

    features = np.array(FEATURES)
    network = diagonal_linear_network(features, features @ np.array(TEACHER))
    start = DiagonalInit(*np.random.default_rng(0).standard_normal((2, 3)), log_scale=scale * np.log(10))
    moments = np.append(np.linspace(0, SHOWN, 801), END)
    steps = int(END * -start.log_scale / params.returning_rate) + 1
    rate = END * -start.log_scale / steps  # so that the last step is at the end
    marks = np.unique(np.rint(moments / END * steps).astype(int))
    descent = gradient_descent(network, start, steps=steps, learning_rate=rate, record=marks)
    flow = gradient_flow(network, start, until=END, tolerance=params.tolerance, record=moments)
    return xr.Dataset(
        {
            "returning_descent": (("moment", "place"), descent(np.minimum(moments, descent.times[-1]))),
            "returning_flow": (("moment", "place"), flow(moments)),
        },
        {"moment": moments},
    )


def _relative_delays(run: xr.Dataset) -> xr.DataArray:
    """Return descent's stage times minus the flow's, relative to T_k, by learning rate and stage."""
    return (run.descent_time - run.flow_time) / run.predicted_time


claims = Claims(
    limits="A small head, since the paper gives no learning rate or batch size for its own. Stages of nearly equal "
    "time are swapped by any noise of SGD. The delay is the first order in η on the first plateau; 15 % allows for the "
    "transition, out of log(1/α) = 18. The network of three coefficients was made for the float64 claim."
)


@claims.stand_in(
    "sgd-order",
    "SGD learns a head's first diagonal entries in the order of gradient flow",
    "Figure 2, which the paper made with SGD; nine runs in ten",
    low=0.9,
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


def figures(run: xr.Dataset) -> Figures:
    """Draw the delays of descent and SGD, and the saddle at which float64 descent stops."""
    rates, delays = run.rate.values, _relative_delays(run)
    law = Line(x=rates, y=rates / (2 * float(run.predicted_time[0])), label="η / (2 T_1)", style="dashed", width=1.2)
    marks = (*lines(delays, x="rate", hue="stage", label="stage {}"), law)
    shift = (run.sgd_time - run.flow_time) / run.predicted_time
    scatter = lines(shift, x="run", hue="stage", label="stage {}", grouped=True, style="points")
    late, eta = Axis("(t_k − t_k of the flow) / T_k"), Axis("learning rate η", scale="log")
    early = run.isel(moment=run.moment.values <= SHOWN).assign_coords(place=range(run.sizes["place"]))

    def coordinates(at: xr.Dataset) -> Panel:
        how = {"x": "moment", "hue": "place", "grouped": True}
        flow = lines(at.returning_flow, label="gradient flow", **how)
        descent = lines(at.returning_descent, label="float64 descent", style="dashed", **how)
        title = f"α = 1e{float(at.returning_scale):g}"
        return Panel(title=title, x=Axis("time / log(1/α)"), y=Axis("entry of β"), marks=flow + descent)

    yield Figure(
        name="delays",
        title="Delays of full-batch descent and of SGD behind gradient flow",
        caption="Left: delay of full-batch descent behind the flow, relative to T_k; dashed: the first order on "
        "the first plateau. Right: the same of SGD, one point per run and stage.",
        panels=(
            Panel(title="full batch", x=eta, y=replace(late, scale="log"), marks=marks),
            Panel(title="SGD", x=Axis("run"), y=late, marks=scatter),
        ),
    )
    yield Figure(
        name="returning",
        title="A coordinate that leaves and returns with the other sign",
        caption="Three coordinates of a diagonal linear network, by gradient flow (solid) and by float64 descent "
        "(dashed), at the largest and the smallest scale. By Algorithm 1 one of them enters with sign +, leaves "
        "when the next one enters, and returns with sign −. In float64 its return is lost once u² − v² = α² is "
        "below rounding errors of 1e-16.",
        panels=tuple(coordinates(early.isel(returning_scale=k)) for k in (0, -1)),
    )


entry = Entry(
    "gradual-rank/gradient-descent",
    "Gradient descent: the paper's own procedure beside the gradient flow of its theory",
    source="Appendix A",
    quick=dict(
        learning_rates=(0.4, 0.2), batch=20, runs=4, rate=0.2, instances=(11, 12), samples=40, tokens=4, dim=6, stages=2
    ),
    paper=dict(samples=1000, dim=50, batch=300),
)
