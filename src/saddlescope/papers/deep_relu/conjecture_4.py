"""Conjecture 4: the bottleneck rank rises gradually, from saddle to saddle.

The paper hopes that gradient descent from small weights searches greedily for a function of low bottleneck rank: rank 1
first, then gradually more, and no more than it takes to fit the data. Students of teachers whose bottleneck rank k is
known are trained to the end, and networks on images (digits, or MNIST with `--set dataset=mnist`) through their first
stages. Stages are found from loss and spectra alone.

    separated  teachers whose inner dimensions have different strengths
    equal      teachers whose k strengths are equal, where two dimensions may be learned at once
    rank       of the bottleneck: the rank that the longest run of middle layers shares (`saddlescope.measure`)
    rise       of the rank from one stage to the next
"""

from itertools import product

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu.shared.layer_measurements import (
    TeacherParams,
    image_jobs,
    leave_origin,
    teacher_job,
    train_jobs,
)
from saddlescope.papers.deep_relu.shared.plateau_statistics import STAIRCASE_METRICS
from saddlescope.papers.deep_relu.shared.training import concatenate_networks
from saddlescope.papers.deep_relu.shared.training_figures import by_network, stage_table
from saddlescope.papers.image_data import IMAGES
from saddlescope.plot import Axis, Figure, Figures, Mark, Panel, lines
from saddlescope.reproduction import Claims, Entry, Estimate, Evidence, RunContext, param

_SEPARATED, _EQUAL, _IMAGES = "separated", "equal", "images"

_FITS = 0.01  # of the loss at the origin: a student with less left fits the data


