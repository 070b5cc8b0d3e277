"""Conjecture 3: layers of rank one keep rank one until the next saddle.

Networks are trained from the saddle at the origin to the next one: on images, as in Figure 1 (digits, or MNIST with
`--set dataset=mnist`), and on teachers of known bottleneck rank, where the second saddle and the escape from it are
resolved. The conjecture is about layers that are approximately of rank one at the escape; Theorem 3.1 makes these the
deeper ones. Here they are layers 3 and on.

    escape, arrival  the times at which the loss has completed 10 % and 95 % of the first drop
    passage          from escape to arrival
    bulk             singular values up to 1.5 times the largest initial one of the layer
"""

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.shared.layer_measurements import (
    TeacherParams,
    image_jobs,
    leave_origin,
    teacher_job,
    train_jobs,
)
from saddlescope.papers.deep_relu.shared.plateau_statistics import STAIRCASE_METRICS
from saddlescope.papers.deep_relu.shared.training import concatenate_networks
from saddlescope.papers.image_data import IMAGES
from saddlescope.plot import Axis, Figure, Figures, Mark, Panel, Table, lines
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param

DEEP = 3  # layers from here on count as deep

DEEPER = slice(DEEP, None)


class Params(TeacherParams):
    """Parameters: the paper's network on images, narrower, and teachers that train in seconds."""

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
    setup = {"depth": params.depth, "deviation": params.deviation, "rate": params.rate, "steps": params.steps}
    jobs = [
        teacher_job(f"{kind} teacher", kind, params.strengths, params, seed=seed, **setup)
        for seed in range(params.seed, params.seed + params.teachers)
        for kind in ("relu", "abs")
    ]
    seeds = range(params.seed, params.seed + params.images)
    jobs += image_jobs(params.dataset, seeds, width=params.images_width, steps=params.images_steps, context=context)
    return concatenate_networks(train_jobs(jobs, context)).assign_attrs(data=params.dataset)


def _passages(run: xr.Dataset) -> list[xr.Dataset]:
    """Return, for each network that reaches the second saddle, its own layers from escape to arrival."""
    passages, arrive = [], (leave_origin(run) & (run.stages_found >= 2)).values
    for n in np.flatnonzero(arrive):
        one = run.isel(network=n, layer=slice(int(run.depth[n])))
        high, low = one.stage_loss.values[:2]
        completed = ((high - one.loss) / (high - low)).values
        escape, arrival = (int(np.argmax(completed >= part)) for part in (0.10, 0.95))
        passages.append(one.isel(mark=slice(escape, arrival + 1)))
    return passages


def _most_above_bulk(run: xr.Dataset, layers: slice) -> Estimate:
    passages = _passages(run)
    if not passages:
        return Estimate.unresolved("No network reaches the second saddle; take more steps.")
    marks = min(one.sizes["mark"] for one in passages)
    remark = f"{len(passages)} of {run.sizes['network']} networks, {marks} or more stored steps in a passage"
    most = [float(one.above_bulk.sel(layer=layers).max()) for one in passages]
    return Estimate.largest(most, remark, over="networks")


claims = Claims(
    limits="Approximately rank one is read as at most one singular value above 1.5 times the largest initial one, a "
    "factor of this project, from 10 to 95 % of the first drop of the loss; the next plateau is taken for the saddle. "
    "Smaller values can give a stable rank of 1.5 (see the table). Networks are narrow and few: depth 4 on teachers "
    "with a clear path, depth 6 on images. At depth 4 on MNIST layers 2 and 3 can have rank six (`figure-4`)."
)


@claims.reading(
    "rank-one",
    "Up to the next saddle, layers 3 and deeper stay approximately rank one in networks of depth 4 that learn "
    "teachers and of depth 6 that learn digits",
    "Section 5, hypothesis 3; '3 and deeper' is this project's, after Example 1",
    high=1.0,
)
def most_learned_values(run: xr.Dataset) -> Estimate:
    """Largest number of singular values above 1.5 times the largest initial one, in layers from the third on."""
    return _most_above_bulk(run, DEEPER)


@claims.extension(
    "second-layer",
    "Up to the next saddle, layer 2 stays approximately rank one too in networks of depth 4 that learn teachers and "
    "of depth 6 that learn digits",
    "after hypothesis 3, with all layers but the first",
    high=1.0,
)
def most_learned_values_of_the_second(run: xr.Dataset) -> Estimate:
    """Largest number of singular values of layer 2 above 1.5 times its largest initial one."""
    return _most_above_bulk(run, slice(2, DEEP - 1))


def figures(run: xr.Dataset) -> Figures:
    """Draw how near the layers are to rank one along the way, for the first network of each task that gets there."""
    tasks: dict[str, int] = {}
    for n, name in enumerate(run.network.values.tolist()):
        if int(run.stages_found[n]) > 1:
            tasks.setdefault(name.partition(",")[0], n)
    rows = []
    for one in _passages(run):
        last = one.isel(mark=-1)
        ratios, stable = (", ".join(f"{v:.2f}" for v in last[key].values) for key in ("second_ratio", "stable_rank"))
        counts = ", ".join(str(int(value)) for value in one.above_bulk.max("mark").values)
        rows.append((str(one.network.item()), int(last.step), ratios, stable, counts))
    columns = ("network", "arrival at step", "s₂/s₁ of layers 1..L", "stable ranks", "most above the bulk")
    yield Figure(
        name="ratios",
        title="Ratio of the second to the first singular value of each layer",
        caption="s₂/s₁ of the weights of each layer against the step; dotted lines are drops of the loss: the "
        "escape from the origin, then from the second saddle if the run has it. The table has every network at "
        "the arrival at the second saddle: s₂/s₁, and the stable rank, which the bulk raises.",
        panels=tuple(_panel(run.isel(network=n)) for n in tasks.values() or [0]),
        table=Table(columns=columns, rows=tuple(rows)),
    )


def _panel(one: xr.Dataset) -> Panel:
    starts, step = one.stage_start.dropna("stage").values[1:], one.step.values
    end = 1.4 * starts[1] if len(starts) > 1 else np.inf
    inside = (step >= (starts[0] / 2 if len(starts) else 1)) & (step <= end)
    ratios = one.second_ratio.dropna("layer", how="all").isel(mark=inside).assign_coords(mark=step[inside])
    curves = lines(ratios, x="mark", hue="layer", label="layer {}", grouped=True)
    drops = [Mark(at=float(start), group="drops of the loss", color=7) for start in starts if start <= end]
    y = Axis("s₂/s₁ of W_l", scale="log", range=(0.03, 1.0))
    return Panel(title=str(one.network.item()), x=Axis("step"), y=y, marks=(*curves, *drops))


entry = Entry(
    "deep-relu/conjecture-3",
    "Conjecture 3: layers of rank one keep rank one until the next saddle",
    source="Section 5, hypothesis 3",
    quick=dict(images=0, teachers=1, samples=60, width=16, deviation=0.03, steps=8_000),
    reduced=dict(seed=50, dataset="mnist", images_width=200, images_steps=1_200_000),
    paper=dict(dataset="mnist", images=5, images_width=300, images_steps=600_000, teachers=10),
    data=IMAGES,
    metrics=STAIRCASE_METRICS,
)
