"""Conjecture 3: layers of rank one keep rank one until the next saddle.

Networks are trained from the saddle at the origin to the next one: on images, as in Figure 1 (digits, or MNIST with
`--set dataset=mnist`), and on teachers of known bottleneck rank, where the second saddle and the escape from it are
resolved. The conjecture is about layers that are approximately of rank one at the escape; Theorem 3.1 makes these the
deeper ones. Here they are layers 3 and on.

    escape   the time at which the loss has completed 10 % of the first drop
    arrival  the time at which it has completed 95 %
    passage  from escape to arrival
    bulk     singular values up to 1.5 times the largest initial one of the layer: those that training has not changed

If initial weights are not much smaller than learned ones, the unchanged bulk gives a layer of rank one a stable rank of
1.2 to 1.5 (see the table). So rank is measured by s_2/s_1 and by counts above the bulk.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.layer_measurements import (
    NetworkJob,
    TeacherParams,
    image_jobs,
    leave_origin,
    teacher_loss,
    train_jobs,
)
from saddlescope.papers.deep_relu.shared.plateau_statistics import STAIRCASE_METRICS
from saddlescope.papers.deep_relu.shared.training import DATASET, Data, TrainingSetup, concatenate_networks
from saddlescope.papers.image_data import IMAGES
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

DEEP = 3  # layers from here on count as deep

DEEPER = slice(DEEP, None)


class Params(TeacherParams):
    """Parameters: the paper's network on images, narrower, and teachers that train in seconds."""

    dataset: Data = param("digits", DATASET)
    images: int = param(3, "networks of depth 6 on the images; 0 for teachers alone", ge=0)
    images_width: int = param(100, "width of the hidden layers on images", ge=1)
    images_steps: int = param(
        80_000, "SGD steps on images, at learning rate 10 / |theta|^4 and batch 32", ge=1, scale="log"
    )
    depth: int = param(4, "depth of the teachers' students", ge=DEEP)
    deviation: float = param(0.02, "standard deviation of the students' initial weights", gt=0, scale="log")
    rate: float = param(0.1, "factor of the students' learning rate, which is factor |theta|^(2 - L)", gt=0)
    steps: int = param(20_000, "steps of gradient descent on all samples of a teacher", ge=1, scale="log")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train and measure network by network."""
    jobs = []
    for seed in range(params.seed, params.seed + params.teachers):
        for kind in ("relu", "abs"):
            setup = TrainingSetup(
                depth=params.depth, width=params.width, deviation=params.deviation, rate=params.rate,
                steps=params.steps, batch=None, seed=seed,
            )  # fmt: skip
            make_loss = partial(teacher_loss, kind, params.strengths, samples=params.samples, seed=seed)
            jobs.append(NetworkJob(f"{kind} teacher, seed {seed}", make_loss, setup))
    seeds = range(params.seed, params.seed + params.images)
    jobs += image_jobs(params.dataset, seeds, width=params.images_width, steps=params.images_steps, context=context)
    return concatenate_networks(train_jobs(jobs, context)).assign_attrs(data=params.dataset)


def _passages(run: xr.Dataset) -> list[xr.Dataset]:
    """Return, for each network that reaches the second saddle, its own layers from escape to arrival."""
    passages, away = [], leave_origin(run).values
    for n in range(run.sizes["network"]):
        one = run.isel(network=n)
        if int(one.stages_found) < 2 or not away[n]:
            continue
        one = one.sel(layer=slice(1, int(one.depth)))
        high, low = (one.stage_loss.sel(stage=k) for k in (0, 1))
        completed = ((high - one.loss) / (high - low)).values
        escape, arrival = (int(np.argmax(completed >= part)) for part in (0.10, 0.95))
        passages.append(one.isel(mark=slice(escape, arrival + 1)))
    return passages


def _largest(run: xr.Dataset, of: Callable[[xr.Dataset], xr.DataArray]) -> Estimate:
    """Return the largest value over all passages."""
    passages = _passages(run)
    if not passages:
        return Estimate.unresolved("No network reaches the second saddle; take more steps.")
    marks = min(one.sizes["mark"] for one in passages)
    found = f"{len(passages)} of {run.sizes['network']} networks, {marks} or more stored steps in a passage"
    return Estimate.largest([float(of(one).max()) for one in passages], found)


claims = Claims()


@claims.add(
    "rank-one",
    "In deep ReLU networks, layers from the third on gain at most one learned singular value before the second "
        "saddle",
    quantity="largest number of singular values above 1.5 times the largest initial one, layers from the third on, "
        "up to the second saddle", kind="reading", source="Section 5, hypothesis 3: layers of rank one keep rank one",
    high=1.0, sizes=("default", "reduced", "paper"), evidence="cases",
    over="networks",
    why="A singular value moved out of the initial bulk is a learned one, so at most one of them means rank one",
    doubt="The factor 1.5 over the bulk is ours, and these students are narrow and few",
)  # fmt: skip
def _above_bulk(run: xr.Dataset) -> Estimate:
    return _largest(run, lambda one: one.above_bulk.sel(layer=DEEPER))


@claims.add(
    "plateau", "At the second saddle in training deep ReLU networks, all layers from the third on have rank one",
    quantity="largest absolute difference of a layer's rank from one, layers from the third on, on the loss "
        "plateau of the second saddle", kind="reading", source="Section 5, hypothesis 3", high=0.0,
    sizes=("default", "reduced", "paper"), evidence="cases",
    over="networks",
    why="The hypothesis is about the layers at the next saddle, and its plateau is where they can be measured",
    doubt="The rank on a plateau is the finder's, and the teachers were built to have a clear path",
)  # fmt: skip
def _plateau_rank_error(run: xr.Dataset) -> Estimate:
    return _largest(run, lambda one: abs(one.stage_layer_rank.sel(layer=DEEPER, stage=1) - 1))


@claims.add(
    "sharper",
    "Between escape and second saddle, layers from the third on of deep ReLU networks come closer to rank one",
    quantity="largest ratio of s₂/s₁ (second over first singular value) at the second saddle to that at the "
        "escape, layers from the third on", kind="own", source="beyond the paper; this project's bar", high=1.0,
    sizes=("default", "reduced", "paper"), evidence="cases",
    over="networks",
    why="A falling s₂/s₁ says that the layers move towards rank one, instead of only staying near it",
    doubt="The unchanged bulk makes s₂/s₁ fall whenever s₁ grows, without any change of structure",
)  # fmt: skip
def _ratio_growth(run: xr.Dataset) -> Estimate:
    def growth(one: xr.Dataset) -> xr.DataArray:
        ratio = one.second_ratio.sel(layer=DEEPER)
        return ratio.isel(mark=-1) / ratio.isel(mark=0)

    return _largest(run, growth)


@claims.add(
    "activations",
    "In deep ReLU networks, activations of layers from the third on stay near rank one from escape to second saddle",
    quantity="largest share of squared singular values beyond the first of an activation matrix, layers from the "
        "third on, escape to second saddle", kind="own",
    source="extends hypothesis 3 of Section 5 to activations; the bound from runs on other seeds", high=0.01,
    sizes=("default", "reduced", "paper"), evidence="cases",
    over="networks",
    why="Activations carry what a layer passes on, and weights of rank one need not make them so",
    doubt="The bound of 1 % comes from pilots of the same teachers",
)  # fmt: skip
def _activation_tail(run: xr.Dataset) -> Estimate:
    return _largest(run, lambda one: one.tail_activations.sel(layer=DEEPER))


@claims.add(
    "linear",
    "At a deep network's second saddle, the ReLU removes at most 15 % of preactivations from the third layer on",
    quantity="largest |ReLU(Z) - Z| / |Z| of a layer's preactivations Z at the second saddle, layers from the "
        "third on, Frobenius norm", kind="own",
    source="extends hypothesis 3 of Section 5 to the ReLU; the bound from runs on other seeds", high=0.15,
    sizes=("default", "reduced", "paper"), evidence="cases",
    over="networks",
    why="Where the ReLU removes nothing, a layer acts as the identity of a bottleneck",
    doubt="Neurons in the bulk count with their full norm, so the value depends on the initial scale",
)  # fmt: skip
def _nonlinearity(run: xr.Dataset) -> Estimate:
    return _largest(run, lambda one: one.nonlinearity.sel(layer=DEEPER).isel(mark=-1))


@claims.add(
    "second-layer",
    "In deep ReLU networks, layer 2 gains at most one learned singular value before the second saddle",
    quantity="largest number of singular values of layer 2 above 1.5 times its largest initial one, up to the "
        "second saddle, over networks", kind="own",
    source="sharper than hypothesis 3: all layers but the first; Theorem 3.1 does not bring layer 2 near rank one",
    high=1.0, sizes=("default", "reduced", "paper"), evidence="cases",
    over="networks",
    why="Layer 2 is the first that could be exempt like layer 1, so its count shows where rank one begins",
    doubt="Data whose optimal direction needs a second layer of rank two were not tried",
)  # fmt: skip
def _second_layer(run: xr.Dataset) -> Estimate:
    return _largest(run, lambda one: one.above_bulk.sel(layer=slice(2, DEEP - 1)))


@claims.add(
    "first-layer",
    "At the second saddle of deep ReLU networks, the first layer is not of rank one (s₂/s₁ at least 0.15)",
    quantity="smallest ratio s₂/s₁ of second to first singular value of the first layer at the second saddle, over "
        "networks", kind="own",
    source="Section 4 and Figure 1: the first layers have a higher rank; the bound from runs on other seeds",
    low=0.15, sizes=("default", "reduced", "paper"), evidence="cases",
    over="networks",
    why="A second singular value that is not small shows that the exemption of the first layers is needed",
    doubt="Part of s₂ is the unchanged initial bulk, not something that the layer has learned",
)  # fmt: skip
def _first_layer(run: xr.Dataset) -> Estimate:
    largest = _largest(run, lambda one: -one.second_ratio.sel(layer=1).isel(mark=-1))
    return Estimate(-largest.value, largest.uncertainty, largest.remark, largest.n)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw how near the layers are to rank one along the way, and their activations."""
    tasks: dict[str, int] = {}  # the first network of every task that reaches the second saddle
    for n, name in enumerate(run.network.values.tolist()):
        if int(run.stages_found[n]) > 1:
            tasks.setdefault(name.partition(",")[0], n)
    shown = list(tasks.values()) or [0]
    activations = (("tail_activations", "tail energy of Zσ_l", 1e-6), ("nonlinearity", "|Zσ_l − Z_l| / |Z_l|", 0.01))
    return [
        Figure(
            name="ratios",
            title="Ratio of the second to the first singular value of each layer",
            caption="s₂/s₁ of the weights of each layer against the step; dotted lines are drops of the loss: the "
            "escape from the origin, then from the second saddle if the run has it. The table has every network at "
            "the arrival at the second saddle: s₂/s₁, and the stable rank, which the bulk raises.",
            panels=tuple(_panel(run, n, "second_ratio", "s₂/s₁ of W_l", 0.03) for n in shown),
            table=_table(run),
        ),
        Figure(
            name="activations",
            title="Rank and nonlinearity of the activations of each layer",
            caption="Against the step: the tail energy of the activations of each layer, the share of their squared "
            "singular values beyond the first, and the part of the preactivations that the ReLU removes. Below 1e-6 "
            "the tail energies are rounding errors of float32.",
            panels=tuple(_panel(run, n, *one) for n in shown for one in activations),
        ),
    ]


