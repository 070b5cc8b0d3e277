"""Stages of deep linear networks have exactly known levels and ranks, and are found in runs.

The paper's hope for ReLU networks is drawn from linear ones, where the complete path is known: from small weights they
go from saddle to saddle, the k-th of rank k in every layer, at the level of the best fit of rank k to the data.
Networks of two depths are trained on data that are not white, their stages are found in loss and spectra alone, and
compared with these levels (`saddlescope.theory.deep_linear`).

    level    of stage k: loss of the best linear fit of rank k, from the data alone
    range    loss at the origin less the last level
    visible  a stage after a drop of at least 2 % of the range; the finder looks for no other
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu.shared.plateau_statistics import STAIRCASE_METRICS
from saddlescope.papers.deep_relu.shared.training import concatenate_networks, find_stages, observe_spectra
from saddlescope.papers.deep_relu.shared.training_figures import by_network, stage_table
from saddlescope.plot import Axis, Figure, Figures, Line, Mark, Panel, lines
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

_MOST = 12  # stored stages

_MIN_DROP = 0.02  # of the range: the smallest drop that counts


class Params(EntryParams):
    """Parameters, at which a network trains in seconds; the paper has no experiment on this."""

    depths: tuple[int, ...] = param((3, 4), "numbers of layers L", ge=2, order="distinct")
    deviations: tuple[float, ...] = param(
        (0.002, 0.02), "standard deviation of the initial weights at each depth", gt=0, lt=1, scale="log"
    )
    seeds: tuple[int, ...] = param((0, 1, 2, 3, 4), "seeds of the data and the initial weights", ge=0, order="distinct")
    strengths: tuple[float, ...] = param((4.0, 2.5, 1.5), "singular values of the teacher, a matrix", gt=0)
    noise: float = param(0.1, "standard deviation of the targets' noise, which gives them full rank", ge=0.0, le=10.0)
    inputs: int = param(6, "dimension of the inputs", ge=1)
    outputs: int = param(5, "dimension of the targets", ge=1)
    samples: int = param(40, "samples in the data set", ge=1)
    width: int = param(10, "width of the hidden layers", ge=1)
    rate: float = param(0.01, "learning rate", gt=0, scale="log")
    steps: int = param(150_000, "steps of gradient descent on all samples", ge=1, scale="log")
    marks: int = param(16, "stored steps per doubling of the step", ge=1)

    def check(self) -> None:
        if len(self.deviations) != len(self.depths):
            count = len(self.depths)
            raise InputError(f"deviations must be {count} numbers, one per depth; got {self.deviations!r}.")
        most = min(self.inputs, self.outputs, self.samples)
        if len(self.strengths) > most:
            raise InputError(f"strengths must be 1 to {most} positive numbers; got {self.strengths!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train network by network."""
    import jax

    with jax.enable_x64(True):
        axes = {"depth": params.depths, "seed": params.seeds}
        return concatenate_networks(context.cells(axes, partial(_train_network, params)))