class Params(TeacherParams):
    """Parameters: students of two depths that train in seconds, and the paper's network on images, narrower."""

    seed: int = param(50, "seed of the first network of each kind; the others have the next ones", ge=0)
    depths: tuple[int, ...] = param((4, 6), "depths of the students", ge=2)
    deviations: tuple[float, ...] = param(
        (0.02, 0.03), "standard deviation of the students' initial weights at each depth", gt=0, scale="log"
    )
    rates: tuple[float, ...] = param(
        (0.1, 4.0), "factor of the students' learning rate at each depth, which is factor |theta|^(2 - L)", gt=0
    )
    equal: int = param(4, "ReLU teachers of equal strengths, for students of the first depth", ge=0)
    steps: int = param(60_000, "steps of gradient descent on all samples of a teacher", ge=1, scale="log")
    images_width: int = param(60, "width of the hidden layers on images", ge=1)
    images_steps: int = param(
        60_000, "SGD steps on images, at learning rate 10 / |theta|^4 and batch 32", ge=1, scale="log"
    )

    def check(self) -> None:
        super().check()
        for name in ("deviations", "rates"):
            if len(values := getattr(self, name)) != len(self.depths):
                raise InputError(f"{name} must be {len(self.depths)} positive numbers, one per depth; got {values!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train and measure network by network."""
    setups = [
        {"depth": depth, "deviation": deviation, "rate": rate, "steps": params.steps}
        for depth, deviation, rate in zip(params.depths, params.deviations, params.rates, strict=True)
    ]
    separated = params.strengths
    alike = len(separated) * (sum(separated) / len(separated),)
    teachers, equal, images = (
        range(params.seed, params.seed + n) for n in (params.teachers, params.equal, params.images)
    )
    cases = [(_SEPARATED, *case, separated) for case in product(setups, teachers, ("relu", "abs"))]
    cases += [(_EQUAL, setups[0], seed, "relu", alike) for seed in equal]
    jobs = [
        teacher_job(f"{task} {kind} teacher, depth {setup['depth']}", kind, strengths, params, seed=seed, **setup)
        for task, setup, seed, kind, strengths in cases
    ]
    jobs += image_jobs(params.dataset, images, width=params.images_width, steps=params.images_steps, context=context)
    tasks = [task for task, *_ in cases] + [_IMAGES] * params.images
    paths = [path.assign(task=task) for path, task in zip(train_jobs(jobs, context), tasks, strict=True)]
    return concatenate_networks(paths).assign_attrs(known_rank=len(separated), data=params.dataset)


def _ranks(run: xr.Dataset) -> list[np.ndarray]:
    """Return the ranks of all stages of every network."""
    return [ranks[ranks >= 0] for ranks in run.stage_rank.transpose("network", "stage").values]


def _wrong_rises(run: xr.Dataset, task: str) -> Estimate:
    of_task = run.isel(network=(run.task == task).values)
    ranks = _ranks(of_task.isel(network=leave_origin(of_task).values))
    rises = np.concatenate([np.diff(one) for one in ranks]) if ranks else np.zeros(0)
    if len(rises) == 0:
        return Estimate.unresolved(f"No network of the task {task!r} leaves the origin; take more steps.")
    sizes = ", ".join(f"{int(np.sum(rises == size))} of {size:+d}" for size in np.unique(rises))
    found = f"{len(ranks)} of {of_task.sizes['network']} networks leave the origin; rises: {sizes}"
    return Estimate(float(np.sum(rises != 1)), 0.0, found, len(ranks), evidence=Evidence.CASES, over="networks")


claims = Claims(
    limits="The paper says that the rank increases gradually and makes no exception of ties; by one is this project's "
    "reading, posed where strengths are separated. On teachers of equal strengths 8 of 11 changes were +1, 2 were +2 "
    "and 1 was 0, and all four students ended at the teacher's rank. The rank is read from middle layers, which share "
    "one on most plateaus, not all (see the table). A rough function of rank 1 fits any finite data: the teacher's "
    "rank is the smallest only among simple ones. On images a plateau need not be a saddle: there by one is an "
    "extension. Students that do not fit, to 1 % of the first loss, are left out of `stops`."
)


@claims.reading(
    "by-one",
    "In students of teachers of strengths 3, 2 and 1.2, the bottleneck rank rises by one from each plateau to the next",
    "Section 5, hypothesis 4: 'the BN-rank increases gradually between each plateau/saddle'",
    high=0.0,
)
def wrong_rises(run: xr.Dataset) -> Estimate:
    """Number of changes of the bottleneck rank from one plateau to the next other than +1."""
    return _wrong_rises(run, _SEPARATED)


@claims.reading(
    "stops",
    "Students that fit a teacher of bottleneck rank 3 end at bottleneck rank 3",
    "Section 5, hypothesis 4: 'stopping at the smallest BN-rank sufficient to fit the data'",
    high=0.0,
)
def wrong_ends(run: xr.Dataset) -> Estimate:
    """Number of networks that fit the data at another bottleneck rank, over teachers of unequal and equal strengths."""
    taught = run.isel(network=(run.task != _IMAGES).values)
    fits = (taught.loss.min("mark") < _FITS * taught.loss.isel(mark=0)).values
    if not fits.any():
        return Estimate.unresolved("No network fits its teacher by its last step; take more steps.")
    wrong = [ranks[-1] != run.known_rank for ranks in _ranks(taught.isel(network=fits))]
    found = f"{fits.sum()} of {len(fits)} networks fit the data by their last step"
    return Estimate.number(wrong, f"{found}; teachers of rank {run.known_rank}", over="networks")


@claims.extension(
    "digits",
    "When networks of depth 6 learn images of digits, the bottleneck rank rises by one from each plateau to the next",
    "Section 5, hypothesis 4, if every plateau is a saddle",
    high=0.0,
)
def wrong_rises_on_images(run: xr.Dataset) -> Estimate:
    """Number of changes of the bottleneck rank from one plateau to the next other than +1."""
    return _wrong_rises(run, _IMAGES)


def figures(run: xr.Dataset) -> Figures:
    """Draw the loss and the spectrum with the rank of each stage, for the first network of every task."""
    networks, first = by_network(run), {}
    for name, one in networks.items():
        first.setdefault(name.partition(", seed")[0], one)
    yield Figure(
        name="ranks",
        title="Loss and singular values with the bottleneck rank of each stage",
        caption="Loss, and s_k/s₁ of a middle layer, against the step; dotted lines are where stages "
        "begin, with the rank of the bottleneck from there on. The table has the rank of every layer in every "
        "stage of all networks.",
        panels=tuple(panel for one in first.values() for panel in _panels(one)),
        table=stage_table(networks),
    )


def _panels(one: xr.Dataset) -> list[Panel]:
    starts, ranks, layer = one.stage_start.dropna("stage").values, one.stage_rank.values, (int(one.depth) + 2) // 2
    one = one.isel(mark=one.step.values >= (starts[1] / 4 if len(starts) > 1 else 1))
    one = one.assign_coords(mark=one.step.values)
    begins = [Mark(at=float(at), label=f"rank {rank}") for at, rank in zip(starts[1:], ranks[1:], strict=False)]
    values = one.singular_values.sel(layer=layer)
    ratios = (values / values.sel(value=1, drop=True)).sel(value=[2, 3, 4])
    curves = lines(ratios, x="mark", hue="value", label=lambda k: f"s{'₀₁₂₃₄'[k]}/s₁", grouped=True, color=2)
    loss = lines(one.loss, x="mark", label="loss", grouped=True)
    x, ratio = Axis("step", scale="log"), Axis("s_k/s₁", range=(0.0, 1.0))
    return [
        Panel(title=str(one.network.item()), x=x, y=Axis("loss"), marks=(*loss, *begins)),
        Panel(title=f"layer {layer}", x=x, y=ratio, marks=(*curves, *begins)),
    ]


entry = Entry(
    "deep-relu/conjecture-4",
    "Conjecture 4: the bottleneck rank rises gradually, from saddle to saddle",
    source="Section 5, hypothesis 4",
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
        images=0,
    ),
    reduced=dict(dataset="mnist", images_width=200, images_steps=1_200_000),
    paper=dict(dataset="mnist", teachers=10, equal=10, width=100, images=5, images_width=300, images_steps=10**6),
    data=IMAGES,
    metrics=STAIRCASE_METRICS,
)
