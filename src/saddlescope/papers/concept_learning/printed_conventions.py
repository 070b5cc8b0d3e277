"""Figures 2, 3, 7 and 11 to 14 in the conventions of the text and of the authors' program.

    printed     the text: sigma is a standard deviation, no cluster at the origin, hidden layers of width 64 (3 in
                Figures 13 and 14), learning rate 0.1, and no biases, of which the text has none; the loss is a mean
                over dimensions, as in the program
    biases      as printed, with PyTorch's biases
    program     FFTYYY/ConceptDynamics-code at commit d6110b2, run.sh: biases, sigma is a variance, one more cluster at
                the origin (none in Figure 7), learning rate 0.01 at d = 2 and 3, hidden layers of width 4 at d = 2

Figures 2, 11 and 12 are represented by three tasks: the weaker signal alone, with a stronger signal, and with more
diversity. The program has mu = (2, 4) in Figure 3. The text names none; (1, 2), as in the rest of Figure 2, is used
with it, since at (2, 4) its learning rate is above 2 over the least sharpness of any minimum at d = 2. The loss is
recorded at geometric times; the program plots it once per epoch.

    in order    a task of which the concept of larger a_p is half learned first
    edge        learning rate over 2 / (L max a_p); above 1, descent on equation 2.1 settles at no minimum
    transient   the loss out of distribution falls, rises, and falls again, each by more than 5 % of its start
    learned     the loss out of distribution ends below 10 % of its start
"""

from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.figures_2_11_12 import half_times
from saddlescope.papers.concept_learning.shared.perceptron_training import (
    PerceptronTraining,
    PrintedConcepts,
    sim_task,
    train,
)
from saddlescope.papers.concept_learning.shared.transient_memorization import loss_descents
from saddlescope.plot import Axis, Figure, Line, Panel, Table
from saddlescope.reproduction.claim import Claims, Estimate, Size
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

PRINTED, BIASES, PROGRAM = CONVENTIONS = ("printed", "biases", "program")

_ORDER_TASKS = (((1.0, 2.0), (0.05, 0.05)), ((3.0, 2.0), (0.05, 0.05)), ((1.0, 2.0), (2.0, 0.05)))
_FIRST = np.array([[2], [1], [1]])  # concept of larger a_p in each of them, in all conventions

_ORDERED = ("figure-2", "figure-11", "figure-12")

_SIGNALS = (((1.0, 2.0), (0.05, 0.05)), ((2.0, 4.0), (0.05, 0.05)))
_CUBE = (((1.0, 2.0, 3.0, 4.0), (0.5,) * 4),)

Printed = Literal["figure-2", "figure-11", "figure-12", "figure-3-high", "figure-3-low", "figure-13", "figure-7"]

_NETWORKS: dict[str, tuple[dict[str, Any], tuple[PrintedConcepts, ...]]] = {
    "figure-2": (dict(depth=1), _ORDER_TASKS),
    "figure-11": (dict(depth=2), _ORDER_TASKS),
    "figure-12": (dict(depth=2, relu=True), _ORDER_TASKS),
    "figure-3-high": (dict(depth=4), _SIGNALS),
    "figure-3-low": (dict(depth=4, dim=2, hidden=64), _SIGNALS),
    "figure-13": (dict(depth=3, dim=3, rotated=False), _SIGNALS),
    "figure-7": (dict(depth=2, relu=True, cube=True), _CUBE),
}

_OVERFLOW = 1e30  # loss of a run that diverged

_TRANSIENT = ("figure-3-low", "figure-3-high", "figure-13")

_SHOWN = 6  # loss curves of each convention in the figure


class Params(EntryParams):
    """The paper's training, for many seeds."""

    figures: tuple[Printed, ...] = param(
        ("figure-2", "figure-11", "figure-12", "figure-3-high", "figure-3-low", "figure-13", "figure-7"),
        "figures whose networks are trained", order="distinct",
    )  # fmt: skip
    seeds: int = param(64, "linear networks of each figure, task and convention", ge=1)
    low_seeds: int = param(256, "networks of Figure 3 at d = 2 in each convention", ge=1)
    relu_seeds: int = param(24, "networks with ReLU of each figure, task and convention", ge=1)
    seed: int = param(20000, "seed of the first network's samples, rotation, start and SGD; the next count up", ge=0)
    samples: int = param(5000, "samples per cluster", ge=64)
    epochs: int = param(40, "epochs of SGD with batch 128", ge=1)
    per_doubling: int = param(24, "records for each doubling of the step", ge=1)


def tasks(figure: str, convention: str) -> tuple[PrintedConcepts, ...]:
    """Return the tasks of a figure in one convention."""
    every = _NETWORKS[figure][1]
    if not figure.startswith("figure-3"):
        return every
    return every[1:] if convention == PROGRAM else every[:1]


