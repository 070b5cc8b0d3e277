"""Stages of deep linear networks have exactly known levels and ranks, and are found in runs.

The paper's hope for ReLU networks is drawn from linear ones, where the complete path is known: from small weights they
go from saddle to saddle, the k-th of rank k in every layer, at the level of the best fit of rank k to the data.
Networks of two depths are trained on data that are not white, their stages are found in loss and spectra alone, and
compared with these levels (`saddlescope.theory.deep_linear`). Synthetic staircases, whose stages are known too, measure
how much noise the finder of stages tolerates.

    level    of stage k: loss of the best linear fit of rank k, from the data alone
    range    loss at the origin less the last level
    visible  a stage after a drop of at least 2 % of the range; the finder looks for no other
    speed    -Tr[G^T Y] of the leading singular pairs u_l v_l^T of all layers, a network of norm |theta|^2 = L; at most
             s* = |G X^T|, at any depth

Escape along the optimal direction needs small initial weights, the smaller the deeper: at depth 4 a third
of the deviation brings the slowest network from 0.56 to 0.80 of s*. Levels and ranks do not depend on it.
"""

from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.plateau_statistics import STAIRCASE_METRICS
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table, lines
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

_MOST = 12  # stored stages

_MIN_DROP = 0.02  # of the range: the smallest drop that counts

_FIRST_SYNTHETIC = 40_000  # seeds of the synthetic staircases: none on which the finder was tuned

