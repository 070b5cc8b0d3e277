"""Figures 2 (c) and 3: deep networks memorize for a while before they generalise   (Figures 2 (c) and 3, section 3.3)

Four-layer linear networks at d = 64 and d = 2, mu = (1, 2), sigma = (.05, .05), trained by SGD in the conventions of
`shared.perceptron_training`, for many seeds; then depths 1 to 5, and at d = 2 descent without minibatches, the same with wide hidden
layers, and one layer from a small start. One layer at d = 64 is in `figure_2`.

    descents    of the out-of-distribution loss, counted with a hysteresis of 1 % of its start
    transient   network: one with two descents or more, whose loss falls, rises, and falls again
    peak        where its loss stands highest above its lowest value before
    memorizing  the output is nearer to the strongest training cluster than to the test point

At d = 2 the noise of SGD makes ripples of several per cent: what is no ripple is told by the runs without minibatches
and by rises above 5 %. The paper credits the low dimension of the data. Section 4.1 has it that one layer learns
monotonically, which equation 4.2 gives for a small start; PyTorch's start is not small at d = 2.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.shared.perceptron_training import Training, train
from saddlescope.plot import Figure
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.metric import Metric

_HYSTERESIS = 0.01
LARGE = 0.05  # few ripples of SGD rise above this part of the first loss
_SMALL = 0.01  # of PyTorch's start
LOW, HIGH = "low dimension", "high dimension"
WIDE, SMALL, WHOLE = "wide hidden layers", "small start", "without minibatches"  # all in low dimension
WIDE_SGD = "wide hidden layers, minibatches"  # the others of these but one layer see all samples in each step


@dataclass(frozen=True, kw_only=True)
class Params:
    """The paper's training, for many seeds, and depths beside the paper's."""

    mu: tuple[float, ...] = (1.0, 2.0)  # signals
    sigma: tuple[float, ...] = (0.05, 0.05)  # as printed, used as variances
    low: int = 2  # the low dimension d, also the width of the hidden layers
    high: int = 64  # the high one
    depth: int = 4  # L of the paper's networks
    depths: tuple[int, ...] = (1, 2, 3, 4, 5)  # of the study of depth; 1 and the paper's are among them
    seeds: int = 64  # networks of every kind
    seed: int = 0  # of samples, rotation, start and SGD of the first network; the others have the next ones
    samples: int = 5000  # of each cluster
    epochs: int = 40  # of SGD with batch 128 and learning rate 0.1
    per_doubling: int = 64  # marks for each doubling of the step

    def __post_init__(self) -> None:
        parameter_checks.at_least(1, self, "seeds", "epochs", "samples", "per_doubling", "low")
        parameter_checks.at_least(0, self, "seed")
        parameter_checks.at_least(self.low + 1, self, "high")
        if list(self.depths) != sorted({1, self.depth, *self.depths}) or self.depths[0] < 1 or self.depth < 2:
            raise InputError(
                f"depths must be increasing, from 1 on, with depth = {self.depth!r} of at least 2 among them; got "
                f"{self.depths!r}."
            )

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: fewer networks, samples and depths, and a smaller high dimension."""
        return cls(high=24, depths=(1, 4), seeds=8, samples=1000, epochs=50, per_doubling=16)

    @classmethod
    def paper(cls) -> "Params":
        """The default has the paper's sizes."""
        return cls()


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Kind by kind of network, all seeds at once."""
    kinds = _kinds(params)
    parts = []
    for n, (kind, training) in enumerate(kinds):
        report = context.part(n / len(kinds), (n + 1) / len(kinds))
        make = _Trained(params, kind, training, report)
        parts.append(context.cached(f"kind-{n}", make))
    context.report(1.0, "done")
    paper = [part for part in parts if int(part.depth) == params.depth and part.kind.item() in (LOW, HIGH)]
    shown = xr.concat([part[["output", "train_loss"]] for part in paper], "dimension")
    shown = shown.rename({"kind": "shown"}).drop_vars(["depth"])
    networks = xr.concat([part.drop_vars(["output", "train_loss"]) for part in parts], "network")
    return xr.merge([networks, shown], combine_attrs="drop").assign_attrs(
        paper_depth=params.depth, mu=params.mu, low=params.low, high=params.high
    )


def _kinds(params: Params) -> list[tuple[str, Training]]:
    """All kinds of network, with their names."""
    low = Training(
        dim=params.low, depth=params.depth, samples=params.samples, epochs=params.epochs,
        per_doubling=params.per_doubling,
    )  # fmt: skip
    kinds = [(LOW, replace(low, depth=depth)) for depth in params.depths]
    for depth in params.depths[1:]:
        kinds.append((HIGH, replace(low, dim=params.high, depth=depth)))
        kinds.append((WHOLE, replace(low, depth=depth, whole=True)))
    kinds.append((WIDE, replace(low, hidden=params.high, whole=True)))
    kinds.append((SMALL, replace(low, depth=1, scale=_SMALL)))
    return [*kinds, (WIDE_SGD, replace(low, hidden=params.high))]


@dataclass(frozen=True)
class _Trained:
    """Networks of one kind: trained when called."""

    params: Params
    kind: str
    training: Training
    report: Callable[[float, str], None]

    def __call__(self) -> xr.Dataset:

        from saddlescope.measure import find_descents

        params = self.params
        name = f"{self.kind}, depth {self.training.depth}"
        seeds = range(params.seed, params.seed + params.seeds)
        found = (
            train(
                self.training,
                [(params.mu, params.sigma)],
                seeds,
                report=lambda fraction, note: self.report(fraction, f"{name}: {note}"),
            )
            .isel(task=0, drop=True)
            .drop_vars("time")
        )
        losses = found.test_loss.transpose("seed", "step").values.astype(float)
        above = losses - np.minimum.accumulate(losses, axis=1)
        peak = xr.DataArray(np.argmax(above, axis=1), dims="seed")
        return xr.Dataset(
            {
                "test_loss": found.test_loss,
                "descents": ("seed", find_descents(losses, hysteresis=_HYSTERESIS).counts),
                "rise": ("seed", above.max(axis=1) / losses[:, 0]),
                "peak_output": found.output.isel(step=peak),
                "output": found.output,
                "train_loss": found.train_loss,
            }
        ).assign_coords(kind=self.kind, depth=self.training.depth)


def part_of(run: xr.Dataset, kind: str, depth: int) -> xr.Dataset:
    """The networks of one kind and depth."""
    return run.isel(network=((run.kind == kind) & (run.depth == depth)).values).isel(network=0)


def _share(kind: str, depth: int | None = None, *, none: bool = False) -> Callable[[xr.Dataset], Estimate]:
    """Which part of the networks of a kind is transient, by default at the paper's depth; where none is, exactly."""

    def statistic(run: xr.Dataset) -> Estimate:
        if kind not in run.kind:
            return Estimate.unresolved(f"No networks of the kind {kind!r} were trained.")
        one = part_of(run, kind, depth or run.attrs["paper_depth"])
        turns = (one.descents > 1).values
        large = (one.rise.values[turns] > LARGE).sum()
        told = f"{turns.sum()} of {len(turns)} networks, {large} with a rise above {LARGE:.0%}"
        told = f"{told}; largest rise {float(one.rise.max()):.2g}"
        return Estimate(float(turns.mean()), remark=told) if none else Estimate.share(turns.sum(), len(turns), told)

    return statistic


