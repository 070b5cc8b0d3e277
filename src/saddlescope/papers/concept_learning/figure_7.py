"""Figure 7: in which order a ReLU network learns the points of a cube of concepts.

Two-layer ReLU networks at d = 64, four concepts, mu = (1, 2, 3, 4), sigma = 1/2, by SGD in the conventions of
`shared.perceptron_training`; the loss at all 16 test points that combine some of the clusters' means.

    point v    in {0, 1}^4, the sum of the means with v_p = 1; u <= v where that holds for every component
    loss(v)    |f(x^(v)) - x^(v)|^2, at one point
    B.2        u <= v implies loss(u) <= loss(v): what combines fewer concepts is learned better. The text has [n], the
               components of an index are [s]. It says "strictly", which is looked at with a tolerance of
    tolerance  a part of loss(v) at the start, by which loss(u) may be above loss(v)
    learned    the epoch from which on loss(v) stays below 1, at which the paper's colours are truncated
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.shared.perceptron_training import PerceptronTraining, train
from saddlescope.plot import Axis, Figure, Line, Panel
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

_TRUNCATED = 1.0  # losses in the paper's picture

_LEVELS = ((0.0, 0.1, "loss below .1"), (0.1, 0.4, ".1 to .4"), (0.4, 1.0, ".4 to 1"), (1.0, float("inf"), "1 or more"))

_SHOWN = (1, 2, 3, 5, 7, 10)  # epochs whose graphs are drawn; the paper has 1, 3, 5


class Params(EntryParams):
    """The paper's task and training, for eight seeds."""

    mu: tuple[float, ...] = param((1.0, 2.0, 3.0, 4.0), "signals")
    sigma: float = param(0.5, "of every concept, as printed, used as a variance", gt=0)
    dim: int = param(64, "d, and the width of the hidden layer")
    seeds: int = param(8, "networks", ge=1)
    seed: int = param(0, "of the first one's samples, rotation, start and SGD; the others have the next ones", ge=0)
    samples: int = param(5000, "of each cluster", ge=1)
    epochs: int = param(40, "of SGD with batch 128 and learning rate 0.1", ge=1)
    marks: int = param(5, "in an epoch", ge=1)

    def check(self) -> None:
        if len(self.mu) < 2 or not all(0 < value < float("inf") for value in self.mu):
            raise InputError(f"mu must be two or more positive numbers; got {self.mu!r}.")
        parameter_checks.require_at_least(len(self.mu), self, "dim")
        if (len(self.mu) + 1) * self.samples // 128 < self.marks:
            raise InputError(
                f"samples must make an epoch of at least marks={self.marks!r} steps; got {self.samples!r}."
            )


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train all networks at once."""
    per_epoch = (len(params.mu) + 1) * params.samples // 128
    training = PerceptronTraining(
        depth=2, dim=params.dim, relu=True, cube=True, samples=params.samples, epochs=params.epochs,
        every=per_epoch // params.marks,
    )  # fmt: skip
    task = params.mu, (params.sigma,) * len(params.mu)
    seeds = range(params.seed, params.seed + params.seeds)
    found = train(training, [task], seeds, checkpoint=context.scratch / "runs.npz", report=context.report)
    found = found.isel(task=0, drop=True)
    loss = found.test_loss.transpose("seed", "step", "point") * params.dim  # a mean over dimensions before
    return xr.Dataset({"loss": loss, "index": found["index"]}).assign_coords(
        epoch=("step", found.step.values / per_epoch)
    )


def _pairs(run: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return points u and v of all pairs with u <= v, u not v."""
    index = run["index"].transpose("point", "concept").values
    below = np.all(index[:, None] <= index[None], axis=-1) & ~np.eye(len(index), dtype=bool)
    u, v = np.nonzero(below)
    return u, v


def _excess(run: xr.Dataset, *, relative_to: str = "start") -> np.ndarray:
    """Return loss(u) - loss(v) over loss(v) or the largest loss at the start, or loss(v) now: (seed, step, pair)."""
    u, v = _pairs(run)
    loss = run.loss.values
    units = {"start": loss[:, :1, v], "largest": loss[:, :1].max(axis=-1, keepdims=True), "mark": loss[..., v]}
    return (loss[..., u] - loss[..., v]) / units[relative_to]


