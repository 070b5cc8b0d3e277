"""Figure 2 of the first version: full weights learn one singular direction at a time.

Panels (d) to (f) show an attention head with full weights: the singular values of W_V W_Oᵀ and W_K W_Qᵀ, and the loss.
Panels (a) to (c), a head with diagonal weights, are Figure 2 of the final version. The first version says that full
weights fall beyond its theory. The prediction here is `saddlescope.theory.low_rank_learning`: the next direction is the
top singular pair of -dL/dB, and it rises when its exponent reaches 1. The flow shares no dynamics code with the
prediction.

    T_k     predicted time at which the k-th singular value rises, in the limit of vanishing α
    t_k     measured time at which it first passes half of its value on its predicted plateau
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank.shared import stage_times
from saddlescope.papers.gradual_rank.shared.diagonal_entries import PRODUCTS
from saddlescope.papers.gradual_rank.shared.head_task import HeadSizes
from saddlescope.plot import Axis, Figure, Figures, Line, Panel, lines
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param

if TYPE_CHECKING:
    from saddlescope.flow import FactoredTrajectory
    from saddlescope.models import FullAttentionTeacherTask


class Params(HeadSizes, samples=200, tokens=5, dim=8):
    """The first version gives Gaussian tokens of 50 dimensions and a teacher, but no scale, rank or learning rate."""

    log10_scales: tuple[float, ...] = param(
        (-8.0, -32.0, -128.0), "log10 of the initial scales of full weights", lt=0, order="decreasing"
    )
    seed: int = param(2, "seed of the data, the teacher and the initial weights", ge=0)
    rank: int = param(3, "rank of the teacher's two products", ge=1)
    tolerance: float = param(1e-4, "relative tolerance of the stage times", ge=1e-11, le=1e-2, scale="log")
    points: int = param(400, "times at which the curves are stored", ge=2)

    def check(self) -> None:
        if self.rank > self.dim:
            raise InputError(f"rank must be at most dim={self.dim}; got {self.rank!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run the prediction, and the flow from each scale."""
    import jax

    from saddlescope.models import full_attention_teacher_task

    prediction, full = context.split(0.2, 0.8)
    sizes = {"samples": params.samples, "tokens": params.tokens, "dim": params.dim}
    with jax.enable_x64(True):
        task = full_attention_teacher_task(params.seed, rank=params.rank, **sizes)
        theory = prediction.cached("theory", lambda: _predict(params, task, prediction))
        flows = full.over({"scale": params.log10_scales}, partial(_simulate, params, task, theory))
    return xr.merge([theory, flows], combine_attrs="drop").assign_attrs(theory.attrs)


def _predict(params: Params, task: "FullAttentionTeacherTask", context: RunContext) -> xr.Dataset:
    from saddlescope.theory import low_rank_learning

    d = params.dim
    learned = low_rank_learning(task.network, [(d, d)] * 2, width=d, report=context.note("prediction"))
    stages = learned.stages[1:]
    if not stages:
        raise InputError(f"No direction is ever learned: {learned.message} Choose another seed.")
    entered = np.array([stage.entered[0] for stage in stages])
    values = np.zeros((len(stages), 2, d))
    for k, stage in enumerate(stages):
        for p, s in enumerate(stage.singular_values):
            values[k, p, : len(s)] = s
    begins = np.array([stage.time for stage in stages])
    return xr.Dataset(
        {
            "predicted_time": ("stage", begins),
            "predicted_product": ("stage", entered),
            "predicted_index": ("stage", np.array([s.ranks[p] - 1 for s, p in zip(stages, entered, strict=True)])),
            "predicted_loss": ("stage", np.array([stage.loss for stage in stages])),
            "predicted_values": (("stage", "product", "index"), values),
        },
        coords={"stage": np.arange(1, len(stages) + 1), "product": list(PRODUCTS.values()), "index": np.arange(d)},
        attrs={"initial_loss": learned.stages[0].loss},
    )