def _transient(run: xr.Dataset) -> xr.Dataset:
    """The transient networks of the paper's depth in low dimension."""
    one = part_of(run, LOW, run.attrs["paper_depth"])
    return one.isel(seed=(one.descents > 1).values)


def _memorizing(run: xr.Dataset) -> Estimate:
    """Which part of the transient networks is nearer to the strongest cluster than to the test point at the peak."""
    one = _transient(run)
    if one.sizes["seed"] == 0:
        return Estimate.unresolved("No network in low dimension is transient; train more seeds.")
    mu = np.array(run.attrs["mu"])
    cluster = np.where(mu == mu.max(), mu, 0.0)
    output = one.peak_output.transpose("seed", "concept").values
    near = np.linalg.norm(output - cluster, axis=1) < np.linalg.norm(output - mu, axis=1)
    return Estimate.share(near.sum(), len(near), f"{near.sum()} of {len(near)} transient networks")


def _generalising(run: xr.Dataset) -> Estimate:
    """Which part of the transient networks ends with a loss below 1 % of its start."""
    one = _transient(run)
    if one.sizes["seed"] == 0:
        return Estimate.unresolved("No network in low dimension is transient; train more seeds.")
    left = one.test_loss.isel(step=-1) / one.test_loss.isel(step=0)
    return Estimate.share(float((left < 0.01).sum()), left.size, f"{left.size} transient networks")