def _draw_data(params: Params, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw X (inputs, samples), not white, and T (outputs, samples)."""
    draw = np.random.default_rng(seed)
    scales = np.exp(draw.uniform(-0.5, 0.5, params.inputs))
    X = scales[:, None] * draw.standard_normal((params.inputs, params.samples))
    U, V = (np.linalg.qr(draw.standard_normal((size, size)))[0] for size in (params.outputs, params.inputs))
    rank = len(params.strengths)
    teacher = (U[:, :rank] * params.strengths) @ V[:, :rank].T
    return X, teacher @ X + params.noise * draw.standard_normal((params.outputs, params.samples))


def _train_network(params: Params, depth: int, seed: int, context: RunContext) -> xr.Dataset:
    """Predict the stages of one network, train it, and find its stages."""
    import jax
    import jax.numpy as jnp

    from saddlescope.flow import geometric_steps, sgd
    from saddlescope.models.deep import LayeredLoss, half_squared_error, layered_weights
    from saddlescope.theory.deep_linear import deep_linear_stages

    X, T = _draw_data(params, seed)
    predicted = deep_linear_stages(X.T, T.T, width=params.width).losses
    loss = LayeredLoss(jnp.asarray(X.T), jnp.asarray(T.T), half_squared_error, relu=False)
    widths = (params.inputs, *(depth - 1) * (params.width,), params.outputs)
    recording = sgd(
        loss,
        layered_weights(widths, seed=seed, deviation=params.deviations[params.depths.index(depth)]),
        steps=params.steps,
        learning_rate=params.rate,
        record=geometric_steps(params.steps, per_doubling=params.marks, every=max(1, params.steps // 500)),
        observe=jax.tree_util.Partial(observe_spectra, loss),
        report=context.report,
    )
    losses, spectra = (recording.observed[name] for name in ("loss", "singular_values"))
    visible = 1 + int(np.sum(-np.diff(predicted) >= _MIN_DROP * float(predicted[0] - predicted[-1])))
    largest = np.stack([np.pad(s, ((0, 0), (0, max(widths) - s.shape[1]))) for s in spectra])[..., : visible + 1]
    level = np.full(_MOST, np.nan)
    level[: len(predicted)] = predicted[:_MOST]
    measured = {"loss": ("step", losses), "singular_values": (("layer", "step", "value"), largest)}
    found = find_stages(losses, recording.steps, spectra, most=_MOST)
    found = found.assign(measured).assign(level=("stage", level), visible=visible, depth=depth, seed=seed)
    return found.assign_coords(step=recording.steps, value=np.arange(1, visible + 2))


claims = Claims(
    limits="The paper has no experiment on this; it quotes references 27 and 32. Square loss, a teacher of rank 3 "
    "with noise, depths 3 and 4. Plateaus are compared for drops of at least 2 % of the range, the least that the "
    "finder looks for. The bound on the levels is from runs on other seeds, since plateaus are finite."
)


@claims.reading(
    "stages",
    "In deep linear networks from small weights, the k-th plateau after the origin has rank k in every layer",
    "Section 5, hypothesis 4, on linear networks, after reference 27; 'in every layer' is this project's",
    high=0.0,
)
def count_wrong_networks(run: xr.Dataset) -> Estimate:
    """Number of networks with a number of loss plateaus, or a rank of a layer on one, other than predicted."""
    expected = run.stage.where(run.stage < run.visible, -1)
    ranks = (run.stage_layer_rank == expected) | (run.layer > run.depth)
    wrong = (run.stages_found != run.visible) | ~ranks.all(["stage", "layer"])
    remark = f"{run.sizes['network']} networks, {int(run.visible.sum())} stages"
    return Estimate.number(wrong.values, remark, over="networks")


@claims.reading(
    "levels",
    "In deep linear networks from small weights, each plateau has the loss of the best linear fit of its rank",
    "Section 5, hypothesis 4, on linear networks: 'locally optimal rank 1 fit', 'and so on'; 1e-3 is this project's",
    high=1e-3,
)
def largest_level_error(run: xr.Dataset) -> Estimate:
    """Largest difference of a plateau's loss from that of the best linear fit of its rank, over the loss range."""
    span = run.level.isel(stage=0) - run.level.min("stage")
    error = abs(run.stage_loss - run.level) / span
    return Estimate.largest(error.max("stage"), f"median {float(error.median()):.2g}", over="networks")


def figures(run: xr.Dataset) -> Figures:
    """Draw the loss and the spectrum of a middle layer of one network per depth."""
    seed = int(run.seed[0])
    names = [f"depth {depth}, seed {seed}" for depth, seed in zip(run.depth.values, run.seed.values, strict=True)]
    networks = by_network(run.assign_coords(network=names))
    yield Figure(
        name="runs",
        title="Loss and singular values of deep linear networks, with exactly known levels",
        caption="Training loss against the step of gradient descent, and the largest singular values of the second "
        f"layer, with seed {seed}. Dashed: the loss of the best linear fit of rank 0, 1, 2, ..., from the data "
        "alone. Dotted: where stages begin, found from loss and spectra alone.",
        panels=tuple(panel for one in networks.values() if one.seed == seed for panel in _panels(one)),
        table=stage_table(networks),
    )


def _panels(one: xr.Dataset) -> list[Panel]:
    starts = one.stage_start.dropna("stage").values[1:]
    one = one.isel(step=slice(int(np.searchsorted(one.step.values, starts[0] / 4)) if len(starts) else 1, None))
    ends, x, name = one.step.values[[0, -1]], Axis("step", scale="log"), f"depth {int(one.depth)}"
    begins = [Mark(at=float(start), group="stages found", color=7) for start in starts]
    levels = [
        Line(x=ends, y=np.full(2, level), group="best fits of rank k", style="dashed", width=0.9, color=3)
        for level in one.level.values[: int(one.visible)].tolist()
    ]
    values = one.singular_values.sel(layer=2).dropna("value", how="all")
    spectra = lines(values, x="step", hue="value", label="s_{}", grouped=True, color=1)
    loss = lines(one.loss, x="step", label="loss", grouped=True)
    return [
        Panel(title=name, x=x, y=Axis("loss", scale="log"), marks=(*loss, *levels, *begins)),
        Panel(title=f"{name}, layer 2", x=x, y=Axis("singular value"), marks=(*spectra, *begins)),
    ]


entry = Entry(
    "deep-relu/deep-linear",
    "Deep linear networks go from saddle to saddle of known level and rank",
    source="Section 5, references 27 and 32",
    quick=dict(depths=(3,), deviations=(0.01,), seeds=(0, 1), steps=20_000),
    paper=dict(seeds=tuple(range(20))),
    metrics=STAIRCASE_METRICS,
)
