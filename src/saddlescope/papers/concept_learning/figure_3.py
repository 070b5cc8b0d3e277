"""Figures 2 (c) and 3: deep networks memorize for a while before they generalise.

Linear networks of four layers with mu = (1, 2) and sigma = (.05, .05) are trained by SGD at d = 64 and d = 2, in the
conventions of `shared.perceptron_training`, for many seeds. Further networks have depths 1 to 5. At d = 2 some networks
see all samples in each step, have wide hidden layers, or have one layer and a small start.

    descents    of the out-of-distribution loss, counted with a hysteresis of 5 % of its start
    transient   memorization: the loss falls, rises, and falls again, each visibly, by more than 5 % of its start: two
                descents or more
    peak        point at which the loss is highest above its lowest value before
    memorizing  the output is nearer to the strongest training cluster than to the test point

At d = 2 the noise of SGD makes ripples of one or two per cent; runs without minibatches have none. The hidden layers
have width d: at d = 2 the text has 64, the authors' program 4 (`printed_conventions`). The paper attributes transient
memorization to the low dimension of the data. By section 4.1 one layer learns monotonically. Equation 4.2 gives this
for a small start, but PyTorch's start is not small at d = 2.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.shared.perceptron_training import PerceptronTraining, train
from saddlescope.papers.concept_learning.shared.transient_memorization import difference_of_shares, loss_descents
from saddlescope.plot import Axis, Figure, Line, Panel, Table, lines
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.metric import Metric
from saddlescope.reproduction.parameters import EntryParams, param

LOW, HIGH = "low dimension", "high dimension"

WIDE, SMALL, WHOLE = "wide hidden layers", "small start", "without minibatches"  # all in low dimension

WIDE_SGD = "wide hidden layers, minibatches"  # WIDE and WHOLE see all samples in each step

_SMALL_SCALE = 0.01  # of PyTorch's start


class Params(EntryParams):
    """The paper's training, for many seeds, and depths besides the paper's."""

    mu: tuple[float, ...] = param((1.0, 2.0), "signals of the two concepts")
    sigma: tuple[float, ...] = param((0.05, 0.05), "diversities of the two concepts as printed, used as variances")
    low: int = param(2, "low dimension of the data and width of the hidden layers", ge=1)
    high: int = param(64, "high dimension of the data, above the low one")
    depth: int = param(4, "depth of the paper's networks", ge=2)
    depths: tuple[int, ...] = param(
        (1, 2, 3, 4, 5), "compared depths; 1 and the paper's are among them", ge=1, order="increasing"
    )
    seeds: int = param(128, "networks of every kind", ge=1)
    seed: int = param(1000, "seed of the first network's samples, rotation, start and SGD; the next count up", ge=0)
    samples: int = param(5000, "samples per cluster", ge=1)
    epochs: int = param(40, "epochs of SGD with batch 128 and learning rate 0.1", ge=1)
    per_doubling: int = param(64, "records for each doubling of the step", ge=1)

    def check(self) -> None:
        if self.high <= self.low:
            raise InputError(f"high must be above low = {self.low}; got {self.high!r}.")
        if not {1, self.depth} <= set(self.depths):
            raise InputError(f"depths must contain 1 and depth = {self.depth}; got {self.depths!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train one kind of network after the other, all seeds at once."""
    low = PerceptronTraining(
        dim=params.low, depth=params.depth, samples=params.samples, epochs=params.epochs,
        per_doubling=params.per_doubling,
    )  # fmt: skip
    kinds = [(LOW, replace(low, depth=depth)) for depth in params.depths]
    for depth in params.depths[1:]:
        kinds.append((HIGH, replace(low, dim=params.high, depth=depth)))
        kinds.append((WHOLE, replace(low, depth=depth, whole=True)))
    kinds.append((WIDE, replace(low, hidden=params.high, whole=True)))
    kinds.append((SMALL, replace(low, depth=1, scale=_SMALL_SCALE)))
    kinds.append((WIDE_SGD, replace(low, hidden=params.high)))

    def train_kind(kind: str, training: PerceptronTraining, step: RunContext) -> xr.Dataset:
        report, seeds = step.note(f"{kind}, depth {training.depth}"), range(params.seed, params.seed + params.seeds)
        trained = train(training, [(params.mu, params.sigma)], seeds, report=report)
        found = trained.isel(task=0, drop=True).drop_vars("time")
        losses = found[["test_loss", "output", "train_loss"]].assign(loss_descents(found, "seed").data_vars)
        return losses.assign_coords(kind=kind, depth=training.depth)

    parts = []
    for n, (kind, step) in enumerate(context.steps(kinds)):
        parts.append(step.cached(f"kind-{n}", partial(train_kind, *kind, step)))
    context.report(1.0, "done")
    paper = [part for part in parts if int(part.depth) == params.depth and part.kind.item() in (LOW, HIGH)]
    shown = xr.concat([part[["output", "train_loss"]] for part in paper], "dimension")
    shown = shown.rename({"kind": "shown"}).drop_vars(["depth"])
    networks = xr.concat([part.drop_vars(["output", "train_loss"]) for part in parts], "network")
    return xr.merge([networks, shown], combine_attrs="drop").assign_attrs(
        paper_depth=params.depth, mu=params.mu, low=params.low, high=params.high
    )


