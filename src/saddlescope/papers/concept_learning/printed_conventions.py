"""Figures 2, 3, 11 and 12 in the conventions of the text and of the authors' program.

    printed     the text: sigma is a standard deviation, no cluster at the origin, hidden layers of width 64, learning
                rate 0.1, and no biases, of which the text has none; the loss is a mean over dimensions, as in the
                program
    biases      as printed, with PyTorch's biases
    program     FFTYYY/ConceptDynamics-code at commit d6110b2, run.sh: biases, sigma is a variance, one more cluster at
                the origin, learning rate 0.01 and hidden layers of width 4 at d = 2

Figures 2, 11 and 12 are represented by three tasks: the weaker signal alone, with a stronger signal, and with more
diversity. The program has mu = (2, 4) in Figure 3. The text names none; (1, 2), as in the rest of Figure 2, is used
with it, since at (2, 4) its learning rate is above 2 over the least sharpness of any minimum at d = 2.

    in order    a task of which the concept of larger a_p is half learned first
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Literal

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.figures_2_11_12 import half_times
from saddlescope.papers.concept_learning.shared.perceptron_training import PerceptronTraining, PrintedConcepts, train
from saddlescope.papers.concept_learning.shared.transient_memorization import least, loss_descents
from saddlescope.plot import Axis, Figure, Figures, Line, Panel
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

PRINTED, BIASES, PROGRAM = CONVENTIONS = ("printed", "biases", "program")

_ORDER_TASKS = (((1.0, 2.0), (0.05, 0.05)), ((3.0, 2.0), (0.05, 0.05)), ((1.0, 2.0), (2.0, 0.05)))
_FIRST = np.array([[2], [1], [1]])  # concept of larger a_p in each of them, in all conventions

_SIGNALS = (((1.0, 2.0), (0.05, 0.05)), ((2.0, 4.0), (0.05, 0.05)))

Printed = Literal["figure-2", "figure-11", "figure-12", "figure-3-high", "figure-3-low"]

ORDERED: tuple[Printed, ...] = ("figure-2", "figure-11", "figure-12")
TRANSIENT: tuple[Printed, ...] = ("figure-3-low", "figure-3-high")

_NETWORKS = {
    "figure-2": PerceptronTraining(depth=1),
    "figure-11": PerceptronTraining(depth=2),
    "figure-12": PerceptronTraining(depth=2, relu=True),
    "figure-3-high": PerceptronTraining(depth=4),
    "figure-3-low": PerceptronTraining(depth=4, dim=2, hidden=64),
}


class Params(EntryParams):
    """The paper's training, for many seeds."""

    figures: tuple[Printed, ...] = param((*ORDERED, *TRANSIENT), "figures whose networks are trained", order="distinct")
    seeds: int = param(64, "linear networks of each figure, task and convention", ge=1)
    low_seeds: int = param(256, "networks of Figure 3 at d = 2 in each convention", ge=1)
    relu_seeds: int = param(24, "networks with ReLU of each figure, task and convention", ge=1)
    seed: int = param(20000, "seed of the first network's samples, rotation, start and SGD; the next count up", ge=0)
    samples: int = param(5000, "samples per cluster", ge=64)
    epochs: int = param(40, "epochs of SGD with batch 128", ge=1)
    per_doubling: int = param(24, "records for each doubling of the step", ge=1)


def tasks(figure: str, convention: str) -> tuple[PrintedConcepts, ...]:
    """Return the tasks of a figure in one convention."""
    if figure in ORDERED:
        return _ORDER_TASKS
    return _SIGNALS[1:] if convention == PROGRAM else _SIGNALS[:1]


