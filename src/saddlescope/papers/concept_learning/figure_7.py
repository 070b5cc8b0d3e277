"""Figure 7: order in which a ReLU network learns the points of a cube of concepts.

Two-layer ReLU networks are trained by SGD on four concepts in 64 dimensions, mu = (1, 2, 3, 4), sigma = 1/2, with the
conventions of `shared.perceptron_training`: here the authors' program has no cluster at the origin, as printed. The
loss is recorded at all 16 test points.

    point v      in {0, 1}^4, the sum of the cluster means p with v_p = 1; u <= v if u_p <= v_p for every p
    loss(v)      |f(x^(v)) - x^(v)|^2 at one point
    ordered pair two different points with u <= v: v combines all concepts of u, and more
    B.2          u <= v implies loss(u) <= loss(v): a point that combines fewer concepts is learned better. The paper
                 says "strictly"; here loss(u) may exceed loss(v) by a tolerance, relative to a loss named in the claim
    learned      epoch from which loss(v) stays below 1, where the paper's colours are truncated
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.shared.perceptron_training import PerceptronTraining, train
from saddlescope.plot import Axis, Figure, Line, Panel
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

_TRUNCATED = 1.0  # losses in the paper's picture

_LEVELS = ((0.0, 0.1, "loss below .1"), (0.1, 0.4, ".1 to .4"), (0.4, 1.0, ".4 to 1"), (1.0, float("inf"), "1 or more"))

_SHOWN = (1, 2, 3, 5, 7, 10)  # epochs whose graphs are drawn; the paper has 1, 3, 5


class Params(EntryParams):
    """The paper's task and training, for many seeds."""

    mu: tuple[float, ...] = param((1.0, 2.0, 3.0, 4.0), "signal of each concept", gt=0, least=2)
    sigma: float = param(0.5, "printed sigma of every concept, used as a variance", gt=0)
    dim: int = param(64, "dimension of the data and width of the hidden layer")
    seeds: int = param(40, "number of networks", ge=1)
    seed: int = param(1000, "seed of the first network's samples, rotation, start and SGD; later ones count up", ge=0)
    samples: int = param(5000, "samples of each cluster", ge=1)
    epochs: int = param(40, "epochs of SGD with batch 128 and learning rate 0.1", ge=1)
    marks: int = param(5, "recorded times per epoch", ge=1)

    def check(self) -> None:
        if self.dim < len(self.mu):
            raise InputError(f"dim must be at least {len(self.mu)}, one for each of mu; got {self.dim!r}.")
        if len(self.mu) * self.samples // 128 < self.marks:
            raise InputError(f"samples must make an epoch of at least marks={self.marks} steps; got {self.samples!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train all networks at once."""
    concepts, per_epoch = len(params.mu), len(params.mu) * params.samples // 128
    training = PerceptronTraining(
        depth=2, dim=params.dim, relu=True, cube=True, origin=False, samples=params.samples, epochs=params.epochs,
        every=per_epoch // params.marks,
    )  # fmt: skip
    task, seeds = (params.mu, (params.sigma,) * concepts), range(params.seed, params.seed + params.seeds)
    found = train(training, [task], seeds, checkpoint=context.scratch / "runs.npz", report=context.report)
    found = found.isel(task=0, drop=True)
    loss = found.test_loss.transpose("seed", "step", "point") * params.dim  # a mean over dimensions before
    epochs = found.step.values / per_epoch
    return xr.Dataset({"loss": loss, "index": found["index"]}).assign_coords(epoch=("step", epochs))


def _pairs(run: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the points u and v of all ordered pairs."""
    index = run["index"].transpose("point", "concept").values
    u, v = np.nonzero(np.all(index[:, None] <= index[None], axis=-1) & ~np.eye(len(index), dtype=bool))
    return u, v


def _excess(run: xr.Dataset, relative_to: str = "start") -> np.ndarray:
    """Return loss(u) - loss(v) over loss(v) or the largest loss at the start: (seed, step, pair)."""
    u, v = _pairs(run)
    loss = run.loss.values
    units = {"start": loss[:, :1, v], "largest": loss[:, :1].max(axis=-1, keepdims=True)}
    return (loss[..., u] - loss[..., v]) / units[relative_to]


def _learned(run: xr.Dataset) -> np.ndarray:
    """Return the epoch from which each loss stays below 1, (seed, point); infinite if it does not."""
    above = run.loss.values >= _TRUNCATED
    last = above.shape[1] - np.argmax(above[:, ::-1], axis=1)  # the recorded time after the last one above
    return np.append(run.epoch.values, np.inf)[np.where(above.any(axis=1), last, 0)]


# The bounds. A pilot on seeds 100 to 103 had excesses of .10 of the loss at the start and .013 of the largest one; no
# pair learned out of order by more than .8 of an epoch; a largest loss of .09 in the end.
def _violating(run: xr.Dataset, *, tolerance: float, relative_to: str = "start") -> Estimate:
    excess = _excess(run, relative_to)
    broken = excess > tolerance
    remark = f"of {len(broken)}; {broken.mean():.3g} of pairs and times; largest excess {excess.max():.3g}"
    return Estimate.number(broken.any(axis=(1, 2)), remark)


_NUMBER = (
    "number of networks with a violation at some recorded time, over pairs of test points, one with a subset of the "
    "other's concepts"
)

_BAR = "Equation B.2; the tolerance is this project's bar"

claims = Claims()

claims.add(
    "tolerance-5",
    "Adding concepts to a ReLU network's test point never lowers its loss by over 5 % of the initial loss",
    quantity=_NUMBER, kind="reading", source=_BAR, high=0.0,
    evidence="cases", over="networks",
    why="The inequality is to hold for every pair at every time, so a network that visibly breaks it is an exception",
    doubt="A weak point starts with a small loss, and 5 % of that is little",
)(partial(_violating, tolerance=0.05))  # fmt: skip

claims.add(
    "tolerance-5-of-largest",
    "Adding concepts to ReLU networks' test points never lowers the loss by over 5 % of the largest initial loss",
    quantity=_NUMBER, kind="reading", source=f"{_BAR}; an excess of 1.3 % in a pilot on other seeds", high=0.0,
    evidence="cases", over="networks",
    why="The colours of Figure 7 have one scale for all points, and a twentieth of it is about what a reader sees",
    doubt="The strongest point starts with thirty times the loss of the weakest, so the tolerance is generous",
)(partial(_violating, tolerance=0.05, relative_to="largest"))  # fmt: skip

claims.add(
    "strictly", "Adding concepts to a ReLU network's test point never lowers its loss at any recorded time",
    quantity=_NUMBER, kind="printed", source="Equation B.2, which the order 'strictly' follows, as printed", high=0.0,
    evidence="cases", over="networks",
    why="Printed without a tolerance and called strict, the inequality fails with one reversed pair",
    doubt="Late in training all losses are small, and noise decides their order",
)(partial(_violating, tolerance=0.0))  # fmt: skip


@claims.add(
    "order", "ReLU networks never learn a test point more than an epoch before one with a subset of its concepts",
    quantity="number of networks with two test points of nested concept sets whose point with more concepts is "
        "learned (loss below 1 for good) over an epoch earlier", kind="reading",
    source="Appendix B: 'will only be learned after all of its predecessors'; none in a pilot on other seeds",
    high=0.0,
    evidence="cases", over="networks", needs=("generalising",),
    why="A point is learned after its predecessors if its loss leaves the range of the colours no earlier than theirs",
    doubt="The epoch of tolerance is ours, and delays come close to it; the level 1 is that of the picture",
)  # fmt: skip
def _out_of_order(run: xr.Dataset) -> Estimate:
    (u, v), learned = _pairs(run), _learned(run)
    if not np.isfinite(learned).all():
        return Estimate.unresolved("Not all points are learned; train for more epochs.")
    late = learned[:, u] - learned[:, v]
    return Estimate.number((late > 1).any(axis=1), f"the largest delay is {float(late.max()):.2g} epochs")


@claims.add(
    "last", "At least 90 % of ReLU networks learn the test point that combines all concepts last",
    quantity="share of ReLU networks whose loss falls below 1 for good last, or tied for last, at the test point "
        "of all concepts", kind="reading", source="Figure 7; the share is this project's bar", low=0.9,
    evidence="sample", over="seeds", needs=("generalising",),
    why="The point of all concepts comes last in the partial order, so it must be learned last if the order holds",
    doubt="Its loss also starts highest, so it may pass a fixed level last without any order",
)  # fmt: skip
def _last_point(run: xr.Dataset) -> Estimate:
    learned = _learned(run)
    return Estimate.share(np.sum(learned[:, -1] >= learned.max(axis=1)), len(learned))


@claims.add(
    "generalising", "At the end of training, ReLU networks' loss is at most 0.5 at every combination of concepts",
    quantity="largest final squared error of any ReLU network at any test point, one for each combination of "
        "concepts", kind="reading",
    source="Appendix B; half of the loss at which the paper's colours end, 0.09 in a pilot on other seeds", high=0.5,
    evidence="cases", over="networks",
    why="Small losses at all combinations mean that the whole cube is learned, as in the last graph of the figure",
    doubt="Half of the colour scale is a weak test of generalisation",
)  # fmt: skip
def _last(run: xr.Dataset) -> Estimate:
    return Estimate.largest(run.loss.isel(step=-1).max("point"), f"{run.sizes['point']} points each")


def figures(run: xr.Dataset) -> list[Figure]:
    return [_graphs(run), _losses(run)]


def _graphs(run: xr.Dataset) -> Figure:
    index = run["index"].transpose("point", "concept").values
    number, loss = index.sum(axis=1), run.loss.mean("seed")
    rank = np.array([np.sum(number[:k] == number[k]) for k in range(len(index))])
    place = np.stack([number, 2 * rank - (np.bincount(number)[number] - 1)], axis=1).astype(float)
    ends = [(u, v) for u, v in zip(*_pairs(run), strict=True) if number[v] - number[u] == 1]
    edges = np.concatenate([np.array([place[u], place[v], [np.nan, np.nan]]) for u, v in ends])
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
        title="Loss at every point of the cube of concepts, by epoch",
        caption="Each panel shows the test points and the edges between points that differ in one concept. The number "
        "of concepts combined grows from left (the origin) to right (the point with all concepts). Colours: the loss, "
        "mean over networks.",
        panels=tuple(panels),
        columns=3,
    )


def _losses(run: xr.Dataset) -> Figure:
    number = run["index"].sum("concept").values
    loss, epochs, excess = run.loss.mean("seed").values, run.epoch.values, _excess(run)
    curves = tuple(
        Line(x=epochs[1:], y=loss[1:, point], group=f"{n} concepts", color=int(n), width=1.2)
        for point, n in enumerate(number)
    )
    violations = tuple(
        Line(x=epochs, y=np.mean(excess > tolerance, axis=(0, 2)), label=f"tolerance {tolerance:.0%}", color=n + 5)
        for n, tolerance in enumerate((0.0, 0.01, 0.05))
    )
    return Figure(
        name="losses",
        title="Loss at all points, and violations of their order",
        caption="Left: loss at every point of the cube, mean over networks, coloured by the number of concepts that "
        "the point combines. Right: share of the ordered pairs of points that violate equation B.2 by more than a "
        "tolerance, relative to the initial loss of the point with more concepts.",
        panels=(
            Panel(x=Axis("epoch", scale="log"), y=Axis("loss at a point", scale="log"), marks=curves),
            Panel(x=Axis("epoch"), y=Axis("share of pairs"), marks=violations),
        ),
    )


entry = Entry(
    "concept-learning/figure-7", "Figure 7: order in which a ReLU network learns the points of a cube of concepts",
    citation=CITATION, source="Appendix B, equation B.2", params=Params,
    quick=dict(seeds=2, samples=2500, epochs=30, marks=4), paper=dict(seeds=80), run=run, claims=claims,
    figures=figures,
)  # fmt: skip
