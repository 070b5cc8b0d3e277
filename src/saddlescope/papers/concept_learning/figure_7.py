"""Figure 7: order in which a ReLU network learns the points of a cube of concepts.

Two-layer ReLU networks are trained by SGD on four concepts in 64 dimensions, mu = (1, 2, 3, 4), sigma = 1/2, without a
cluster at the origin. The loss is recorded at all 16 test points.

    program      conventions of the authors' program (`shared.perceptron_training`): biases, sigma is a variance
    text         no biases, sigma is a standard deviation
    point v      in {0, 1}^4, the sum of the cluster means p with v_p = 1; u <= v if u_p <= v_p for every p
    loss(v)      |f(x^(v)) - x^(v)|^2 at one point
    nested pair  two different points with u <= v: v combines all concepts of u, and more
    B.2          u <= v implies loss(u) <= loss(v): a point that combines fewer concepts is learned better
    learned      epoch from which loss(v) stays below 1, where the paper's colours are truncated
"""

from dataclasses import replace

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.shared.perceptron_training import TrainingParams, after_last, train
from saddlescope.plot import Axis, Figure, Figures, Line, Panel
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param

PROGRAM, TEXT = "program", "text"

_TRUNCATED = 1.0  # losses in the paper's picture

_LEARNED = 0.5  # largest final loss of a network that has learned the cube

_LEVELS = ((0.0, 0.1, "loss below .1"), (0.1, 0.4, ".1 to .4"), (0.4, 1.0, ".4 to 1"), (1.0, float("inf"), "1 or more"))

_PRINTED = (3, 5)  # epochs of the figure after which most points are within its colours

_SHOWN = (1, 2, 3, 5, 7, 10)  # epochs whose graphs are drawn; the paper has 1, 3, 5


