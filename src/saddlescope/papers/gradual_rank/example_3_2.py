"""Example 3.2: transformers with diagonal attention weights learn in stages.

One or two layers of one or two heads, with residuals and fixed GeLU feedforward layers, learn a teacher of the same
form. Only their attention weights are trained. Algorithm 1 and the simulation share no dynamics code.

    t        rescaled time: time of the gradient flow divided by log(1/α)
    t_k      measured time at which the coordinate that enters passes half its predicted value on the plateau
    window   of stage k: between the points half-way to the predicted times of the stages before and after it; a stage
             whose t_k is outside is missed

With two heads in a layer Assumption 4.3 fails (see tied_heads): the two enter together, in a ratio set by the initial
weights, from which Algorithm 1 continues. The theorem's claims are judged on networks of one head per layer.
"""

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.shared.diagonal_entries import PRODUCTS, flow_and_limit, staircase
from saddlescope.papers.gradual_rank.shared.head_task import HeadSizes
from saddlescope.papers.gradual_rank.shared.stage_times import passings, predicted_stages, resolved_stages
from saddlescope.plot import Axis, Figure, Figures, Line, Panel, lines
from saddlescope.reproduction import Claims, Entry, Estimate, Metric, RunContext, param

if TYPE_CHECKING:
    from saddlescope.flow import Trajectory
    from saddlescope.models import TransformerTeacherTask
    from saddlescope.theory import IncrementalLearning


class Params(HeadSizes, samples=100, tokens=5, dim=4):
    """Sizes at which every coordinate of every network can be distinguished; the paper has no experiment on this."""

    layers: tuple[int, ...] = param((1, 2), "numbers of layers L", ge=1, order="distinct")
    heads: tuple[int, ...] = param((1, 2), "numbers of heads H; every L is run with every H", ge=1, order="distinct")
    log10_scales: tuple[float, ...] = param(
        (-32.0, -128.0), "log10 of the initial scales α, decreasing", lt=0, order="decreasing"
    )
    seeds: tuple[int, ...] = param(
        tuple(range(31, 37)),
        "seeds of the data, the feedforward weights, the teacher and the initial weights",
        ge=0,
        order="distinct",
    )
    hidden: int = param(8, "width of the feedforward layers", ge=1)
    horizon: float = param(12.0, "end of the stages that are compared with the flow", unit="T_1", gt=1)
    stages: int = param(64, "largest number of predicted stages", ge=1)
    tolerance: float = param(1e-5, "relative tolerance of the flow's stage times", ge=1e-12, le=1e-2, scale="log")
    level: float = param(0.01, "|β_i| above which coordinate i counts as learned", gt=0, lt=1, scale="log")
    points: int = param(501, "number of times at which the curves are stored", ge=2)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1 on each network, then the flow from each scale."""
    import jax

    axes = {"seed": params.seeds, "layers": params.layers, "heads": params.heads}
    with jax.enable_x64(True):
        networks = context.cells(axes, partial(_stages_and_flows, params))
    fill = {name: False if values.dtype == bool else np.nan for name, values in networks[0].data_vars.items()}
    together = xr.concat(
        networks,
        dim="network",
        join="outer",
        coords=["seed", "layers", "heads"],
        compat="equals",
        combine_attrs="drop",
        fill_value=fill,
    )
    return together.assign_attrs(level=params.level, dim=params.dim)


def _stages_and_flows(params: Params, seed: int, layers: int, heads: int, context: RunContext) -> xr.Dataset:
    """Return Algorithm 1's stages with both predictions of their times, and the flow from each scale."""
    from saddlescope.flow import DiagonalInit, gradient_flow
    from saddlescope.models import transformer_teacher_task
    from saddlescope.theory import incremental_learning

    theory, flows = context.split(0.6, 0.4)
    sizes = params.only("samples", "tokens", "dim", "hidden")
    task = transformer_teacher_task(seed, layers=layers, heads=heads, **sizes)
    size, weights, report = task.network.h.size, (task.u0, task.v0), theory.note("Algorithm 1")
    learned = incremental_learning(task.network, size, weights=weights, max_stages=params.stages, report=report)
    first = learned.stages[1].time
    stages = predicted_stages(learned, until=params.horizon * first)
    time = np.linspace(0, 1.05 * params.horizon, params.points)  # in units of T_1
    times = time * first
    losses = np.append(learned.stages[0].loss, stages.predicted_loss)
    curve = losses[np.searchsorted(stages.predicted_time, times, side="right")]

    def simulate(log10_scale: float, step: RunContext) -> xr.Dataset:
        log_alpha = log10_scale * np.log(10)
        start = DiagonalInit(task.u0, task.v0, log_scale=log_alpha)
        trajectory = gradient_flow(task.network, start, until=float(times[-1]), tolerance=params.tolerance)
        now = np.append(learned.times_at(log_alpha), learned.end)
        middle = (now[1:-1] + np.minimum(now[2:], times[-1])) / 2
        seen = (middle > 0) & (middle < times[-1])
        plateau = np.full((len(middle), size), np.nan)
        plateau[seen] = trajectory(middle[seen])
        return xr.Dataset(
            {
                "found_time": ("stage", _times_in_windows(trajectory, learned)),
                "plateau_beta": (("stage", "coordinate"), plateau),
                "resolved": ("stage", seen & resolved_stages(learned, log_alpha, efolds=-np.log(params.level))),
                "loss": ("time", np.interp(times, trajectory.times, trajectory.losses)),
                "beta": (("time", "coordinate"), trajectory(times)),
            }
        )

    together = flows.over({"scale": params.log10_scales}, simulate)
    return (
        xr.merge([stages[["predicted_time", "predicted_beta"]], together])
        .assign(
            time=("time", time, {"units": "T_1"}),
            held=("stage", stages.predicted_time.values < params.horizon * first),
            # Nothing is predicted after the end of Algorithm 1.
            predicted_loss_curve=("time", np.where(times < learned.end, curve, np.nan)),
            product_error=_product_error(task),
        )
        .assign_coords(network=f"L = {layers}, H = {heads}, seed {seed}", seed=seed, layers=layers, heads=heads)
    )


