"""Conjecture 4: does the bottleneck rank rise by one at each saddle?.

The paper hopes that gradient descent from small weights searches greedily for a function of low bottleneck rank: rank 1
first, then gradually more, and no more than it takes to fit the data. Students of teachers whose bottleneck rank k is
known are trained to the end, and networks on digits through their first stages. Stages are found from loss and spectra
alone.

    separated   teachers whose inner dimensions have different strengths
    equal       teachers whose k strengths are one and the same number, where two may be learned at once
    rank        of the bottleneck: the rank that the longest run of middle layers shares (`saddlescope.measure`)
    rise        of the rank from one stage to the next
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.layer_measurements import NetworkJob, digits_jobs, train_jobs
from saddlescope.papers.deep_relu.shared.recorded_training import TrainingSetup
from saddlescope.papers.deep_relu.shared.sequence_checks import require_strengths
from saddlescope.papers.deep_relu.shared.staircase_dataset import concatenate_networks
from saddlescope.papers.deep_relu.shared.staircase_metrics import STAIRCASE_METRICS
from saddlescope.papers.deep_relu.shared.teacher_data import teacher_loss
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

_SEPARATED, _EQUAL, _DIGITS = "separated", "equal", "digits"

_FITS = 0.01  # of the loss at the origin: a student with less left fits the data


class Params(EntryParams):
    """Students of two depths that train in seconds; digits with the paper's network, narrower."""

    depths: tuple[int, ...] = param((4, 6), "of the students")
    deviations: tuple[float, ...] = param((0.02, 0.03), "standard deviation of their initial weights, at each depth")
    rates: tuple[float, ...] = param((0.1, 4.0), "of their learning rate rate |theta|^(2 - L), at each depth")
    seed: int = param(0, "of the first network of every kind; the others have the next ones", ge=0)
    teachers: int = param(3, "separated teachers with ReLU, and as many with the absolute value, at each depth", ge=1)
    strengths: tuple[float, ...] = param((3.0, 2.0, 1.2), "of the inner dimensions of separated teachers")
    equal: int = param(4, "ReLU teachers of equal strengths, for students of the first depth", ge=0)
    samples: int = param(200, "of a teacher", ge=1)
    width: int = param(30, "of the students' hidden layers", ge=1)
    steps: int = param(60_000, "of gradient descent on all samples", ge=1)
    digits: int = param(2, "networks of depth 6 on the digits; 0: teachers alone", ge=0)
    digits_width: int = param(60, "of their hidden layers", ge=1)
    digits_steps: int = param(60_000, "of stochastic gradient descent at learning rate 10 / |theta|^4, batch 32", ge=1)

    def check(self) -> None:
        if not self.depths or min(self.depths) < 2:
            raise InputError(f"depths must be one or more integers of at least 2; got {self.depths!r}.")
        for name in ("deviations", "rates"):
            values = getattr(self, name)
            if len(values) != len(self.depths) or not all(0 < one < float("inf") for one in values):
                raise InputError(f"{name} must be {len(self.depths)} positive numbers, one per depth; got {values!r}.")
        require_strengths(self)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train and measure network by network."""
    tasks, jobs = _teacher_jobs(params)
    seeds = range(params.seed, params.seed + params.digits)
    jobs += digits_jobs(seeds, width=params.digits_width, steps=params.digits_steps, context=context)
    tasks += [_DIGITS] * params.digits
    paths = [path.assign(task=task) for path, task in zip(train_jobs(jobs, context), tasks, strict=True)]
    return concatenate_networks(paths).assign_attrs(known_rank=len(params.strengths))


def _teacher_jobs(params: Params) -> tuple[list[str], list[NetworkJob]]:
    """Return the tasks and networks of the students of all teachers."""
    shapes = list(zip(params.depths, params.deviations, params.rates, strict=True))
    alike = len(params.strengths) * (sum(params.strengths) / len(params.strengths),)
    seeds = range(params.seed, params.seed + params.teachers)
    cases = [(_SEPARATED, kind, shape, seed) for shape in shapes for seed in seeds for kind in ("relu", "abs")]
    cases += [(_EQUAL, "relu", shapes[0], seed) for seed in range(params.seed, params.seed + params.equal)]
    jobs = []
    for task, kind, (depth, deviation, rate), seed in cases:
        setup = TrainingSetup(
            depth=depth, width=params.width, deviation=deviation, rate=rate, steps=params.steps, batch=None, seed=seed
        )
        strengths = params.strengths if task == _SEPARATED else alike
        make_loss = partial(teacher_loss, kind, strengths, samples=params.samples, seed=seed)
        jobs.append(NetworkJob(f"{task} {kind} teacher, depth {depth}, seed {seed}", make_loss, setup))
    return [task for task, *_ in cases], jobs


def _ranks(run: xr.Dataset, task: str) -> list[np.ndarray]:
    """Return the ranks of all stages of every network of a task."""
    of_task = run.isel(network=(run.task == task).values)
    return [ranks[ranks >= 0] for ranks in of_task.stage_rank.transpose("network", "stage").values]


def _wrong_rises(run: xr.Dataset, *, task: str) -> Estimate:
    """Return the number of rises of another size than one."""
    ranks = _ranks(run, task)
    rises = np.concatenate([np.diff(one) for one in ranks]) if ranks else np.zeros(0)
    if len(rises) == 0:
        return Estimate.unresolved(f"No network of the task {task!r} leaves the origin; take more steps.")
    sizes = ", ".join(f"{int(np.sum(rises == size))} of {size:+d}" for size in np.unique(rises))
    return Estimate(float(np.sum(rises != 1)), remark=f"{len(ranks)} networks; rises: {sizes}")


def _wrong_ends(run: xr.Dataset, *, task: str) -> Estimate:
    """Return the number of networks that fit the data at another rank than their teacher's bottleneck rank."""
    of_task = run.isel(network=(run.task == task).values)
    fits = (of_task.loss.min("mark") < _FITS * of_task.loss.isel(mark=0)).values
    if not fits.any():
        return Estimate.unresolved(f"No network of the task {task!r} fits the data by its last step; take more.")
    wrong = sum(ranks[-1] != run.known_rank for ranks in _ranks(of_task.isel(network=fits), task))
    found = f"{fits.sum()} of {len(fits)} networks fit the data by their last step"
    return Estimate(float(wrong), remark=f"{found}; teachers of rank {run.known_rank}")