def select_networks(run: xr.Dataset, kind: str, depth: int | None = None) -> xr.Dataset:
    """Select the networks of one kind and depth, by default the paper's depth."""
    depth = depth or run.attrs["paper_depth"]
    return run.isel(network=((run.kind == kind) & (run.depth == depth)).values).isel(network=0)


def _transient_share(run: xr.Dataset, *, kind: str, depth: int | None = None, none: bool = False) -> Estimate:
    """Return the share of transient networks, or with `none` their number, for statements about all networks."""
    if kind not in run.kind:
        return Estimate.unresolved(f"No networks of the kind {kind!r} were trained; repeat the run.")
    one = select_networks(run, kind, depth)
    turns = (one.descents > 1).values
    remark = f"{turns.sum()} of {len(turns)} networks; largest rise {float(one.rise.max()):.2g}"
    return Estimate.number(turns, remark) if none else Estimate.share(turns.sum(), len(turns), remark)


def _transient_networks(run: xr.Dataset) -> xr.Dataset:
    """Select the transient networks of the paper's depth in low dimension."""
    one = select_networks(run, LOW)
    return one.isel(seed=(one.descents > 1).values)


_NO_TRANSIENT = Estimate.not_tested("No network in low dimension is transient; train more seeds.")

_FIGURE = "Figure 3, section 3.3"

_TRANSIENT = "whose out-of-distribution loss falls, rises, and falls again, each by more than 5 % of its start"

claims = Claims()

claims.add(
    "low-dimension",
    "At least a fifth of deep linear networks in low dimension memorize transiently: out-of-distribution loss falls, "
        "rises, and falls again",
    quantity=f"share of deep linear networks, trained by minibatch SGD at d = 2, {_TRANSIENT}", kind="stand-in",
    source=f"{_FIGURE}; half of the share of seeds 0 to 63, 26 of 64", low=0.2, sizes=("default", "paper"),
    evidence="sample", over="seeds",
    why="Two visible descents of the out-of-distribution loss are what Figure 3 shows for its one low-dimensional "
        "network",
    doubt="Hidden layers have two units, the text has 64 and the program four; other widths have other shares",
)(partial(_transient_share, kind=LOW))  # fmt: skip

claims.add(
    "no-noise",
    "Even under full-batch training, at least 15 % of deep linear networks in low dimension memorize transiently",
    quantity=f"share of deep linear networks, trained on all samples in each step at d = 2, {_TRANSIENT}",
    kind="stand-in", low=0.15,
    source="section 4.2, which explains it by gradient flow; half of the share of seeds 0 to 63, 20 of 64",
    sizes=("default", "paper"),
    evidence="sample", over="seeds",
    why="Without minibatches no noise can make the loss rise, so the share left is due to the descent itself",
    doubt="Full-batch descent at rate 0.1 is not yet a flow, and there is one data law and one width",
)(partial(_transient_share, kind=WHOLE))  # fmt: skip