def _times_in_windows(trajectory: "Trajectory", learned: "IncrementalLearning") -> np.ndarray:
    """Return t_k of each stage k = 1, 2, ..., if it is in the window around T_k; else NaN."""
    found = np.full(len(learned.stages) - 1, np.nan)
    predicted = np.append([stage.time for stage in learned.stages], learned.end)
    windows = (predicted[1:] + predicted[:-1]) / 2
    for k, stage in enumerate(learned.stages[1:]):
        for i in stage.entered:
            times = passings(trajectory, lambda beta, i=i, half=stage.beta[i] / 2: beta[:, i] / half)
            inside = times[(times > windows[k]) & (times < windows[k + 1])]
            found[k] = np.fmin(found[k], inside[0] if inside.size else np.nan)
    return found


def _product_error(task: "TransformerTeacherTask") -> float:
    """Return the largest relative change of the output of Example 3.2 when weights change but not their products.

    Random diagonals w_K, w_Q, w_V, w_O are written into full matrices; then each w_K and w_V is multiplied by a random
    number c of either sign, entry by entry, and w_Q and w_O are divided by it. The output's largest change, and its
    largest distance from h(X; u * v), are taken relative to its largest entry.
    """
    import jax.numpy as jnp

    h, rng = task.network.h, np.random.default_rng(0)
    x = np.asarray(task.network.inputs[0])
    u, v = rng.standard_normal((2, h.size))
    c = np.exp(rng.standard_normal(h.size)) * rng.choice([-1.0, 1.0], h.size)

    def output(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        z = x
        shape = (h.layers, h.heads, 2, h.dim)
        for layer, heads in enumerate(zip(u.reshape(shape), v.reshape(shape), strict=True)):
            attended = np.zeros_like(z)
            for (w_k, w_v), (w_q, w_o) in zip(*heads, strict=True):
                scores = np.exp(z @ np.diag(w_k) @ np.diag(w_q).T @ z.T)
                attended += scores / scores.sum(1, keepdims=True) @ z @ np.diag(w_v) @ np.diag(w_o).T
            z = z + attended
            if h.W_A is not None and h.W_B is not None:
                inner = np.asarray(h.activation(jnp.asarray(z @ np.asarray(h.W_A[layer]))))
                z = z + inner @ np.asarray(h.W_B[layer]).T
        return z

    printed = output(u, v)
    changed = output(c * u, v / c)
    products = np.asarray(h(jnp.asarray(x), jnp.asarray(u * v)))
    return float(max(np.abs(changed - printed).max(), np.abs(products - printed).max()) / np.abs(printed).max())


def _one_head(run: xr.Dataset) -> xr.Dataset:
    """Return the networks with one head per layer, the only ones that can meet Assumption 4.3."""
    return run.isel(network=(run.heads == 1).values)


claims = Claims(
    limits="Small networks, since the paper has no experiment on this. The theorem's claims are judged on networks of "
    "one head per layer alone (two: `tied-heads`), up to twelve times the first stage time. Plateaus too short at the "
    "smallest scale are left out, by the theory that predicts them. Convergence is the trend of 1e-32 and 1e-128."
)


@claims.printed(
    "products",
    "A transformer's output depends on its diagonal attention weights only through the products w_K w_Q and w_V w_O",
    "Example 3.2; the bound allows for rounding",
    high=1e-10,
)
def _product_dependence(run: xr.Dataset) -> Estimate:
    """Largest relative change of the output when the diagonal weights change and their products do not."""
    return Estimate.largest(run.product_error, over="networks")


@claims.reading(
    "support",
    "With one head per layer, on well-separated plateaus, exactly the products that Algorithm 1 predicts are learned",
    "Theorem 4.1 for Example 3.2 with one head per layer; learned: |β_i| above 0.01",
    high=0.0,
)
def _wrong_coordinates(run: xr.Dataset) -> Estimate:
    """Largest number of products, on one plateau at the smallest initial scale, learned or predicted but not both."""
    last = _one_head(run).isel(scale=-1)
    if not bool(last.resolved.any()):
        return Estimate.unresolved("No plateau lasts long enough at the smallest scale; add a smaller one.")
    level = run.attrs["level"]  # a plateau may have coordinates that have entered, but are predicted below it
    wrong = (abs(last.plateau_beta) > level) != (abs(last.predicted_beta.fillna(0)) > level)
    found = wrong.sum("coordinate").values[last.resolved.values.astype(bool)]
    return Estimate.largest(found, f"{found.size} plateaus resolved", over="plateaus of all one-head networks")


@claims.reading(
    "converges",
    "In transformers with one head per layer, a smaller scale brings the stage times closer to Algorithm 1's, in the "
    "median over the stages of each network",
    "Theorem 4.1 for Example 3.2 with one head per layer",
    high=1.0,
)
def _convergence_ratio(run: xr.Dataset) -> Estimate:
    """Largest ratio of the median relative stage-time error at one initial scale to that at the next larger one."""
    if run.sizes["scale"] < 2:
        return Estimate.unresolved("One scale shows no convergence; give two or more.")
    one = _one_head(run)
    missed = abs(one.found_time / one.predicted_time - 1).fillna(np.inf).where(one.held)
    errors = missed.median("stage").transpose("network", "scale").values
    if not np.isfinite(errors).all():
        return Estimate.unresolved("In one network most stages are not nearest to their own predicted times.")
    return Estimate.largest((errors[:, 1:] / errors[:, :-1]).max(1), over="networks")


metrics = (
    Metric(
        "stages",
        "stages that Algorithm 1 predicts, mean over networks",
        lambda run: float(run.predicted_time.notnull().sum("stage").mean()),
    ),
    Metric(
        "resolved",
        "plateaus that the smallest α resolves, mean over networks",
        lambda run: float(run.resolved.isel(scale=-1).sum("stage").mean()),
    ),
)

_TIME = Axis("t / (T_1 log(1/α))")


def figures(run: xr.Dataset) -> Figures:
    """Draw the loss of every network of the first seed, and the entries of its deepest one with the fewest heads."""
    run = run.isel(network=(run.seed == run.seed[0]).values)
    one = run.isel(network=np.lexsort((run.heads, -run.layers))[0], scale=-1)

    def loss_panel(name: str) -> Panel:
        net = run.sel(network=name)
        flows = lines(net.loss, x="time", hue="scale", label="α = 1e{:g}", grouped=True)
        limit = Line(x=run.time.values, y=net.predicted_loss_curve.values, group="Algorithm 1", style="dashed")
        return Panel(title=name, x=_TIME, y=Axis("loss", scale="log"), marks=(*flows, limit))

    yield Figure(
        name="loss",
        title="Loss of transformers with diagonal attention weights, by layers L and heads H",
        caption="Loss against rescaled time in units of T_1, for each initial scale; dashed: the staircase that "
        "Algorithm 1 predicts for the limit, up to its last stage. With two heads per layer the prediction uses "
        "the initial weights.",
        panels=tuple(map(loss_panel, run.network.values.tolist())),
    )
    yield Figure(
        name="entries",
        title="Diagonal entries of the weight products over time",
        caption=f"The network {one.network.item()} at α = 1e{float(one.scale):g}. Each line is one diagonal entry "
        "of a product in one layer, counted from 0; dashed: Algorithm 1's limit.",
        panels=_entry_panels(one.isel(stage=one.predicted_time.notnull().values)),
    )


def _entry_panels(one: xr.Dataset) -> tuple[Panel, ...]:
    layers, heads, dim = int(one.layers), int(one.heads), one.attrs["dim"]
    places = np.arange(2 * layers * heads * dim).reshape(layers, heads, 2, dim)
    time, beta = one.time.values, one.beta.transpose("time", "coordinate").values
    limit = staircase(one.assign(predicted_time=one.predicted_time / one.predicted_time[0]), time)
    panels = []
    for layer, (n, name) in product(range(layers), enumerate(PRODUCTS.values())):
        marks = flow_and_limit(time, beta, limit, places[layer, :, n].ravel().tolist())
        panels.append(Panel(title=f"layer {layer}, diagonal of {name}", x=_TIME, y=Axis("entry"), marks=marks))
    return tuple(panels)


entry = Entry(
    "gradual-rank/example-3-2",
    "Example 3.2: transformers with diagonal attention weights learn in stages",
    source="Section 3, Theorem 4.1",
    quick=dict(seeds=(31, 32), layers=(1,), heads=(1,), samples=40, tokens=3, dim=3, hidden=3, points=201),
    paper=dict(seeds=(31, 32, 33), samples=1000, tokens=10, dim=12, hidden=24, stages=100),
)