def network(figure: str, convention: str, **training: Any) -> PerceptronTraining:
    """Return the networks and the training of a figure in one convention."""
    chosen = PerceptronTraining(**_NETWORKS[figure][0], **training)
    if convention != PROGRAM:
        return replace(chosen, origin=False, deviation=True, bias=convention == BIASES)
    if chosen.dim < 4:
        chosen = replace(chosen, rate=0.01, hidden=4 if chosen.dim == 2 else None)
    return replace(chosen, origin=figure != "figure-7")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train the networks of each figure in each convention, and store what the claims need."""
    training = dict(samples=params.samples, epochs=params.epochs, per_doubling=params.per_doubling)
    kinds = [(figure, convention) for figure in params.figures for convention in CONVENTIONS]

    def train_one(figure: str, convention: str, step: RunContext) -> xr.Dataset:
        chosen = network(figure, convention, **training)
        kind = "low_seed" if figure == "figure-3-low" else "relu_seed" if chosen.relu else "seed"
        seeds = range(params.seed, params.seed + getattr(params, f"{kind}s"))
        found = train(chosen, tasks(figure, convention), seeds, report=step.note(f"{figure}, {convention}"))
        kept = _summary(figure, found).expand_dims(convention=[convention])
        return kept if kind == "seed" else kept.rename(seed=kind)

    parts: dict[str, list[xr.Dataset]] = {}
    weights = [5.0 if network(figure, PRINTED).relu else 1.0 for figure, _ in kinds]
    for (figure, convention), step in context.steps(kinds, weights=weights):
        part = step.cached(f"{figure}-{convention}", partial(train_one, figure, convention, step))
        parts.setdefault(figure, []).append(part)
    context.report(1.0, "done")
    together = [xr.concat(found, "convention", join="outer") for found in parts.values()]
    trained = xr.merge(together, join="exact", combine_attrs="drop")
    linear = [figure for figure, (network, _) in _NETWORKS.items() if not network.get("relu")]
    return trained.assign(edge=("linear", [_edge(figure) for figure in linear])).assign_coords(linear=linear)


def _edge(figure: str) -> float:
    """Return the largest ratio of the rate 0.1 to the edge of stability of equation 2.1, over the printed tasks."""
    printed = network(figure, PRINTED)
    strongest = max(sim_task(printed, task, 0).strengths.max() for task in tasks(figure, PRINTED))
    return printed.rate * printed.depth * float(strongest) / 2


def _summary(figure: str, found: xr.Dataset) -> xr.Dataset:
    """Return what the claims need of the networks of one figure and convention, in variables of the figure's name."""
    loss = found.test_loss.transpose("task", "seed", "step", ...)
    if figure == "figure-7":
        return _named(figure, xr.Dataset({"loss": loss.isel(task=0, drop=True).transpose("seed", "step", "point")}))
    kept = {"left": loss.isel(step=-1) / loss.isel(step=0)}
    if figure in _ORDERED:
        first, second = np.moveaxis(half_times(found), -1, 0)
        kept["ordered"] = xr.DataArray(np.where(_FIRST == 1, first < second, second < first), dims=("task", "seed"))
    else:
        finite = found.assign(test_loss=loss.where(np.isfinite(loss), _OVERFLOW).clip(max=_OVERFLOW))
        found_descents = loss_descents(finite, "task", "seed")
        kept |= {"descents": found_descents.descents, "rise": found_descents.rise}
        kept["curve"] = (loss / loss.isel(step=0)).isel(seed=slice(_SHOWN)).rename(seed="shown").drop_vars("shown")
    return _named(figure, xr.Dataset(kept))


def _named(figure: str, found: xr.Dataset) -> xr.Dataset:
    found = found.drop_vars(["task", "time"], errors="ignore")
    own = {name: f"{figure}-{name}" for name in found.variables if name not in ("seed", "step")}
    own |= {name: f"{figure}-{name}" for name in ("task", "step") if name in found.dims}
    return found.rename(own)


_LARGE: tuple[Size, ...] = ("default", "paper")

_WORDS = {
    PRINTED: ("As printed, without biases", "The text does not exclude biases, nor fix the unit of its loss"),
    BIASES: ("As printed, with PyTorch's biases", "Biases are a reading: the text neither has nor excludes them"),
    PROGRAM: ("In the authors' program", "Other seeds, orders of the samples and records than those of the program"),
}


def _of(run: xr.Dataset, figure: str, name: str, convention: str) -> xr.DataArray | None:
    variable = f"{figure}-{name}"
    return run[variable].sel(convention=convention) if variable in run else None