claims.add(
    "high-dimension",
    "The out-of-distribution loss of deep linear networks in high dimension never falls, rises, and falls again",
    quantity=f"number of deep linear networks, with data dimension far above two, {_TRANSIENT}", kind="reading",
    source=f"{_FIGURE}: does not actually exhibit non-monotonic behavior", high=0.0,
    evidence="cases", over="seeds",
    why="One network with a second visible descent contradicts a statement on all high-dimensional runs",
    doubt="Only d = 64 and one data law are tried, and rises of less than 5 % do not count",
)(partial(_transient_share, kind=HIGH, none=True))  # fmt: skip


@claims.add(
    "memorizing",
    "At temporary loss peaks, at least 80 % of deep networks are nearer the strongest training cluster than the "
        "target",
    quantity="share of deep linear networks (d = 2) with a temporary loss rise whose test output at its peak is "
        "nearer to that cluster", kind="stand-in",
    source="section 3.3: turns toward the training set cluster with the strongest signal; this project's bar",
    low=0.8, sizes=("default", "paper"),
    evidence="sample", over="transient networks",
    why="The output at the peak shows what the network has memorized, and the text names the strongest cluster",
    doubt="Nearer to that cluster than to the test point does not mean close to the cluster",
)  # fmt: skip
def _memorizing(run: xr.Dataset) -> Estimate:
    one = _transient_networks(run)
    if one.sizes["seed"] == 0:
        return _NO_TRANSIENT
    mu = np.array(run.attrs["mu"])
    cluster = np.where(mu == mu.max(), mu, 0.0)
    output = one.peak_output.transpose("seed", "concept").values
    near = np.linalg.norm(output - cluster, axis=1) < np.linalg.norm(output - mu, axis=1)
    return Estimate.share(near.sum(), len(near), f"{near.sum()} of {len(near)} transient networks")


@claims.add(
    "generalising", "At least 80 % of deep networks with a temporary loss rise generalise by the end of training",
    quantity="share of deep linear networks (d = 2) with a temporary rise whose out-of-distribution loss ends below "
        "1 % of its start", kind="stand-in", source="section 3.3: generalizes OOD; the bound is this project's bar",
    low=0.8, sizes=("default", "paper"),
    evidence="sample", over="transient networks",
    why="Memorization is transient only if the loss nearly vanishes after its rise",
    doubt="Networks without a visible rise are left out, and 1 % of the first loss is our bar",
)  # fmt: skip
def _generalising(run: xr.Dataset) -> Estimate:
    one = _transient_networks(run)
    if one.sizes["seed"] == 0:
        return _NO_TRANSIENT
    left = one.test_loss.isel(step=-1) / one.test_loss.isel(step=0)
    return Estimate.share(float((left < 0.01).sum()), left.size, f"{left.size} transient networks")


@claims.add(
    "deeper",
    "In low dimension, linear networks of the largest depth memorize transiently more often than those of two layers",
    quantity=f"share of linear networks, at d = 2, {_TRANSIENT}, at the largest depth minus that at two layers",
    kind="stand-in", source="appendix F: models with more layers are easier to have it", low=0.0,
    sizes=("default", "paper"),
    evidence="sample", over="seeds",
    why="Depth is all that differs between these networks, so the difference of their shares is its effect",
    doubt="With two hidden units, more layers also make the narrow path longer; wide layers may differ",
)  # fmt: skip
def _depth_difference(run: xr.Dataset) -> Estimate:
    depths = sorted({int(depth) for depth in run.depth.values} - {1})
    if len(depths) < 2:
        return Estimate.unresolved("Only one depth above 1 was trained; set depths=1,2,3,4,5.")
    (few, many), (calm_few, calm_many) = (
        [int((select_networks(run, kind, depth).descents > 1).sum()) for depth in (depths[0], depths[-1])]
        for kind in (LOW, WHOLE)
    )
    n = run.sizes["seed"]
    remark = f"{few} of {n} at depth {depths[0]}, {many} at depth {depths[-1]}"
    remark = f"{remark}; without minibatches {calm_few} and {calm_many}"
    return difference_of_shares((many, n), (few, n), remark)