def _panel(run: xr.Dataset, n: int, key: str, label: str, least: float) -> Panel:
    one = run.isel(network=n)
    starts = one.stage_start.dropna("stage").values[1:]
    step = one.step.values
    end = 1.4 * starts[1] if len(starts) > 1 else np.inf
    inside = (step >= (starts[0] / 2 if len(starts) else 1)) & (step <= end)
    curves = [
        Line(x=step[inside], y=one[key].sel(layer=layer).values[inside], group=f"layer {layer}", color=layer - 1)
        for layer in one.layer.values.tolist()
        if one[key].sel(layer=layer).notnull().any()
    ]
    drops = [Mark(at=float(start), group="drops of the loss", color=7) for start in starts if start <= end]
    axis = Axis(label, scale="log", range=(least, 1.0))
    return Panel(title=str(one.network.item()), x=Axis("step"), y=axis, marks=(*curves, *drops))


def _table(run: xr.Dataset) -> Table:
    rows = []
    for one in _passages(run):
        last = one.isel(mark=-1)
        ratios, stable = (", ".join(f"{v:.2f}" for v in last[key].values) for key in ("second_ratio", "stable_rank"))
        counts = ", ".join(str(int(value)) for value in one.above_bulk.max("mark").values)
        rows.append((str(one.network.item()), int(last.step), ratios, stable, counts))
    columns = ("network", "arrival at step", "s₂/s₁ of layers 1..L", "stable ranks", "most above the bulk")
    return Table(columns=columns, rows=tuple(rows))


entry = Entry(
    "deep-relu/conjecture-3", "Conjecture 3: layers of rank one keep rank one until the next saddle",
    citation=CITATION, source="Section 5, hypothesis 3", params=Params,
    quick=dict(images=0, teachers=1, samples=60, width=16, deviation=0.03, steps=8_000),
    reduced=dict(seed=50, dataset="mnist", images_width=200, images_steps=1_200_000),
    paper=dict(dataset="mnist", images=5, images_width=300, images_steps=600_000, teachers=10), run=run, claims=claims,
    data=IMAGES, figures=figures, metrics=STAIRCASE_METRICS,
)  # fmt: skip