_LITERAL = "section 5, hypothesis 4"

claims = Claims()

claims.add(
    "by-one",
    "On teachers of separated strengths the bottleneck rank rises by one at each saddle",
    quantity="rises of another size",
    kind="printed",
    source=_LITERAL,
    high=0.0,
)(partial(_wrong_rises, task=_SEPARATED))

claims.add(
    "stops",
    "It stops at the teacher's bottleneck rank, the least that fits",
    quantity="networks that fit at another",
    kind="printed",
    source=f"{_LITERAL}: stopping at the smallest BN-rank sufficient to fit the data",
    high=0.0,
)(partial(_wrong_ends, task=_SEPARATED))


@claims.add(
    "shared",
    "All middle layers share the rank",
    quantity="part of the stages after the first in which they do",
    kind="printed",
    source="section 5: in bottlenecks all middle layers share one rank; the bound from runs on other seeds",
    low=0.8,
)
def _agreement(run: xr.Dataset) -> Estimate:
    """Return the share of stages after the first in which all middle layers have the rank of the bottleneck."""
    of_task = run.isel(network=(run.task == _SEPARATED).values)
    middle = (of_task.layer > 1) & (of_task.layer < of_task.depth)
    agree = ((of_task.stage_layer_rank == of_task.stage_rank) | ~middle).all("layer")
    stages = (of_task.stage_rank >= 0) & (of_task.stage > 0)
    if not bool(stages.any()):
        return Estimate.unresolved("No student leaves the origin; take more steps.")
    return Estimate(float(agree.where(stages).mean()), remark=f"{int(stages.sum())} stages")