claims.add(
    "one-layer-default",
    "From PyTorch's default start, some one-layer networks' out-of-distribution loss in low dimension falls, rises, "
        "and falls again", quantity=f"number of one-layer linear networks, at d = 2, {_TRANSIENT}", kind="own",
    source="not in the paper, whose one-layer networks have d = 64; the start is not small at d = 2: equation 4.2",
    low=1.0, sizes=("default", "paper"),
    evidence="cases", over="seeds", needs=("one-layer-small",),
    why="A single network with two visible descents shows that one layer is not monotone from every start",
    doubt="Minibatch noise might add to the rises, although small starts with the same noise have none",
)(partial(_transient_share, kind=LOW, depth=1, none=True))  # fmt: skip

claims.add(
    "one-layer-small",
    "From a hundredth of PyTorch's start, one-layer networks' out-of-distribution loss never falls, rises, and "
        "falls again", quantity=f"number of one-layer linear networks, at d = 2 from a small start, {_TRANSIENT}",
    kind="reading", source="section 4.1, corrected: the noise term of equation 4.2 must be small", high=0.0,
    evidence="cases", over="seeds",
    why="Equation 4.2 is monotone where the part of the initial weights is negligible, as a hundredth of the default "
        "makes it",
    doubt="At a hundredth of the default any effect of the start is below the visible level",
)(partial(_transient_share, kind=SMALL, depth=1, none=True))  # fmt: skip

claims.add(
    "width",
    "Under full-batch training, at most 10 % of deep linear networks with wide hidden layers memorize transiently "
        "in low dimension",
    quantity=f"share of deep linear networks, with hidden layers much wider than d = 2, {_TRANSIENT}", kind="own",
    source="this project's, against section 3.3, which names the dimension; bound from runs of symmetric networks",
    high=0.1, sizes=("default", "paper"),
    evidence="sample", over="seeds", needs=("low-dimension",),
    why="Only the hidden width differs from the networks that memorize, so a small share is the effect of width",
    doubt="PyTorch's start depends on the width too, so wide layers also begin elsewhere",
)(partial(_transient_share, kind=WIDE))  # fmt: skip

claims.add(
    "width-sgd",
    "Under minibatch SGD, at most 10 % of deep linear networks with wide hidden layers memorize transiently in low "
        "dimension",
    quantity=f"share of deep linear networks, with hidden layers much wider than d = 2, {_TRANSIENT}", kind="own",
    source="the claim `width` as first posed, with ripples of SGD counted as rises; the same bound", high=0.1,
    sizes=("default", "paper"),
    evidence="sample", over="seeds", needs=("low-dimension",),
    why="Minibatches are the paper's training; beside full-batch descent the share shows whether their noise undoes "
        "the effect of width",
    doubt="With the text's data, which have no cluster at the origin, wide networks memorize far more often",
)(partial(_transient_share, kind=WIDE_SGD))  # fmt: skip