def network(figure: str, convention: str) -> PerceptronTraining:
    """Return the networks and the training of a figure in one convention."""
    chosen = _NETWORKS[figure]
    if convention != PROGRAM:
        return replace(chosen, origin=False, deviation=True, bias=convention == BIASES)
    return replace(chosen, rate=0.01, hidden=4) if chosen.dim == 2 else chosen


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train the networks of each figure in each convention, and store what the claims need."""

    def train_one(figure: str, convention: str, step: RunContext) -> xr.Dataset:
        chosen = network(figure, convention)
        chosen = replace(chosen, samples=params.samples, epochs=params.epochs, per_doubling=params.per_doubling)
        count = params.low_seeds if chosen.dim == 2 else params.relu_seeds if chosen.relu else params.seeds
        seeds = range(params.seed, params.seed + count)
        found = train(chosen, tasks(figure, convention), seeds, report=step.report)
        if figure in ORDERED:
            first, second = np.moveaxis(half_times(found), -1, 0)
            right = np.where(_FIRST == 1, first < second, second < first)
            return xr.Dataset({figure: ((f"{figure}-task", f"{figure}-seed"), right)})
        found = found.isel(task=0)
        return xr.Dataset({figure: (f"{figure}-seed", loss_descents(found, "seed").descents.values > 1)})

    weights = [5.0 if _NETWORKS[figure].relu else 1.0 for figure in params.figures]
    parts: list[xr.Dataset] = []
    for figure, step in context.steps(params.figures, weights):
        step = replace(step, report=step.note(figure))
        parts.append(step.over({"convention": CONVENTIONS}, partial(train_one, figure), name=figure, join="outer"))
    return xr.merge(parts)


claims = Claims(
    limits="Three tasks stand for Figures 2, 11 and 12, and other seeds, orders of the samples and records for those "
    "of the program. 'Generally speaking' is read as three quarters of the networks. The tasks of a seed are one "
    "trial. Figure 3 shows one network per dimension; the text gives no mu at d = 2, its hidden width only as a "
    "default (64, appendix F.1), and does not exclude biases. Rises below 5 % of the first loss do not count."
)


def _shares(run: xr.Dataset, figures: Sequence[str]) -> list[Estimate]:
    """Return the share of networks that are in order, or transient, for each figure and convention."""
    found = []
    for figure, convention in product(figures, CONVENTIONS):
        right = run[figure].sel(convention=convention)
        by_task = ", ".join(f"{share:.2f}" for share in right.mean(f"{figure}-seed").values.ravel())
        of_seed = right.mean([dim for dim in right.dims if dim != f"{figure}-seed"])
        remark = f"{figure}, {convention}: by task {by_task}"
        found.append(Estimate.share(of_seed.sum(), of_seed.size, remark, over="seeds"))
    return found


def _worst(run: xr.Dataset, figures: Sequence[str]) -> Estimate:
    if not set(figures) <= set(run.data_vars):
        return Estimate.not_tested("The networks were not trained; add their figures.")
    return least(_shares(run, figures))


@claims.reading(
    "order",
    "In the conventions of the text, with and without biases, and of the program, at least three quarters of the "
    "networks of Figures 2, 11 and 12 learn the concept of larger second moment first",
    "Section 3.1: 'generally speaking, the model prefers direction that has a stronger signal and more diverse data'",
    low=0.75,
)
def _least_order(run: xr.Dataset) -> Estimate:
    """Share of networks past 1/2 for good first along the concept of larger a_p, least figure and convention."""
    return _worst(run, ORDERED)


@claims.reading(
    "high",
    "In no convention does the loss of a four-layer linear network at d = 64 fall, rise by over 5 %, and fall again",
    "Section 3.3: 'does not actually exhibit non-monotonic behavior'; the level is this project's",
    high=0.0,
)
def _transient_number(run: xr.Dataset) -> Estimate:
    """Number of four-layer linear networks at d = 64 whose loss falls, rises and falls again, over conventions."""
    if "figure-3-high" not in run:
        return Estimate.not_tested("Figure 3 was left out.")
    return Estimate.number(run["figure-3-high"].values.ravel(), over="networks")


@claims.extension(
    "low",
    "In each of three conventions, at least a tenth of four-layer linear networks at d = 2 memorize transiently",
    "Figures 2 (c) and 3, one network; a tenth, and μ = (1, 2) where the text gives none: this project",
    low=0.1,
)
def _least_transient(run: xr.Dataset) -> Estimate:
    """Share of four-layer linear networks at d = 2 whose loss falls, rises and falls again, least convention."""
    return _worst(run, TRANSIENT[:1])


def figures(run: xr.Dataset) -> Figures:
    """Draw the share of networks in order, or transient, in each convention."""
    trained = [figure for figure in (*ORDERED, *TRANSIENT) if figure in run]
    shares = np.reshape([each.value for each in _shares(run, trained)], (len(trained), len(CONVENTIONS)))
    at = np.arange(len(trained))
    marks = [
        Line(x=at, y=shares[:, k], group=name, color=k, style="points", width=5.0) for k, name in enumerate(CONVENTIONS)
    ]
    y = Axis("share of networks", range=(-0.03, 1.03))
    yield Figure(
        name="conventions",
        title="Networks in order, and transient ones, in the conventions of the text and of the program",
        caption=f"From left to right: {', '.join(trained)}. Share of networks that learn the concept of larger a_p "
        "first (Figures 2, 11 and 12) or memorize transiently (Figure 3).",
        panels=(Panel(x=Axis("figure"), y=y, marks=tuple(marks)),),
    )


entry = Entry(
    "concept-learning/printed-conventions",
    "Figures 2, 3, 11 and 12 in the conventions of the text and of the authors' program",
    source="Figures 2, 3, 11, 12, F.1",
    quick=dict(figures=("figure-3-low",), low_seeds=2, samples=256, epochs=20, per_doubling=8),
)
