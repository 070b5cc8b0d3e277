"""Two heads in one layer: Assumption 4.3 never holds, and both heads learn together.

At the origin all heads of a layer attend to the mean token, so the output depends on the sum of their values alone,
and their gradients are identical: the minimiser that Assumption 4.3 asks for is never unique. The stationary point they
reach is not strict either (Assumption 4.4): any division of the sum between the heads gives the same loss.

The initial weights determine the division. With x' = g for every coordinate (equation 6 in slope coordinates) and the
same g, the two grow by the same factor until a key or query has grown, and these start from a gradient of exactly 0. So
the heads divide what a single head would learn in a ratio that is constant in time and the same at any α:

    j         the entry of W_V W_Oᵀ that becomes active first; s its sign
    b^i       entry j of head i: w_V^i w_O^i
    r         b^1 : b^2, predicted: ((w_V^1 + s w_O^1) / (w_V^2 + s w_O^2))² of the initial weights at entry j
    B         b^1 + b^2 on the first plateau: what Algorithm 1 predicts for one head on the same data
    t_1       measured time at which b^1 + b^2 passes B / 2, in units of log(1/α)

The first keys break the tie: on the plateau, a head's key and query coordinates have gradients in proportion to its b.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.shared.head_task import HeadSizes
from saddlescope.papers.gradual_rank.shared.stage_times import passings
from saddlescope.plot import Axis, Figure, Figures, Mark, Panel, lines
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param

if TYPE_CHECKING:
    from saddlescope.models import TransformerTeacherTask

_HEADS = 2


class Params(HeadSizes, samples=200, tokens=5, dim=6):
    """One layer of two heads with residuals and a feedforward layer, learning a teacher of the same form."""

    seeds: tuple[int, ...] = param(
        (0, 1, 2, 3, 4), "seeds of the data, the teacher and the initial weights", ge=0, order="distinct"
    )
    log10_scales: tuple[float, ...] = param(
        (-8.0, -32.0, -128.0, -256.0), "log10 of the initial scales α, decreasing", le=-4, order="decreasing"
    )
    hidden: int = param(12, "width of the feedforward layer", ge=1)
    until: float = param(3.0, "end of the simulation, relative to the first stage time", unit="T_1", ge=1.5)
    tolerance: float = param(1e-5, "relative tolerance of the flow's stage times", ge=1e-12, le=1e-2, scale="log")
    level: float = param(1e-6, "|β_i| above which coordinate i counts as learned", gt=0, lt=1e-2, scale="log")
    points: int = param(601, "number of times at which the curves are stored", ge=2)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run the prediction at the origin, then the flow from each scale, seed by seed."""
    import jax

    from saddlescope.models import transformer_teacher_task

    sizes = params.only("samples", "tokens", "dim", "hidden")

    def follow(seed: int, step: RunContext) -> xr.Dataset:
        task = transformer_teacher_task(seed, layers=1, heads=_HEADS, **sizes)
        theory = _predict(task)
        simulate = partial(_simulate, task, theory, params)
        return xr.merge([theory, step.over({"scale": params.log10_scales}, simulate)])

    with jax.enable_x64(True):
        return context.over({"seed": params.seeds}, follow).assign_coords(head=[1, 2])


def _predict(task: "TransformerTeacherTask") -> xr.Dataset:
    """Predict the tied pair, its time and its division: from the loss at the origin and the initial weights."""
    from saddlescope.models import Coordinate
    from saddlescope.theory import incremental_learning

    network, transformer = task.network, task.network.h
    # While there are no keys, both heads act as one head with the sum of their values.
    single = replace(network, h=replace(transformer, heads=1))
    stage = incremental_learning(single, single.h.size, max_stages=1).stages[1]
    (entered,), (sign,) = stage.entered, stage.signs
    entry = single.h.coordinate(entered).entry
    pair = np.array([transformer.index(Coordinate(0, head, "VO", entry)) for head in range(_HEADS)])
    weights = (task.u0 + sign * task.v0)[pair]
    return xr.Dataset(
        {
            "first_time": stage.time,
            "pair": ("head", pair),
            "total": float(stage.beta[entered]),
            "predicted_share": ("head", weights**2 / (weights**2).sum()),
        },
        coords={"coordinate": np.arange(transformer.size)},
    )