def _learned(run: xr.Dataset) -> np.ndarray:
    """Return the epoch from which each loss stays below 1, (seed, point); infinite if it does not."""
    above = run.loss.values >= _TRUNCATED
    last = above.shape[1] - np.argmax(above[:, ::-1], axis=1)  # the mark after the last one above
    return np.append(run.epoch.values, np.inf)[np.where(above.any(axis=1), last, 0)]


# The bounds. A pilot on seeds 100 to 103 had .09 of pairs and marks violated at tolerance 0, .0045 at 1 %, none at 5 %;
# no pair learned out of order by more than an epoch; a largest loss of .12 in the end.
def _violated(run: xr.Dataset, *, tolerance: float, relative_to: str = "start") -> Estimate:
    """Return the part of all pairs and marks that violate B.2 by more than the tolerance."""
    excess = _excess(run, relative_to=relative_to)
    broken = excess > tolerance
    marks = float(broken.any(axis=-1).mean())
    return Estimate(
        float(broken.mean()), remark=f"largest excess {float(excess.max()):.3g}; {marks:.0%} of the marks have one"
    )


claims = Claims()

claims.add(
    "tolerance-5",
    "B.2 within 5 % of the loss at the start",
    quantity="part of all pairs and marks that violate it",
    kind="own",
    source="Equation B.2; this project's bar, none",
    high=0.0,
)(partial(_violated, tolerance=0.05))

claims.add(
    "tolerance-5-of-largest",
    "B.2 within 5 % of the largest loss at the start",
    quantity="part of all pairs and marks that violate it",
    kind="printed",
    source="Equation B.2 and the same bar, in the unit of the picture; none in the pilot even at 1 %",
    high=0.0,
)(partial(_violated, tolerance=0.05, relative_to="largest"))

claims.add(
    "tolerance-1",
    "B.2 within 1 % of the loss at the start",
    quantity="part of all pairs and marks that violate it",
    kind="printed",
    source="Equation B.2; .0045 in a pilot on other seeds",
    high=0.01,
)(partial(_violated, tolerance=0.01))

claims.add(
    "strictly",
    "B.2 as printed, which it follows 'strictly'",
    quantity="part of all pairs and marks that violate it",
    kind="printed",
    source="Appendix B, as printed",
    high=0.0,
)(partial(_violated, tolerance=0.0))

claims.add(
    "of-what-is-left",
    "B.2 within 5 % of what is left of the loss, late in training, too",
    quantity="part that violates it",
    kind="printed",
    source="Appendix B, if it is meant of the whole of training",
    high=0.0,
)(partial(_violated, tolerance=0.05, relative_to="mark"))


@claims.add(
    "order",
    "A point is learned after all below it",
    quantity="part of all pairs the other way round by more than an epoch",
    kind="printed",
    source="Appendix B, 'will only be learned after all of its predecessors'; none in the pilot",
    high=0.0,
)
def _out_of_order(run: xr.Dataset) -> Estimate:
    """Return the part of all pairs that are learned in the other order, by more than an epoch."""
    (u, v), learned = _pairs(run), _learned(run)
    if not np.isfinite(learned).all():
        return Estimate.unresolved("Not all points are learned; train for more epochs.")
    late = learned[:, u] - learned[:, v]
    return Estimate(float((late > 1).mean()), remark=f"largest {float(late.max()):.2g} epochs")


@claims.add(
    "last",
    "The point that combines all concepts is learned last",
    quantity="part of the networks",
    kind="own",
    source="Figure 7; this project's bar",
    low=0.9,
)
def _last_point(run: xr.Dataset) -> Estimate:
    """Return the share of networks that learn the test point of all concepts last, or as late as the last."""
    learned = _learned(run)
    return Estimate(float((learned[:, -1] >= learned.max(axis=1)).mean()))