SUCCESS_BARS = {0.0: 1.0, 1e-4: 0.97, 1e-3: 0.90}  # noise, and the smallest share of staircases found right


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
    staircases: int = param(300, "synthetic staircases at each noise and sampling", ge=1, scale="log")
    noises: tuple[float, ...] = param(
        (0.0, 1e-4, 1e-3, 1e-2), "noise of the synthetic losses, in units of their range", ge=0, lt=1
    )

    def check(self) -> None:
        if len(self.deviations) != len(self.depths):
            count = len(self.depths)
            raise InputError(f"deviations must be {count} numbers, one per depth; got {self.deviations!r}.")
        most = min(self.inputs, self.outputs, self.samples)
        if len(self.strengths) > most:
            raise InputError(f"strengths must be 1 to {most} positive numbers; got {self.strengths!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train network by network, then find the stages of the synthetic staircases."""
    import jax

    from saddlescope.papers.deep_relu.shared.training import concatenate_networks

    training, finder = context.split(0.8, 0.2)
    networks = product(zip(params.depths, params.deviations, strict=True), params.seeds)
    found = []
    with jax.enable_x64(True):
        for ((depth, deviation), seed), step in training.steps(networks):
            make = partial(_train_network, params, depth, deviation, seed, step)
            found.append(step.cached(f"network-{depth}-{seed}", make))
    table = finder.cached("synthetic", partial(_find_synthetic_staircases, params, finder))
    context.report(1.0, "done")
    return concatenate_networks(found).merge(table).assign_attrs(rate=params.rate)


def _draw_data(params: Params, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw X (inputs, samples), not white, and T (outputs, samples)."""
    draw = np.random.default_rng(seed)
    scales = np.exp(draw.uniform(-0.5, 0.5, params.inputs))
    X = scales[:, None] * draw.standard_normal((params.inputs, params.samples))
    U, V = (np.linalg.qr(draw.standard_normal((size, size)))[0] for size in (params.outputs, params.inputs))
    rank = len(params.strengths)
    teacher = (U[:, :rank] * params.strengths) @ V[:, :rank].T
    return X, teacher @ X + params.noise * draw.standard_normal((params.outputs, params.samples))


def _train_network(params: Params, depth: int, deviation: float, seed: int, context: RunContext) -> xr.Dataset:
    """Predict the stages of one network, train it, and find its stages."""
    import jax
    import jax.numpy as jnp

    from saddlescope.flow import geometric_steps, sgd
    from saddlescope.measure import find_plateaus
    from saddlescope.models.deep import LayeredLoss, half_squared_error, layered_weights
    from saddlescope.papers.deep_relu.shared.training import staircase_dataset
    from saddlescope.theory.deep_linear import deep_linear_stages

    X, T = _draw_data(params, seed)
    predicted = deep_linear_stages(X.T, T.T, width=params.width)
    loss = LayeredLoss(jnp.asarray(X.T), jnp.asarray(T.T), half_squared_error, relu=False)
    widths = (params.inputs, *(depth - 1) * (params.width,), params.outputs)
    every = max(1, params.steps // 500)
    recording = sgd(
        loss,
        layered_weights(widths, seed=seed, deviation=deviation),
        steps=params.steps,
        learning_rate=params.rate,
        record=geometric_steps(params.steps, per_doubling=params.marks, every=every),
        observe=jax.tree_util.Partial(_observe, loss),
        report=context.note(f"depth {depth}, seed {seed}"),
    )
    seen = recording.observed
    staircase = find_plateaus(seen["loss"], steps=recording.steps, singular_values=seen["singular_values"]).staircase
    drops, span = -np.diff(predicted.losses), float(predicted.losses[0] - predicted.losses[-1])
    visible = 1 + int(np.sum(drops >= _MIN_DROP * span))
    before = seen["loss"] > predicted.losses[0] - 0.01 * drops[0]  # the weights still small
    spectra = [np.pad(s, ((0, 0), (0, max(widths) - s.shape[1]))) for s in seen["singular_values"]]
    level = np.full(_MOST, np.nan)
    level[: len(predicted.losses)] = predicted.losses[:_MOST]
    away = 0.0  # largest distance of a level from the nearest saddle of its rank
    for stage in staircase.stages:
        saddles = [predicted.saddle_loss(S) for S in combinations(range(len(predicted.strengths)), stage.rank)]
        away = max(away, min((abs(stage.loss - saddle) for saddle in saddles), default=float("inf")))
    return staircase_dataset(staircase, layers=depth, most=_MOST).merge(
        xr.Dataset(
            {
                "loss": ("step", seen["loss"]),
                "singular_values": (("layer", "step", "value"), np.stack(spectra)[..., : visible + 1]),
                "level": ("stage", level),
                "visible": ((), visible),
                "depth": ((), depth),
                "seed": ((), seed),
                "fitted": ((), away / span),
                "speed_share": ((), float(np.max(seen["speed"][before]) / predicted.speeds[0])),
            },
            coords={"step": recording.steps, "value": np.arange(1, visible + 2)},
        )
    )


def _observe(loss: Any, weights: Any) -> dict[str, Any]:
    import jax.numpy as jnp

    decompositions = [jnp.linalg.svd(weight, full_matrices=False) for weight in weights]
    leading = tuple(jnp.outer(U[:, 0], Vt[0]) for U, _, Vt in decompositions)
    return {
        "loss": loss(weights),
        "speed": jnp.abs(jnp.sum(loss.gradient_at_origin().T * loss.output(leading).T)),  # signs of pairs are arbitrary
        "singular_values": [s for _, s, _ in decompositions],
    }


def _find_synthetic_staircases(params: Params, context: RunContext) -> xr.Dataset:
    """Count the synthetic staircases that are found right, at each noise and sampling."""
    from saddlescope.measure import find_plateaus
    from saddlescope.papers.deep_relu.deep_linear.synthetic_staircases import synthetic_run

    right = np.zeros((len(params.noises), 2), int)
    for ((i, noise), geometric), step in context.steps(product(enumerate(params.noises), (False, True))):
        step.report(0.0, f"synthetic staircases with noise {noise:g}")
        for seed in range(_FIRST_SYNTHETIC, _FIRST_SYNTHETIC + params.staircases):
            case = synthetic_run(seed, noise=noise, geometric=geometric)
            found = find_plateaus(case.losses, steps=case.times, singular_values=case.singular_values).staircase
            right[i, int(geometric)] += case.matches(found)
    return xr.Dataset(
        {"right": (("loss_noise", "sampling"), right), "staircases": ((), params.staircases)},
        coords={"loss_noise": list(params.noises), "sampling": ["linear", "geometric"]},
    )


claims = Claims()


@claims.add(
    "stages",
    "Each trained deep linear network shows the number of loss plateaus and the layer ranks that exact theory "
        "predicts",
    quantity="number of networks with a number of loss plateaus, or a rank of a layer on one, other than predicted",
    kind="reading",
    source="Section 5 on linear networks; exact theory, for drops of at least 2 % of the range of the loss", high=0.0,
    sizes=("default", "paper"), evidence="cases", over="networks",
    why="Theory gives each layer's rank at each saddle, so another rank is an error of the finder or of the theory",
    doubt="The finder was set on runs of the same kind, and smaller drops than 2 % are not looked for",
)  # fmt: skip
def _wrong_networks(run: xr.Dataset) -> Estimate:
    expected = run.stage.where(run.stage < run.visible, -1)
    ranks = (run.stage_layer_rank == expected) | (run.layer > run.depth)
    wrong = (run.stages_found != run.visible) | ~ranks.all(["stage", "layer"])
    return Estimate.number(wrong.values, f"{run.sizes['network']} networks, {int(run.visible.sum())} stages")


@claims.add(
    "levels", "The loss on each plateau of a deep linear network is that of the best linear fit of its rank",
    quantity="largest absolute difference of a plateau's loss from that of the best linear fit of its rank, relative "
        "to the loss range, over networks", kind="own",
    source="Section 5 on linear networks; exact theory; the bound from runs on other seeds, since plateaus are "
        "finite", high=1e-3, sizes=("default", "paper"), evidence="cases", over="networks",
    why="The best fit of each rank is known from the data alone, so the level is a prediction without a free number",
    doubt="A plateau's level is where the finder looks, and the drift of a finite plateau is judged by our bar",
)  # fmt: skip
def _level_error(run: xr.Dataset) -> Estimate:
    span = run.level.isel(stage=0) - run.level.min("stage")
    error = abs(run.stage_loss - run.level) / span
    return Estimate.largest(error.max("stage").values, f"median {float(error.median()):.2g}")


@claims.add(
    "saddles", "The loss on each plateau of a deep linear network is that of some saddle of its rank",
    quantity="largest absolute difference of a plateau's loss from the nearest theoretical saddle loss of its "
        "rank, relative to the loss range, over networks", kind="own",
    source="exact theory; the bound from runs on other seeds", high=1e-3, sizes=("default", "paper"), evidence="cases",
    over="networks",
    why="Gradient flow may visit a saddle that is not the best of its rank, which the levels of the best fits exclude",
    doubt="With many saddles some level is always near, so the nearest one is an easy target",
)  # fmt: skip
def _distance_from_saddles(run: xr.Dataset) -> Estimate:
    return Estimate.largest(run.fitted.max([dim for dim in run.fitted.dims if dim != "network"]).values)


@claims.add(
    "speed",
    "Deep linear networks leave the origin along directions with at least 85 % of the largest possible escape speed",
    quantity="escape speed of the layers' leading singular directions near the origin over the largest possible "
        "one, smallest over networks", kind="own",
    source="Section 2.2 with linear layers; the bound from runs on other seeds, since the initial scale is finite",
    low=0.85, high=1.0 + 1e-9, sizes=("default", "paper"), evidence="cases", over="networks",
    why="The share of the largest speed measures how far the direction is from the optimal one before the escape",
    doubt="The initial scale is finite, and a smaller one brings every network nearer to the optimum",
)  # fmt: skip
def _speed_share(run: xr.Dataset) -> Estimate:
    return Estimate.smallest(run.speed_share.values, f"largest {float(run.speed_share.max()):.6f}")


def _synthetic_success(run: xr.Dataset, *, noise: float) -> Estimate:
    if noise not in run.loss_noise.values:
        return Estimate.unresolved(f"The noise {noise:g} was not among those tried.")
    tried = int(run.staircases)  # each with two samplings, which are not independent
    share = float(run.right.sel(loss_noise=noise).mean()) / tried
    remark = f"{tried} staircases, each with two samplings"
    return Estimate.share(share * tried, tried, remark) if noise else Estimate(share, 0.0, remark, tried)


for _noise, _bar in SUCCESS_BARS.items():
    claims.add(
        f"synthetic-{_noise:g}",
        f"With loss noise of {_noise:g} of the range, the plateau finder recovers at least {100 * _bar:g} % of "
        "synthetic loss staircases"
        if _noise
        else "Without noise, the plateau finder recovers every synthetic loss staircase",
        quantity="share of all synthetic loss staircases with the number, times, levels and ranks of every "
        "plateau recovered",
        kind="own",
        source="this project's bar; on staircases that were not used to set the finder",
        low=_bar,
        sizes=("default", "paper"),  # the quick run has 10 staircases
        evidence="sample" if _noise else "cases",
        over="synthetic staircases",
        why="Stages that are known by construction show how often the finder of all other entries is right",
        doubt="Losses of real networks have other shapes, and noise that is not independent, than this family",
    )(partial(_synthetic_success, noise=_noise))


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the loss and the spectrum of a middle layer of one network per depth, and the success of the finder."""
    seed = int(run.seed[0])
    first = run.isel(network=(run.seed == seed).values)
    share = run.right / run.staircases
    rows = tuple(
        (float(noise), *(float(one) for one in share.sel(loss_noise=noise).values), int(run.staircases))
        for noise in run.loss_noise.values
    )
    noisy = share.sel(loss_noise=share.loss_noise > 0)
    curves = [
        lines(noisy.sel(sampling=sampling), x="loss_noise", label=f"{sampling} sampling", grouped=True, color=n,
              style="points" if n else "solid")[0]
        for n, sampling in enumerate(run.sampling.values)
    ]  # fmt: skip
    bars = [Mark(at=noise, label=f"bar: {bar:.0%}") for noise, bar in SUCCESS_BARS.items() if noise]
    noise, found = Axis("noise of the loss / range", scale="log"), Axis("share found right", range=(0.0, 1.02))
    return [
        Figure(
            name="runs",
            title="Loss and singular values of deep linear networks, with exactly known levels",
            caption="Training loss against the step of gradient descent, and the largest singular values of the second "
            f"layer, with seed {seed}. Dashed: the loss of the best linear fit of rank 0, 1, 2, ..., from the data "
            "alone. Dotted: where stages begin, found from loss and spectra alone.",
            panels=tuple(panel for n in range(first.sizes["network"]) for panel in _panels(first.isel(network=n))),
            table=_table(run),
        ),
        Figure(
            name="finder",
            title="Success of the finder of stages against the noise of the loss",
            caption="Share of synthetic staircases (2 to 6 stages of varied lengths, heights and widths) that are "
            "found right in every stage, time, level and rank, against the noise of the loss in units of its range.",
            panels=(Panel(x=noise, y=found, marks=(*curves, *bars)),),
            table=Table(columns=("noise", "linear sampling", "geometric sampling", "staircases each"), rows=rows),
        ),
    ]


def _panels(one: xr.Dataset) -> list[Panel]:
    starts = one.stage_start.dropna("stage").values[1:]
    first = int(np.searchsorted(one.step.values, starts[0] / 4)) if len(starts) else 1
    one = one.isel(step=slice(first, None))
    ends, x = one.step.values[[0, -1]], Axis("step", scale="log")
    begins = [Mark(at=float(start), group="stages found", color=7) for start in starts]
    levels = [
        Line(x=ends, y=np.full(2, level), group="best fits of rank k", style="dashed", width=0.9, color=3)
        for level in one.level.values[: int(one.visible)].tolist()
    ]
    values = one.singular_values.sel(layer=2).dropna("value", how="all")
    spectra = lines(values, x="step", hue="value", label="s_{}", grouped=True, color=1)
    loss = lines(one.loss, x="step", label="loss", grouped=True)
    name = f"depth {int(one.depth)}"
    return [
        Panel(title=name, x=x, y=Axis("loss", scale="log"), marks=(*loss, *levels, *begins)),
        Panel(title=f"{name}, layer 2", x=x, y=Axis("singular value"), marks=(*spectra, *begins)),
    ]


def _table(run: xr.Dataset) -> Table:
    rows = []
    for n in range(run.sizes["network"]):
        one = run.isel(network=n)
        for k in range(min(int(one.stages_found), one.sizes["stage"])):
            stage = one.isel(stage=k)
            ranks = ", ".join(str(int(rank)) for rank in stage.stage_layer_rank.values if rank >= 0)
            numbers = (float(stage.stage_loss), float(stage.level))
            rows.append((int(one.depth), int(one.seed), float(stage.stage_start), ranks, *numbers))
    return Table(columns=("depth", "seed", "begins at step", "ranks of layers", "loss", "best fit"), rows=tuple(rows))


entry = Entry(
    "deep-relu/deep-linear",
    "Stages of deep linear networks have exactly known levels and ranks, and are found in runs", citation=CITATION,
    source="Section 5, references 27 and 32", params=Params,
    quick=dict(depths=(3,), deviations=(0.01,), seeds=(0, 1), steps=20_000, staircases=10, noises=(0.0, 1e-3)),
    paper=dict(seeds=tuple(range(20)), staircases=2000), run=run, claims=claims, figures=figures,
    metrics=STAIRCASE_METRICS,
)  # fmt: skip
