"""Example 3.2: transformers with diagonal attention weights learn in stages too.

One or two layers of one or two heads, with residuals and fixed GeLU feedforward layers, learn a teacher of the same
form. Only their attention weights are trained. Algorithm 1 predicts the stages, the gradient flow is simulated, and the
two share no dynamics code.

    alpha    initial scale: u(0) = alpha u0, v(0) = alpha v0
    t        rescaled time: time of the gradient flow divided by log(1/alpha)
    T_k      when stage k begins in the limit of vanishing alpha, from Algorithm 1
    C_k      the next order, from Algorithm 1 and the initial weights: T_k + C_k / log(1/alpha) at a finite alpha
    t_k      measured time at which the coordinate that enters passes half its predicted value on the plateau
    window   of stage k: between the points half-way to the predicted times of the stages before and after it; a stage
             whose t_k does not lie there is missed

Both predictions are judged: "limit", T_k alone, and "finite", with C_k. With two heads in a layer Assumption 4.3 fails
(see tied_heads): the two enter together, in a ratio set by the initial weights, without which there is no prediction.
"""

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.example_3_2.claims import ORDERS, claims, metrics
from saddlescope.papers.gradual_rank.example_3_2.figures import figures
from saddlescope.papers.gradual_rank.example_3_2.measurements import product_error, times_in_windows
from saddlescope.papers.gradual_rank.shared.stage_times import predicted_stages, resolved_stages
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.models import TransformerTeacherTask
    from saddlescope.theory import IncrementalLearning