@claims.add(
    "generalising",
    "All points are learned in the end",
    quantity="largest loss of any network",
    kind="printed",
    source="Appendix B; half of where the paper's colours end, .12 in the pilot",
    high=0.5,
)
def _last(run: xr.Dataset) -> Estimate:
    return Estimate(float(run.loss.isel(step=-1).max()), remark=f"{run.sizes['seed']} networks, 16 points each")


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the graphs of Figure 7, the losses of all points, and violations over training."""
    return [_graphs(run), _losses(run)]


def _layout(index: np.ndarray) -> np.ndarray:
    """Return columns by the number of concepts, and rows centred around 0, two apart: (point, 2)."""
    column = index.sum(axis=1)
    row = np.zeros(len(index))
    for number in np.unique(column):
        (at,) = np.nonzero(column == number)
        row[at] = 2 * np.arange(len(at)) - (len(at) - 1)
    return np.stack([column, row], axis=1).astype(float)


def _graphs(run: xr.Dataset) -> Figure:
    index = run["index"].transpose("point", "concept").values
    place, loss = _layout(index), run.loss.mean("seed")
    ends = [(u, v) for u, v in zip(*_pairs(run), strict=True) if place[v, 0] - place[u, 0] == 1]
    gap = np.full(2, np.nan)
    edges = np.concatenate([np.array([place[u], place[v], gap]) for u, v in ends])
    panels = []
    for epoch in [epoch for epoch in _SHOWN if epoch <= float(run.epoch[-1])] or [float(run.epoch[-1])]:
        at = loss.isel(step=int(np.argmin(np.abs(run.epoch.values - epoch)))).values
        marks = [Line(x=edges[:, 0], y=edges[:, 1], color=7, width=0.8, opacity=0.35)]
        for n, (low, high, text) in enumerate(_LEVELS):
            inside = (at >= low) & (at < high)
            marks.append(Line(x=place[inside, 0], y=place[inside, 1], group=text, color=n, style="points", width=5.0))
        x = Axis("concepts combined", range=(-0.4, index.shape[1] + 0.4))
        panels.append(Panel(title=f"after {epoch:g} epochs", x=x, y=Axis(""), marks=tuple(marks)))
    return Figure(
        name="graphs",
        title="Points that combine more concepts are learned later",
        caption="Figure 7: the cube of test points and its edges, each point coloured by its loss, the mean over "
        "networks. The number of concepts combined grows from left to right, from the origin to the test point.",
        panels=tuple(panels),
        columns=3,
    )


def _losses(run: xr.Dataset) -> Figure:
    index = run["index"].transpose("point", "concept").values
    loss, number, epochs = run.loss.mean("seed").values, index.sum(axis=1), run.epoch.values
    curves = tuple(
        Line(x=epochs[1:], y=loss[1:, point], group=f"{number[point]} concepts", color=int(number[point]), width=1.2)
        for point in range(len(index))
    )
    excess = _excess(run)
    violations = tuple(
        Line(x=epochs, y=np.mean(excess > tolerance, axis=(0, 2)), label=f"tolerance {tolerance:.0%}", color=n + 5)
        for n, tolerance in enumerate((0.0, 0.01, 0.05))
    )
    return Figure(
        name="losses",
        title="The loss at all 16 points, and how far it follows their order",
        caption="Left: mean over networks of the loss at every point of the cube, coloured by how many concepts it "
        "combines. Right: the part of all ordered pairs that violate B.2 by more than a tolerance, told in parts of "
        "the larger point's loss at the start.",
        panels=(
            Panel(x=Axis("epoch", scale="log"), y=Axis("loss at a point", scale="log"), marks=curves),
            Panel(x=Axis("epoch"), y=Axis("part of the pairs"), marks=violations),
        ),
    )


entry = Entry(
    "concept-learning/figure-7",
    "Figure 7: in which order a ReLU network learns the points of a cube of concepts",
    citation=CITATION,
    source="Appendix B, equation B.2",
    params=Params,
    quick=dict(seeds=2, samples=2500, epochs=20, marks=4),
    paper=dict(seeds=32),
    run=run,
    claims=claims,
    figures=figures,
)