def _simulate(
    params: Params, task: "FullAttentionTeacherTask", theory: xr.Dataset, log10_scale: float, context: RunContext
) -> xr.Dataset:
    """Follow the flow of full weights from one scale."""
    from saddlescope.flow import FactorInit, factored_flow

    until = 1.15 * float(theory.predicted_time[-1])
    time = np.linspace(0.0, until, params.points)
    start = FactorInit(pairs=task.pairs, log_scale=log10_scale * np.log(10))
    how = {"tolerance": params.tolerance, "record": time, "report": context.report}
    trajectory = factored_flow(task.network, start, until=until, **how)
    at = np.searchsorted(trajectory.times, time)
    return xr.Dataset(
        {
            "loss": ("time", trajectory.losses[at]),
            "values": (("time", "product", "index"), trajectory.singular_values[at]),
            "found_time": ("stage", _stage_times(trajectory, theory)),
            "in_transit": _in_transit(trajectory),
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
    """Return the mean number of singular values that rise at once: summed times of rising over their union.

    Rising is passing from 5 % to 50 % of the value at the end. A value that ends below a thousandth of the largest is
    no direction of the teacher.
    """
    final = trajectory.singular_values[-1]
    large = final > 1e-3 * final.max()
    levels = np.where(large, final, 1e6 * final.max())
    # A value that is that large at the start has begun to rise at time 0.
    begin, end = (np.nan_to_num(trajectory.rises(part * levels)[large]) for part in (0.05, 0.5))
    order = np.argsort(begin)
    begin, end = begin[order], end[order]
    latest = np.maximum.accumulate(end)
    covered = end[0] - begin[0] + np.sum(np.maximum(latest[1:] - np.maximum(begin[1:], latest[:-1]), 0.0))
    return float(np.sum(end - begin) / covered)


claims = Claims(
    limits="One instance of dimension 8, smaller than the paper's 50, with a teacher of rank 3. Full weights are "
    "beyond the theorem: their prediction is this project's, not proved, and with a teacher of full rank and a larger "
    "α their stages overlap. 1.5 is a pairwise overlap of half of the values. Diagonal weights are those of "
    "`figure-2`."
)


@claims.stand_in(
    "one-by-one",
    "From α = 1e-8, 1e-32 and 1e-128, on average at most 1.5 singular values of a small head's products rise at once",
    "Figure 2 (d), (e) of version 1: 'learned incrementally'; 1 is one at a time, 1.5: this project",
    high=1.5,
)
def _average_overlap(run: xr.Dataset) -> Estimate:
    """Mean number of singular values that rise at once, from 5 % to 50 % of their end, largest over scales."""
    return Estimate.largest(run.in_transit, over="initial scales")


@claims.extension(
    "order",
    "From α = 1e-128, the singular values of a small head's products rise in the order that this project predicts",
    "Prediction of this project for Figure 2 (d), (e) of version 1",
    low=1.0,
)
def _learning_order(run: xr.Dataset) -> Estimate:
    """Share of singular values at their predicted place in the order of rising."""
    times = run.found_time.isel(scale=-1).values
    if np.isnan(times).any():
        return Estimate.unresolved("Some predicted directions did not rise before the simulation ended.")
    right = np.argsort(times) == np.arange(len(times))
    return replace(Estimate.number(right, over="stages"), value=float(right.mean()))


def figures(run: xr.Dataset) -> Figures:
    """Draw the singular values of both products, and the loss, with their prediction."""
    last = run.isel(scale=-1)
    begun = np.searchsorted(run.predicted_time, run.time.values, side="right")
    levels = xr.concat([xr.zeros_like(run.predicted_values.isel(stage=0)), run.predicted_values], "stage")
    staircase = levels.isel(stage=xr.DataArray(begun, dims="time")).assign_coords(time=run.time)
    losses = np.append(run.attrs["initial_loss"], run.predicted_loss)
    predicted_loss = Line(x=run.time.values, y=losses[begun], group="prediction", style="dashed", width=1.0)
    shown = (0.9 * float(run.predicted_time[0]), float(run.time[-1]))

    def flow(values: xr.DataArray, hue: str = "") -> tuple[Line, ...]:
        x = str(values.dims[0])
        return lines(values, x=x, hue=hue, label=lambda _: "gradient flow", grouped=True, width=1.3)

    def predicted(product: int) -> tuple[Line, ...]:
        levels = staircase.isel(product=product, drop=True)
        rising = levels.isel(index=(run.predicted_values.isel(product=product) > 0).any("stage").values)
        return lines(rising, x="time", hue="index", label=lambda _: "prediction", grouped=True, style="dashed", width=1)

    def panel(title: str, y: str, marks: tuple[Line, ...]) -> Panel:
        return Panel(title=title, x=Axis("time / log(1/α)", range=shown), y=Axis(y), marks=marks)

    panels = []
    for place, letter, name in ((1, "d", PRODUCTS["VO"]), (0, "e", PRODUCTS["KQ"])):
        values = flow(last["values"].isel(product=place, drop=True), "index")
        panels.append(panel(f"({letter}) {name}", "singular value", values + predicted(place)))
    panels.append(panel("(f) loss", "loss", (*flow(last.loss), predicted_loss)))
    yield Figure(
        name="panels",
        title="Full weights learn one direction at a time",
        caption=f"An attention head with full weights at α = 1e{float(last.scale):g}: singular values of both "
        "products, and the loss. Dashed: the prediction for vanishing α. Time is that of the flow over log(1/α).",
        panels=tuple(panels),
        columns=3,
    )


entry = Entry(
    "gradual-rank/figure-2-v1",
    "Figure 2 of the first version: full weights learn one singular direction at a time",
    source="Section 5 of version 1",
    quick=dict(log10_scales=(-32.0, -128.0), points=120, tolerance=1e-3, samples=40, tokens=4, dim=3, rank=2),
    paper=dict(log10_scales=(-8.0, -16.0, -32.0), samples=1000, tokens=10, dim=50, rank=4),
    metrics=(stage_times.STAGES, stage_times.FINAL_LOSS),
)