class Params(EntryParams):
    """Sizes at which every coordinate of every network can be distinguished; the paper has no experiment on this."""

    layers: tuple[int, ...] = param((1, 2), "numbers of layers L")
    heads: tuple[int, ...] = param((1, 2), "numbers of heads H; every L is run with every H")
    log10_scales: tuple[float, ...] = param(
        (-32.0, -128.0), "log10 of the initial scales alpha, decreasing", lt=0, order="decreasing"
    )
    seed: int = param(0, "of data, feedforward weights, teacher and initial weights", ge=0)
    samples: int = param(200, "sequences in the data set", ge=1)
    tokens: int = param(5, "tokens in a sequence", ge=1)
    dim: int = param(6, "dimension of a token: p = 24 for two layers of one head", ge=1)
    hidden: int = param(12, "width of the feedforward layers", ge=1)
    horizon: float = param(12.0, "stages with T_k below this many times T_1 are held against the flow")
    stages: int = param(64, "at most so many stages are predicted", ge=1)
    tolerance: float = param(1e-5, "relative, of stage times; see `saddlescope.flow.gradient_flow`", ge=1e-12, le=1e-2)
    level: float = param(0.01, "|beta_i| above which coordinate i counts as learned")
    points: int = param(501, "times at which the curves are stored", ge=2)

    def check(self) -> None:
        for name in ("layers", "heads"):
            counts = getattr(self, name)
            if not counts or min(counts) < 1 or len(set(counts)) < len(counts):
                raise InputError(f"{name} must be different positive integers, such as 1,2; got {counts!r}.")
        if not 1 < self.horizon < float("inf"):
            raise InputError(f"horizon must be above 1 and finite; got {self.horizon!r}.")
        if not 0 < self.level < 1:
            raise InputError(f"level must be between 0 and 1; got {self.level!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1 on each network, then the flow from each scale."""
    import jax

    from saddlescope.models import transformer_teacher_task

    shapes = list(product(params.layers, params.heads))
    networks = []
    with jax.enable_x64(True):
        for n, (layers, heads) in enumerate(shapes):
            task = transformer_teacher_task(
                params.seed, layers=layers, heads=heads, samples=params.samples, tokens=params.tokens, dim=params.dim,
                hidden=params.hidden,
            )  # fmt: skip
            part = context.part(n / len(shapes), (n + 1) / len(shapes))
            part(0.0, _name(layers, heads))
            networks.append(context.cached(f"network-{layers}-{heads}", partial(_stages_and_flows, task, params, part)))
    context.report(1.0, "done")
    missing = {"held": False, "resolved": False, "entering": 0, "predicted_coordinate": -1, "predicted_sign": 0}
    fill = {name: missing.get(str(name), np.nan) for name in networks[0].data_vars}
    together = xr.concat(networks, dim="network", join="outer", combine_attrs="drop", fill_value=fill)
    return together.assign_coords(
        network=[_name(*shape) for shape in shapes],
        layers=("network", [layers for layers, _ in shapes]),
        heads=("network", [heads for _, heads in shapes]),
    ).assign_attrs(level=params.level, tolerance=params.tolerance, dim=params.dim, horizon=params.horizon)


def _stages_and_flows(task: "TransformerTeacherTask", params: Params, report: Report) -> xr.Dataset:
    """Return Algorithm 1's stages with both predictions of their times, and the flow from each scale."""
    from saddlescope.theory import incremental_learning

    learned = incremental_learning(
        task.network,
        task.network.h.size,
        weights=(task.u0, task.v0),
        max_stages=params.stages,
        report=lambda fraction, note: report(0.6 * fraction, f"Algorithm 1, {note}"),
    )
    first = learned.stages[1].time
    stages = predicted_stages(learned, until=params.horizon * first)
    time = np.linspace(0, 1.05 * params.horizon, params.points)  # in units of T_1
    begun = np.searchsorted(stages.predicted_time, time * first, side="right")
    told = time * first < learned.end  # nothing is predicted after the end, where there is one
    flows = []
    for n, log10_scale in enumerate(params.log10_scales):
        report(0.6 + 0.4 * n / len(params.log10_scales), f"gradient flow from alpha = 1e{log10_scale:g}")
        flows.append(_simulate(task, learned, params, time * first, log10_scale))
    together = xr.concat(flows, dim="scale").assign_coords(scale=list(params.log10_scales), order=list(ORDERS))
    return xr.merge([stages, together]).assign(
        time=("time", time, {"units": "T_1"}),
        entering=("stage", np.array([len(stage.entered) for stage in learned.stages[1:]])),
        held=("stage", stages.predicted_time.values < params.horizon * first),
        predicted_loss_curve=(
            "time",
            np.where(told, np.append(learned.stages[0].loss, stages.predicted_loss)[begun], np.nan),
        ),
        product_error=product_error(task),
        converged=learned.status.value == "converged",
        theory_message=learned.message,
    )


def _simulate(
    task: "TransformerTeacherTask",
    learned: "IncrementalLearning",
    params: Params,
    times: np.ndarray,
    log10_scale: float,
) -> xr.Dataset:
    """Follow gradient flow from one scale: curves, stage times in the windows of both predictions, and plateaus."""
    from saddlescope.flow import DiagonalInit, gradient_flow

    log_alpha = log10_scale * np.log(10)
    trajectory = gradient_flow(
        task.network,
        DiagonalInit(task.u0, task.v0, log_scale=log_alpha),
        until=float(times[-1]),
        tolerance=params.tolerance,
    )
    limit = np.array([stage.time for stage in learned.stages])
    predicted = [np.append(order, learned.end) for order in (limit, learned.times_at(log_alpha))]
    middle = (predicted[1][1:-1] + np.minimum(predicted[1][2:], times[-1])) / 2
    seen = (middle > 0) & (middle < times[-1])
    plateau = np.full((len(middle), task.network.h.size), np.nan)
    plateau[seen] = trajectory(middle[seen])
    return xr.Dataset(
        {
            "told_time": (("order", "stage"), np.stack([order[1:-1] for order in predicted])),
            "found_time": (("order", "stage"), np.stack([times_in_windows(trajectory, learned, o) for o in predicted])),
            "plateau_beta": (("stage", "coordinate"), plateau),
            "resolved": ("stage", seen & resolved_stages(learned, log_alpha, efolds=-np.log(params.level))),
            "loss": ("time", np.interp(times, trajectory.times, trajectory.losses)),
            "beta": (("time", "coordinate"), trajectory(times)),
            "gradients": trajectory.evaluations.gradients,
        }
    )


def _name(layers: int, heads: int) -> str:
    return f"L = {layers}, H = {heads}"


entry = Entry(
    "gradual-rank/example-3-2",
    "Example 3.2: transformers with diagonal attention weights learn in stages too",
    citation=CITATION,
    source="Section 3, Theorem 4.1",
    params=Params,
    quick=dict(layers=(1,), heads=(1,), samples=40, tokens=3, dim=3, hidden=3, points=201),
    paper=dict(samples=1000, tokens=10, dim=12, hidden=24, stages=100),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