def _share(run: xr.Dataset, *, convention: str, figures: tuple[str, ...], of: str) -> Estimate:
    """Return the share of networks that are in order, transient or learned; the tasks of a seed are one trial."""
    names = {"ordered": "ordered", "transient": "descents", "learned": "left"}
    found = [_of(run, figure, names[of], convention) for figure in figures]
    pairs = zip(found, figures, strict=True)
    trained = [one.transpose(f"{figure}-task", ...) for one, figure in pairs if one is not None]
    if len(trained) < len(figures):
        return Estimate.not_tested("The networks were not trained; add their figures.")
    rows = np.concatenate(trained)
    right = {"ordered": rows > 0, "transient": rows > 1, "learned": rows < 0.1}[of]
    by_task = ", ".join(f"{value:.2f}" for value in right.mean(axis=1))
    return Estimate.share(right.mean(axis=0).sum(), right.shape[1], f"by task {by_task}")


def _transient_number(run: xr.Dataset, *, convention: str) -> Estimate:
    found = _of(run, "figure-3-high", "descents", convention)
    return Estimate.not_tested("Figure 3 was left out.") if found is None else Estimate.number(found.values.ravel() > 1)


def _cube_violations(run: xr.Dataset, *, convention: str) -> Estimate:
    loss = _of(run, "figure-7", "loss", convention)
    if loss is None:
        return Estimate.not_tested("Figure 7 was left out.")
    losses = loss.transpose("relu_seed", ..., "point").values
    index = np.arange(losses.shape[-1])[:, None] >> np.arange(len(_CUBE[0][0])) & 1  # of `ConceptCube`
    u, v = np.nonzero(np.all(index[:, None] <= index[None], axis=-1) & ~np.eye(len(index), dtype=bool))
    excess = (losses[..., u] - losses[..., v]).max(axis=(1, 2)) / losses[:, 0].max(axis=-1)
    return Estimate.number(excess > 0.05, f"of {len(excess)}; largest excess {excess.max():.3g}")


claims = Claims()

for _convention, (_place, _doubt) in _WORDS.items():
    for _figure, _kind in (("2", "one-layer"), ("11", "two-layer linear"), ("12", "two-layer ReLU")):
        claims.add(
            f"order-{_figure}-{_convention}",
            f"{_place}, most {_kind} networks of Figure {_figure} learn the concept of larger second moment first",
            quantity="share of networks whose output at the test point reaches 1/2 of its target first along the "
                "concept of larger aₚ, mean over three tasks", kind="reading", low=0.75, sizes=_LARGE,
            source=f"Figure {_figure}, section 3.1: 'generally speaking, the model prefers'; three quarters are ours",
            evidence="sample", over="seeds",
            why="The order in which both concepts are half learned is the contour of the trajectory in the text",
            doubt=f"Three tasks stand for each figure, and the bar is ours. {_doubt}",
        )(partial(_share, convention=_convention, figures=(f"figure-{_figure}",), of="ordered"))  # fmt: skip
    claims.add(
        f"low-{_convention}",
        f"{_place}, at least a tenth of Figure 3's networks at d = 2 memorize transiently",
        quantity="share of four-layer linear networks at d = 2 whose out-of-distribution loss falls, rises and falls "
            "again, each by more than 5 % of its start", kind="reading", low=0.1, sizes=_LARGE,
        source="Figures 2 (c) and 3, one network; a figure of something rarer than one in ten would be an exception",
        evidence="sample", over="seeds",
        why="The figure shows one network, so the share of such networks says if the setting can be that of the figure",
        doubt=f"The text gives neither mu nor the hidden width at d = 2. {_doubt}",
    )(partial(_share, convention=_convention, figures=("figure-3-low",), of="transient"))  # fmt: skip
    claims.add(
        f"high-{_convention}",
        f"{_place}, no network of Figure 3 at d = 64 memorizes transiently",
        quantity="number of four-layer linear networks at d = 64 whose out-of-distribution loss falls, rises and falls "
            "again, each by more than 5 % of its start", kind="reading", high=0.0, sizes=_LARGE,
        source="Section 3.3: 'does not actually exhibit non-monotonic behavior'; the level is ours",
        evidence="cases", over="seeds",
        why="Any network with a second visible descent at d = 64 contradicts the sentence",
        doubt=f"Rises below 5 % do not count, nor those after the last step. {_doubt}",
    )(partial(_transient_number, convention=_convention))  # fmt: skip
    claims.add(
        f"figure-13-{_convention}",
        f"{_place}, at least 5 % of Figure 13's three-layer networks in three dimensions memorize transiently",
        quantity="share of three-layer linear networks at d = 3 whose out-of-distribution loss falls, rises and falls "
            "again, each by more than 5 % of its start, mean over both tasks", kind="reading", low=0.05, sizes=_LARGE,
        source="Figures 13 and 14, one network per task; the bar of `figure-13`", evidence="sample", over="seeds",
        why="Both panels show transient networks, which a setting that hardly ever has them cannot explain",
        doubt=f"One in twenty is our bar for a figure of one network. {_doubt}",
    )(partial(_share, convention=_convention, figures=("figure-13",), of="transient"))  # fmt: skip
    claims.add(
        f"learned-{_convention}",
        f"{_place}, at least 90 % of networks in 64 and 3 dimensions generalise",
        quantity="share of the networks of Figure 3 at d = 64 and of Figure 13 whose loss at the test point ends below "
            "a tenth of its start, mean over tasks", kind="reading", low=0.9, sizes=_LARGE,
        source="Section 3.3: 'generalizes OOD'; Figure 14; the bounds are ours", evidence="sample", over="seeds",
        why="The trajectories and losses of the figures end at the test point, so nearly all networks must get there",
        doubt=f"A slow network may arrive after 40 epochs. {_doubt}",
    )(partial(_share, convention=_convention, figures=_TRANSIENT[1:], of="learned"))  # fmt: skip
    claims.add(
        f"learned-low-{_convention}",
        f"{_place}, at least 90 % of Figure 3's networks at d = 2 generalise",
        quantity="share of the four-layer linear networks at d = 2 whose loss at the test point ends below a tenth of "
            "its start", kind="reading", low=0.9, sizes=_LARGE,
        source="Section 3.3: 'generalizes OOD'; Figure 2 (c); the bounds are ours", evidence="sample", over="seeds",
        why="The trajectory and the loss of the figure end at the test point, so nearly all networks must get there",
        doubt=f"The text gives neither mu nor the hidden width at d = 2. {_doubt}",
    )(partial(_share, convention=_convention, figures=("figure-3-low",), of="learned"))  # fmt: skip
    claims.add(
        f"cube-{_convention}",
        f"{_place}, adding concepts never lowers Figure 7's losses by over 5 % of the largest",
        quantity="number of ReLU networks that violate equation B.2 by over 5 % of the largest initial loss, over "
            "pairs of test points and times", kind="reading", high=0.0, sizes=_LARGE,
        source="Equation B.2; the tolerance of `figure-7`", evidence="cases", over="seeds",
        why="Equation B.2 orders all pairs at all times, and the picture's colours resolve a twentieth of their scale",
        doubt=f"The strongest point sets a generous scale. {_doubt}",
    )(partial(_cube_violations, convention=_convention))  # fmt: skip