class Params(TrainingParams):
    """The paper's task and training, for many seeds."""

    mu: tuple[float, ...] = param((1.0, 2.0, 3.0, 4.0), "signal of each concept", gt=0, least=2)
    sigma: float = param(0.5, "printed sigma of every concept", gt=0)
    dim: int = param(64, "dimension of the data and width of the hidden layer")
    seeds: int = param(24, "networks in each convention", ge=1)
    marks: int = param(4, "recorded times per epoch", ge=1)

    def check(self) -> None:
        if self.dim < len(self.mu):
            raise InputError(f"dim must be at least {len(self.mu)}, one for each of mu; got {self.dim!r}.")
        if len(self.mu) * self.samples // 128 < self.marks:
            raise InputError(f"samples must make an epoch of at least marks={self.marks} steps; got {self.samples!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train all networks of either convention at once."""
    per_epoch = len(params.mu) * params.samples // 128
    program = params.training(depth=2, relu=True, cube=True, origin=False, every=per_epoch // params.marks)
    kinds = {PROGRAM: program, TEXT: replace(program, bias=False, deviation=True)}
    task, seeds = (params.mu, (params.sigma,) * len(params.mu)), range(params.seed, params.seed + params.seeds)

    def train_kind(kind: str, step: RunContext) -> xr.Dataset:
        found = train(kinds[kind], [task], seeds, checkpoint=step.scratch / f"{kind}.npz", report=step.report)
        loss = found.test_loss.isel(task=0, drop=True) * params.dim  # a mean over dimensions before
        return xr.Dataset({"loss": loss, "index": found["index"]}).assign_coords(
            epoch=("step", found.step.values / per_epoch)
        )

    made = context.over({"convention": list(kinds)}, train_kind)
    loss = made.loss.transpose("convention", "seed", "step", "point")
    return xr.Dataset({"loss": loss, "index": made["index"].isel(convention=0, drop=True)})


def _pairs(run: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the points u and v of all nested pairs, without the origin, whose loss is that of the biases alone."""
    index = run["index"].transpose("point", "concept").values
    nested = np.all(index[:, None] <= index[None], axis=-1) & ~np.eye(len(index), dtype=bool)
    nested[~index.any(axis=1)] = False
    u, v = np.nonzero(nested)
    return u, v


def _delays(run: xr.Dataset, convention: str) -> np.ndarray:
    """Return by how many epochs u is learned later than v, the largest of each network, (seed,)."""
    above = run.loss.sel(convention=convention).transpose("seed", "point", "step").values >= _TRUNCATED
    learned, (u, v) = np.append(run.epoch.values, np.inf)[after_last(above)], _pairs(run)
    return (learned[:, u] - learned[:, v]).max(axis=1)


claims = Claims(
    limits="Appendix B calls B.2 an observation in the SIM experiment, without a tolerance, and shows one network, "
    "which is not published. B.2 is judged at epochs 3 and 5 of the figure, for networks in the conventions of the "
    "program and of the text, without the point 0000: its loss is that of the biases alone, and 0 without them. The "
    "excesses are at most 1.7 % of the losses at the start. A point is learned when its loss stays below 1, from where "
    "the figure's colours tell losses apart; points of one weak concept start not far above it, and lower levels are "
    "not judged. The order is read from networks in the program's conventions, which made the figure, with an epoch of "
    "tolerance."
)


@claims.extension(
    "strictly",
    "At epochs 3 and 5 of Figure 7, no test point of a two-layer ReLU network has a larger loss than one that combines "
    "all its concepts and more",
    "after equation B.2, an observation on one network, which 'the order of the generalization [...] strictly' follows",
    high=0.0,
)
def _violating(run: xr.Dataset) -> Estimate:
    """Number of networks with a nested pair of points whose losses are reversed at epoch 3 or 5."""
    at = [int(np.argmin(np.abs(run.epoch.values - epoch))) for epoch in _PRINTED]
    (u, v), loss = _pairs(run), run.loss.values
    excess = (loss[:, :, at][..., u] - loss[:, :, at][..., v]).max(axis=(2, 3)) / loss[:, :, 0].max(axis=-1)
    broken = excess > 0
    each = zip(run.convention.values, broken, strict=True)
    counts = ", ".join(f"{row.sum()} of {len(row)} ({name})" for name, row in each)
    remark = f"{counts}; largest excess {excess.max():.2g} of the largest loss at the start"
    return Estimate.number(broken, remark, over="networks")


def learned(run: xr.Dataset) -> bool:
    """Networks in the program's conventions end with a loss of at most 0.5 at every point"""
    return bool((run.loss.sel(convention=PROGRAM).isel(step=-1) <= _LEARNED).all())


@claims.reading(
    "order",
    "Figure 7's networks never learn a test point more than an epoch before one that combines some of its concepts",
    "Appendix B: 'will only be learned after all of its predecessors are all learned'; an epoch is this project's bar",
    high=0.0,
    requires=[learned],
)
def _out_of_order(run: xr.Dataset) -> Estimate:
    """Number of networks with nested points of which that with more concepts is below 1 over an epoch earlier."""
    late, other = _delays(run, PROGRAM), _delays(run, TEXT)
    remark = f"the largest delay is {late.max():.2g} epochs; {other.max():.2g} in the text's conventions"
    return Estimate.number(late > 1, f"of {len(late)}; {remark}", over="networks")


def figures(run: xr.Dataset) -> Figures:
    index = run["index"].transpose("point", "concept").values
    number, loss = index.sum(axis=1), run.loss.sel(convention=PROGRAM).mean("seed")
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
    yield Figure(
        name="graphs",
        title="Loss at every point of the cube of concepts, by epoch",
        caption="Each panel shows the test points and the edges between points that differ in one concept. The "
        "number of concepts combined grows from left (the origin) to right (the point with all concepts). Colours: "
        "the loss, mean over networks in the program's conventions.",
        panels=tuple(panels),
        columns=3,
    )


entry = Entry(
    "concept-learning/figure-7",
    "Figure 7: order in which a ReLU network learns the points of a cube of concepts",
    source="Appendix B, equation B.2",
    quick=dict(seeds=2, samples=2500, epochs=30, marks=3),
    paper=dict(seeds=80),
)