claims.add(
    "equal",
    "The rank rises by one at each saddle even where all strengths are equal",
    quantity="rises of another size",
    kind="printed",
    source=f"{_LITERAL}, taken literally: no exception is made for ties",
    high=0.0,
)(partial(_wrong_rises, task=_EQUAL))

claims.add(
    "equal-stops",
    "With equal strengths, too, it stops at the teacher's bottleneck rank",
    quantity="networks that fit at another",
    kind="printed",
    source=f"{_LITERAL}: stopping at the smallest BN-rank sufficient to fit the data",
    high=0.0,
)(partial(_wrong_ends, task=_EQUAL))

claims.add(
    "digits",
    "On digits every rise of the rank that the runs show is by one",
    quantity="rises of another size",
    kind="printed",
    source=_LITERAL,
    high=0.0,
)(partial(_wrong_rises, task=_DIGITS))

metrics = STAIRCASE_METRICS


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the loss with the rank of each stage, for the first network of every task."""
    first: dict[str, int] = {}
    for n, name in enumerate(run.network.values.tolist()):
        first.setdefault(name.partition(", seed")[0], n)
    return [
        Figure(
            name="ranks",
            title="The bottleneck rank rises by one at each saddle",
            caption="Loss against step, and s_k/s_1 of a middle layer; dotted lines are where stages "
            "begin, with the rank of the bottleneck from there on. The table has the rank of every layer in every "
            "stage of all networks.",
            panels=tuple(panel for n in first.values() for panel in _panels(run.isel(network=n))),
            table=_table(run),
        )
    ]


def _panels(one: xr.Dataset) -> list[Panel]:
    starts, ranks = one.stage_start.dropna("stage").values, one.stage_rank.values
    step = one.step.values
    shown = step >= (starts[1] / 4 if len(starts) > 1 else 1)
    begins = tuple(
        Mark(at=float(start), label=f"rank {rank}") for start, rank in zip(starts[1:], ranks[1:], strict=False)
    )
    layer = (int(one.depth) + 2) // 2
    values = one.singular_values.sel(layer=layer)
    ratios = tuple(
        Line(
            x=step[shown], y=(values.sel(value=k) / values.sel(value=1)).values[shown], group=f"s_{k}/s_1",
            color=k,
        )
        for k in (2, 3, 4)
    )  # fmt: skip
    x = Axis("step", scale="log")
    loss = Line(x=step[shown], y=one.loss.values[shown], group="loss", color=0)
    name = str(one.network.item())
    return [
        Panel(title=name, x=x, y=Axis("loss"), marks=(loss, *begins)),
        Panel(title=f"layer {layer}", x=x, y=Axis("s_k/s_1", range=(0.0, 1.0)), marks=(*ratios, *begins)),
    ]


def _table(run: xr.Dataset) -> Table:
    rows = []
    for n in range(run.sizes["network"]):
        one = run.isel(network=n)
        for k in one.stage.values[one.stage_rank.values >= 0].tolist():
            stage = one.sel(stage=k)
            layers = ", ".join(str(int(rank)) for rank in stage.stage_layer_rank.values[: int(one.depth)])
            rows.append(
                (
                    str(one.network.item()),
                    k,
                    float(stage.stage_start),
                    float(stage.stage_loss),
                    int(stage.stage_rank),
                    layers,
                )
            )
    columns = ("network", "stage", "begins at step", "loss", "bottleneck rank", "ranks of layers 1..L")
    return Table(columns=columns, rows=tuple(rows))


entry = Entry(
    "deep-relu/conjecture-4",
    "Conjecture 4: does the bottleneck rank rise by one at each saddle?",
    citation=CITATION,
    source="Section 5, hypothesis 4",
    params=Params,
    quick=dict(
        depths=(4,),
        deviations=(0.03,),
        rates=(0.1,),
        teachers=1,
        strengths=(3.0, 2.0),
        equal=0,
        samples=60,
        width=16,
        steps=16_000,
        digits=0,
    ),
    paper=dict(teachers=10, equal=10, width=100, digits=5, digits_width=300, digits_steps=10**6),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