@claims.add(
    "edge", "With equation 2.1's loss, the printed learning rate lets every linear network settle at a minimum",
    quantity="largest ratio of the learning rate 0.1 to 2 over the least sharpness L max a of a minimum, over figures",
    kind="own", source="F.1 and equation 2.1, without biases; sharpness by `perceptron_loss`", high=1.0,
    evidence="identity",
    why="Descent settles at no minimum whose sharpness is above 2 over the learning rate, whatever the start",
    doubt="Minibatches, biases or a loss averaged over dimensions, none of them printed, move the edge",
)  # fmt: skip
def _largest_edge(run: xr.Dataset) -> Estimate:
    return Estimate(float(run.edge.max()), remark=f"at {run.linear.values[np.argmax(run.edge.values)]}")


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw losses at the test point in each convention, with a table of all shares."""
    panels = []
    for figure in _TRANSIENT:
        if f"{figure}-curve" not in run:
            continue
        marks = []
        for k, convention in enumerate(CONVENTIONS):
            curves = run[f"{figure}-curve"].sel(convention=convention).transpose(f"{figure}-task", "shown", ...)[-1]
            steps = curves[f"{figure}-step"].values
            marks += [Line(x=steps[1:], y=y[1:], group=convention, color=k, opacity=0.7) for y in curves.values]
        y = Axis("loss over its start", range=(0.0, 1.5))
        panels.append(Panel(title=figure, x=Axis("step", scale="log"), y=y, marks=tuple(marks)))
    rows = []
    for claim in claims:
        estimate = claim.statistic(run)
        if estimate.tested:
            rows.append((claim.name, estimate.value, estimate.uncertainty, estimate.remark))
    return [
        Figure(
            name="conventions",
            title="Losses at the test point in the conventions of the text and of the program",
            caption="Losses over their starts of the first networks of Figures 3 and 13, in each convention.",
            panels=tuple(panels) or (Panel(x=Axis("step"), y=Axis("loss"), marks=()),),
            table=Table(columns=("claim", "value", "uncertainty", "remark"), rows=tuple(rows)),
        )
    ]


entry = Entry(
    "concept-learning/printed-conventions",
    "Figures 2, 3, 7 and 11 to 14 in the conventions of the text and of the authors' program", citation=CITATION,
    source="Figures 2, 3, 7, 11 to 14, F.1", params=Params,
    quick=dict(figures=("figure-3-low",), low_seeds=2, samples=256, epochs=20, per_doubling=8), run=run,
    claims=claims, figures=figures,
)  # fmt: skip