def _simulate(
    task: "TransformerTeacherTask", theory: xr.Dataset, params: Params, log10_scale: float, context: RunContext
) -> xr.Dataset:
    """Follow gradient flow from one scale: the tied pair, and the number of learned coordinates."""
    from saddlescope.flow import DiagonalInit, gradient_flow

    first = float(theory.first_time)
    time = np.linspace(0, params.until, params.points)  # in units of T_1
    trajectory = gradient_flow(
        task.network,
        DiagonalInit(task.u0, task.v0, log_scale=log10_scale * np.log(10)),
        until=params.until * first,
        tolerance=params.tolerance,
        level=params.level,
        report=context.report,
    )
    pair, half = theory.pair.values, float(theory.total) / 2
    times = passings(trajectory, lambda beta: beta[:, pair].sum(1) / half)
    beta = trajectory(times[:1])[0] if times.size else np.full(theory.sizes["coordinate"], np.nan)
    return xr.Dataset(
        {
            "found_time": times[0] if times.size else np.nan,
            "found_pair": ("head", beta[pair]),
            "learned": int((np.abs(beta) > params.level).sum()),
            "beta": (("time", "coordinate"), trajectory(time * first)),
        },
        coords={"time": ("time", time, {"units": "T_1"})},
    )


_UNREACHED = "In some seed the first stage was not reached; raise `until`."


def _ratio(run: xr.Dataset, name: str) -> xr.DataArray:
    """Return the ratio of head 1 to head 2."""
    return run[name].sel(head=1) / run[name].sel(head=2)


claims = Claims(
    limits="One layer of two heads on random data. The paper's sentence is a corollary of Theorem 4.1, whose "
    "Assumption 4.3 no layer of two heads meets, so the theorem stands and its application does not: equation 10 gives "
    "equal gradients one time, on any data. An entry counts as learned above 1e-6, when the sum of the pair is "
    "half-way to its plateau."
)


@claims.printed(
    "at-most-one",
    "In a layer of two diagonal heads, too, each stage increases the rank of at most one product of one head, by one",
    "Section 4, application of Theorem 4.1 to L layers of H heads, from small weights; here L = 1, H = 2",
    high=1.0,
)
def _entering_coordinates(run: xr.Dataset) -> Estimate:
    """Number of entries learned in the first stage at the smallest initial scale, smallest over tasks."""
    last = run.isel(scale=-1)
    if last.found_time.isnull().any():
        return Estimate.unresolved(_UNREACHED)
    return Estimate.smallest(last.learned, "the fewest of all tasks", over="seeds")


@claims.extension(
    "ratio",
    "Two heads of a layer divide the first learned entry of W_V W_Oᵀ in the ratio that their initial weights determine",
    "Equation 6 with identical gradients; the bound is ten times the flow's tolerance",
    high=1e-4,
)
def _ratio_error(run: xr.Dataset) -> Estimate:
    """Largest relative error of the ratio of the heads' shares when their sum is half learned."""
    measured, predicted = _ratio(run, "found_pair"), _ratio(run, "predicted_share")
    if measured.isnull().any():
        return Estimate.unresolved(_UNREACHED)
    return Estimate.largest(abs(measured / predicted - 1), over="seeds and initial scales")


def figures(run: xr.Dataset) -> Figures:
    """Draw the pair of the first task over time."""
    one = run.isel(seed=0)
    shares = tuple(
        Mark(at=float(share), axis="y", group=f"head {int(share['head'])}, predicted", color=color)
        for color, share in enumerate(one.total * one.predicted_share)
    )

    def panel(scale: float) -> Panel:
        both = one.beta.sel(scale=scale).isel(coordinate=one.pair)
        curves = lines(both, x="time", hue="head", label="head {}", grouped=True)
        marks, x = (*curves, *shares, Mark(at=1.0, group="T_1")), Axis("t / (T_1 log(1/α))")
        return Panel(title=f"α = 1e{scale:g}", x=x, y=Axis("entry of W_V W_Oᵀ"), marks=marks)

    yield Figure(
        name="pair",
        title="The tied entry of W_V W_Oᵀ in both heads of one layer",
        caption="The tied entry of both heads against rescaled time, one panel per initial scale. Horizontal "
        "lines: the share of each head on the first plateau, predicted from the initial weights. Vertical line: "
        f"T_1. Seed {int(one.seed)}.",
        panels=tuple(map(panel, run.scale.values)),
    )


entry = Entry(
    "gradual-rank/tied-heads",
    "Two heads in one layer: Assumption 4.3 never holds, and both heads learn together",
    source="Section 4.2",
    quick=dict(
        seeds=(1, 2), log10_scales=(-8.0, -128.0), samples=40, tokens=4, dim=3, hidden=4, points=201, tolerance=1e-7
    ),
    paper=dict(samples=1000, tokens=10, dim=50, hidden=100),
)