def _deeper(run: xr.Dataset) -> Estimate:
    """The transient part at the largest depth less that at the least above 1, in low dimension."""
    depths = sorted({int(depth) for depth in run.depth.values} - {1})
    if len(depths) < 2:
        return Estimate.unresolved("Only one depth above 1 was trained; set depths=1,2,3,4,5.")
    (few, many), (calm_few, calm_many) = (
        [float((part_of(run, kind, depth).descents > 1).mean()) for depth in (depths[0], depths[-1])]
        for kind in (LOW, WHOLE)
    )
    error = 1.96 * ((few * (1 - few) + many * (1 - many)) / run.sizes["seed"]) ** 0.5
    told = f"{few:.2f} at depth {depths[0]}, {many:.2f} at depth {depths[-1]}"
    return Estimate(many - few, error, remark=f"{told}; without minibatches {calm_few:.2f} and {calm_many:.2f}")


_FIGURE = "Figure 3, section 3.3"

claims = (
    Claim(
        name="low-dimension",
        says="In low dimension deep networks memorize for a while: part of the networks whose out-of-distribution loss "
        "falls, rises, and falls again",
        source=f"{_FIGURE}; the bound is this project's bar, from trial runs of another implementation",
        statistic=_share(LOW),
        low=0.4,
    ),
    Claim(
        name="no-noise",
        says="It is no noise of SGD: the same part where every step sees all samples",
        source="section 4.2, which explains it by gradient flow; the bound is that of SGD",
        statistic=_share(WHOLE),
        low=0.4,
    ),
    Claim(
        name="high-dimension",
        says="In high dimension the loss slows down but never rises: part of the networks in which it does",
        source=f"{_FIGURE}: does not actually exhibit non-monotonic behavior",
        statistic=_share(HIGH, none=True),
        high=0.0,
    ),
    Claim(
        name="memorizing",
        says="Where the loss is highest again, the output has turned to the strongest training cluster: part of the "
        "transient networks that are nearer to it than to the test point",
        source="section 3.3: turns toward the training set cluster with the strongest signal; the bound is this "
        "project's bar",
        statistic=_memorizing,
        low=0.8,
    ),
    Claim(
        name="generalising",
        says="With enough training they generalise: part of the transient networks that end below 1 % of the loss at "
        "the start",
        source="section 3.3: generalizes OOD; the bound is this project's bar",
        statistic=_generalising,
        low=0.8,
    ),
    Claim(
        name="deeper",
        says="Transient memorization comes with depth: transient part of the deepest networks less that of two layers",
        source="appendix F: models with more layers are easier to have it",
        statistic=_deeper,
        low=0.0,
    ),
    Claim(
        name="one-layer",
        says="One layer cannot, as the paper has it without a condition: part of the one-layer networks in low "
        "dimension, from PyTorch's start, whose loss falls, rises, and falls again",
        source="section 4.1: monotonic and rather regular; as printed",
        statistic=_share(LOW, 1, none=True),
        high=0.0,
    ),
    Claim(
        name="one-layer-small",
        says="One layer cannot from a small start: the same from a hundredth of PyTorch's",
        source="section 4.1, corrected: the noise term of equation 4.2 must be small",
        statistic=_share(SMALL, 1, none=True),
        high=0.0,
    ),
    Claim(
        name="width",
        says="It is the width of the hidden layers, not the dimension of the data, that prevents it: transient part of "
        "deep networks in low dimension whose hidden layers are wide, without minibatches",
        source="this project's, against section 3.3, which names the dimension; the bound from trial runs of symmetric "
        "networks",
        statistic=_share(WIDE),
        high=0.1,
    ),
    Claim(
        name="width-sgd",
        says="So it is under SGD, whose ripples are counted: the same part with minibatches",
        source="the claim before it as it was first posed, before the noise of SGD was told apart; the same bound",
        statistic=_share(WIDE_SGD),
        high=0.1,
    ),
)

metrics = (
    Metric(
        name="descents",
        says="descents of the loss in low dimension, mean over seeds",
        statistic=lambda run: float(part_of(run, LOW, run.attrs["paper_depth"]).descents.mean()),
    ),
    Metric(
        name="transient",
        says="share of networks in low dimension whose loss rises between descents",
        statistic=lambda run: float((part_of(run, LOW, run.attrs["paper_depth"]).descents > 1).mean()),
    ),
    Metric(
        name="rise",
        says="largest rise of the loss in low dimension over its start, mean over seeds",
        statistic=lambda run: float(part_of(run, LOW, run.attrs["paper_depth"]).rise.mean()),
    ),
    Metric(
        name="final_loss",
        says="final loss out of distribution in low dimension, mean over seeds",
        statistic=lambda run: float(part_of(run, LOW, run.attrs["paper_depth"]).test_loss.isel(step=-1).mean()),
        scale="log",
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """The paper's two pictures, and the role of depth."""
    from saddlescope.papers.concept_learning.figure_3.figures import figure

    return [figure(run)]