metrics = (
    Metric(
        name="descents", quantity="descents of the loss in low dimension, mean over seeds",
        statistic=lambda run: float(select_networks(run, LOW).descents.mean()),
    ),
    Metric(
        name="transient", quantity="share of networks in low dimension whose loss rises between descents",
        statistic=lambda run: float((select_networks(run, LOW).descents > 1).mean()),
    ),
    Metric(
        name="rise", quantity="largest rise of the loss in low dimension over its start, mean over seeds",
        statistic=lambda run: float(select_networks(run, LOW).rise.mean()),
    ),
    Metric(
        name="final_loss", quantity="final loss out of distribution in low dimension, mean over seeds",
        statistic=lambda run: float(select_networks(run, LOW).test_loss.isel(step=-1).mean()), scale="log",
    ),
)  # fmt: skip


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw outputs, losses and the role of depth, with a table of all networks."""
    depth, low, high = (run.attrs[name] for name in ("paper_depth", "low", "high"))
    return [
        Figure(
            name="transient",
            title="Transient memorization by dimension and depth",
            caption=f"Left: output at the test point of one network of {depth} layers per dimension, with points "
            f"evenly spaced in the logarithm of the step; at d = {low}, the transient one of median rise. "
            "Middle: loss at the test point over its start, for up to 12 networks per dimension. Right: share of the "
            "networks whose loss falls, rises, and falls again, against depth.",
            panels=(_plane(run, f"d = {low}", f"d = {high}"), _losses(run), _depths(run, f"d = {low}", f"d = {high}")),
            columns=3,
            table=_table(run),
        )
    ]


def _plane(run: xr.Dataset, *names: str) -> Panel:
    one = select_networks(run, LOW)
    rise = np.where(one.descents > 1, one.rise, np.nan)
    none = np.isnan(rise).all()
    shown = int(np.argmax(one.rise.values) if none else np.nanargmin(abs(rise - np.nanmedian(rise))))
    mu, marks = np.array(run.attrs["mu"]), []
    for k, (kind, name) in enumerate(zip((LOW, HIGH), names, strict=True)):
        output = run.output.isel(dimension=(run.shown == kind).values).isel(dimension=0, seed=shown)
        x, y = output.transpose("concept", "step").values
        marks.append(Line(x=x, y=y, group=name, color=k, width=1.2, opacity=0.6))
        marks.append(Line(x=x[::8], y=y[::8], group=name, color=k, style="points", width=1.5))
    goal, clusters = mu[:, None], np.concatenate([np.diag(mu), np.zeros((2, 1))], axis=1)
    marks.append(Line(x=goal[0], y=goal[1], label="test point", color=2, style="points", width=6.0))
    marks.append(Line(x=clusters[0], y=clusters[1], label="training clusters", color=3, style="points", width=6.0))
    return Panel(title="output", x=Axis("concept 1"), y=Axis("concept 2"), marks=tuple(marks))


def _losses(run: xr.Dataset) -> Panel:
    marks = []
    for kind, of in ((LOW, "low"), (HIGH, "high")):
        loss = select_networks(run, kind).test_loss.isel(seed=slice(12))
        later, name = (loss / loss.isel(step=0)).isel(step=slice(1, None)), f"d = {run.attrs[of]}"
        marks += lines(later, x="step", hue="seed", label=name, grouped=True, color=None, width=1.0, opacity=0.7)
    depth = run.attrs["paper_depth"]
    y = Axis("loss over its start")
    return Panel(title=f"depth {depth}", x=Axis("step", scale="log"), y=y, marks=tuple(marks))


def _depths(run: xr.Dataset, low: str, high: str) -> Panel:
    marks = []
    for kind, group, color in ((LOW, low, 0), (HIGH, high, 1), (WHOLE, f"{low}, no minibatches", 4)):
        of_kind = run.isel(network=(run.kind == kind).values)
        line = partial(Line, x=of_kind.depth.values, y=(of_kind.descents > 1).mean("seed").values, color=color)
        marks += [line(group=group, width=2.0), line(group=group, style="points", width=3.0)]
    wide = select_networks(run, WIDE)
    share = np.atleast_1d(float((wide.descents > 1).mean()))
    label = f"{low}, no minibatches, hidden layers of {run.attrs['high']}"
    marks.append(Line(x=np.atleast_1d(int(wide.depth)), y=share, label=label, color=5, style="points", width=5.0))
    y = Axis("share of transient networks", range=(-0.02, 1.02))
    return Panel(title="role of depth", x=Axis("depth"), y=y, marks=tuple(marks))


def _table(run: xr.Dataset) -> Table:
    rows = []
    for n in range(run.sizes["network"]):
        one = run.isel(network=n)
        counts = one.descents.values
        left = one.test_loss.isel(step=-1) / one.test_loss.isel(step=0)
        rows.append(
            (
                str(one.kind.item()), int(one.depth), *(int((counts == k).sum()) for k in (0, 1, 2)),
                int((counts > 2).sum()), float(one.rise.median()), float(one.rise.max()),
                float(left.median()),
            )
        )  # fmt: skip
    columns = (
        "networks", "depth", "no descent", "one", "two", "more", "rise over the first loss, median", "largest",
        "loss left at the end, median",
    )  # fmt: skip
    return Table(columns=columns, rows=tuple(rows))


entry = Entry(
    "concept-learning/figure-3", "Figures 2 (c) and 3: deep networks memorize for a while before they generalise",
    citation=CITATION, source="Figures 2 (c) and 3, section 3.3", params=Params,
    quick=dict(high=24, depths=(1, 4), seeds=8, samples=1000, epochs=50, per_doubling=16), run=run, claims=claims,
    figures=figures, metrics=metrics,
)  # fmt: skip
