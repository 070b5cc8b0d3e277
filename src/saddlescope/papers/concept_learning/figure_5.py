"""Figure 5: a minor entry of W makes the loss rise between two descents.

The symmetric two-layer model on two concepts, from a start with all entries of W positive. The paper does not state its
data; the authors' program has μ = (1, 1.5), σ = 0.05 and a third direction without signal, and A² where the paper has
A. Time is that of the gradient flow of equation 4.1, half that of 4.3.

    authors' run  the flow with A² from the start of their program, figure/theory/stages.py, to its end, t = 10; what
                  the paper says of the figure is judged on it
    small start   the flow with A from the one of a batch of small positive starts whose loss rises most
    random starts of two laws, with normal entries of U and with positive ones, and A: shares with two descents, and
                  heights of the rise between them
"""

from functools import partial
from itertools import product

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.shared import two_layer_figures as views
from saddlescope.papers.concept_learning.shared import two_layer_runs as two_layer
from saddlescope.papers.concept_learning.shared.authors_programs import CODE, PROGRAMS
from saddlescope.plot import Axis, Figure, Panel, lines
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

_LAWS = ("normal", "positive")

_SEEN = 0.01  # of the first loss, or of the target of an output: a visible change

_PROGRAM = PROGRAMS["Figure 5"]


class Params(two_layer.TwoLayerParams):
    """One start of a small batch, and the statistics of large ones, on the two concepts of the authors' program."""

    mu: tuple[float, ...] = param((1.0, 1.5), "distance of both clusters from the origin", gt=0, least=2, most=2)
    sigma: tuple[float, ...] = param(
        (0.05, 0.05), "standard deviation of the clusters along each concept", ge=0, least=2
    )
    bound: float = param(0.001, "largest entry of U in the batch of small starts", gt=0)
    batch: int = param(256, "uniform starts, of which the one with the largest rise is shown", ge=1)
    scales: tuple[float, ...] = param(
        (0.1, 0.001, 0.00001),
        "scales of random starts: standard deviation of normal, half the bound of positive entries",
        gt=0, le=1, least=2, scale="log",
    )  # fmt: skip
    starts: int = param(16_384, "random starts of each law and scale", ge=1)
    outputs: int = param(2048, "positive starts of the largest scale whose output is recorded", ge=1)
    seed: int = param(1, "seed of all starts", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow the authors' start and the one with the largest rise, and find the rises of random starts."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.measure import find_descents

    a, x = two_layer.strengths_and_test_point(params.mu, params.sigma)
    follow = partial(symmetric_flows, a, test_point=x, until=params.until, tolerance=1e-8)
    shown, random = context.split(0.1, 0.9)
    shown.report(0.0, "small positive starts")
    batch = params.bound * np.random.default_rng(params.seed).random((params.batch, 2, 2))
    largest = int(np.argmax(find_descents(follow(batch).turning_losses).rises[:, 1:].sum(axis=1)))
    one = two_layer.follow_start(a, x, batch[largest], params.until)
    shape = (len(_LAWS), len(params.scales), params.starts)
    rises, positive = np.empty(shape), np.empty(shape, bool)
    for ((m, scale), (n, law)), step in random.steps(product(enumerate(params.scales), enumerate(_LAWS))):
        step.report(0.0, f"{params.starts} {law} starts of scale {scale:g}")
        rng = np.random.default_rng([params.seed, n, params.scales.index(scale)])
        size = (params.starts, 2, 2)
        starts = scale * rng.standard_normal(size) if law == "normal" else 2 * scale * rng.random(size)
        flows = follow(starts)
        rises[n, m] = find_descents(flows.turning_losses).rises[:, 1:].sum(axis=1) / flows.losses[:, 0]
        positive[n, m] = flows.W[:, 0, 0, 1] > 0
    rng = np.random.default_rng([params.seed, 2])
    times = np.geomspace(1e-3 * params.until, params.until, 200)
    flows = follow(2 * max(params.scales) * rng.random((params.outputs, 2, 2)), record=times)
    outputs = (flows.W @ x)[:, :, int(np.argmin(a))] / x[np.argmin(a)]
    authors = two_layer.authors_run(_PROGRAM)
    context.report(1.0, "done")
    dims = ("law", "scale", "sample")
    statistics = xr.Dataset(
        {
            "rise": (dims, rises, {"long_name": "rise between two descents over the first loss; 0 for one descent"}),
            "positive": (dims, positive, {"long_name": "True if w_12 is positive at the start"}),
            "output_rise": (
                "recorded",
                find_descents(flows.turning_losses).rises[:, 1:].sum(axis=1) / flows.losses[:, 0],
            ),
            "output_fall": ("recorded", (np.maximum.accumulate(outputs, axis=1) - outputs).max(axis=1)),
            "printed_rise": _rise_with_A(),
        },
        coords={"law": list(_LAWS), "scale": list(params.scales)},
    )
    return one.assign(two_layer.errors_against_dop853(one)).merge(statistics).merge(authors)


def _rise_with_A() -> float:  # noqa: N802 - the matrix A
    """Return the largest rise of the loss from the authors' start with A, over the first loss."""
    from saddlescope.flow import symmetric_flows

    flow = symmetric_flows(
        _PROGRAM.strengths, _PROGRAM.start[None], test_point=_PROGRAM.test_point, until=_PROGRAM.end, tolerance=1e-10
    )
    losses = flow.turning_losses[0, : flow.turns[0] + 2]
    return float(np.diff(losses).max() / losses[0])


claims = Claims()

_NO_RISE = Estimate.unresolved("The loss does not rise.")

_SHOWN = f"Figure 5, from {CODE}"


@claims.add(
    "two-descents", "In the authors' run, with all entries of UUᵀ positive at the start, the loss descends twice",
    quantity="number of descents of the out-of-distribution loss, without changes below 1% of the first loss",
    kind="reading", source=f"{_SHOWN}; the smallest visible change is this project's", low=2.0, high=2.0,
    evidence="identity", over="runs",
    why="The figure shows this one run, so its number of visible descents is what the text says of it",
    doubt="The flow with A² stands for the program's iteration of D.2, and 1% for what an eye sees",
)  # fmt: skip
@two_layer.on_authors
def _descent_count(run: xr.Dataset) -> Estimate:
    from saddlescope.measure import find_descents

    found = find_descents(run.turning_loss.values, hysteresis=_SEEN)
    x = run.test_point.values
    return Estimate(float(found.counts[0]), remark=f"rise {found.rises.max() / (x @ x / 2):.3f} of |x|²/2")


claims.add(
    "two-with-A", "With A, as printed, the loss from the authors' start has no visible rise",
    quantity="largest rise of the out-of-distribution loss from the authors' start with A, over the first loss",
    kind="own", source=f"{_SHOWN}, with A for A²; a visible rise is 1% as in the other claims", high=_SEEN,
    evidence="identity", over="runs",
    why="Only the matrix differs from the authors' run, so a missing rise is due to it",
    doubt="One start: from others the loss rises visibly with A too, as the shares below show",
)(lambda run: Estimate(float(run.printed_rise)))  # fmt: skip


@claims.add(
    "rise",
    "In the authors' run the shrinking of the off-diagonal entry w_12 of UUᵀ causes the rise of the loss",
    quantity="share of the shrinking of off-diagonal |w_ij| in all loss-raising changes of entries of UUᵀ during the "
        "rise", kind="reading",
    source=f"Section 4.2.2 and {_SHOWN}; this project's bar, 0.93 to 0.98 for other starts and data", low=0.9,
    evidence="identity", over="runs", needs=("two-descents",),
    why="The loss changes by the sum of these integrals, so their parts say which entries raise it",
    doubt="Entries move together, so a share in a sum of integrals is not what would happen without the others",
)  # fmt: skip
@two_layer.on_authors
def _suppression_share(run: xr.Dataset) -> Estimate:
    shares = two_layer.push_share(run, rising=True, of=two_layer.phase_mask(run, minor=True, phase="shrinks"))
    return Estimate(float(shares[0])) if len(shares) else _NO_RISE


@claims.add(
    "when", "In the authors' run the loss rises only after the off-diagonal entry |w_12| of UUᵀ has begun to shrink",
    quantity="share of the duration of the last loss rise after the peak of |w_12|", kind="reading",
    source=f"Section 4.2.2 and {_SHOWN}: 'corresponds'; this project's bar", low=0.99, evidence="identity",
    over="runs", needs=("two-descents",),
    why="A rise that corresponds to suppression falls in the time in which the entry shrinks, after its peak",
    doubt="The claim allows a rise long after the peak, so it tests order in time and not simultaneity",
)  # fmt: skip
@two_layer.on_authors
def _shrinking_time(run: xr.Dataset) -> Estimate:
    rises = np.flatnonzero(np.diff(run.turning_loss.values) > 0)
    if not len(rises):
        return _NO_RISE
    first, last = run.turning_time.values[rises[-1] : rises[-1] + 2].tolist()
    peak = float(run.top[two_layer.entry_index(run, 0, 1)])
    remark = f"the loss rises from {first:.3f} to {last:.3f}, |w_12| peaks at {peak:.3f}"
    return Estimate((last - max(first, peak)) / (last - first), remark=remark)


def _weak(run: xr.Dataset) -> int:
    """Return the weakest concept, a direction with signal."""
    return int(np.argmin(np.where(run.test_point.values > 0, run.strength.values, np.inf)))


@claims.add(
    "second-descent",
    "In the authors' run the growth of the weaker concept's diagonal entry of UUᵀ causes the second descent",
    quantity="share of this growth in all loss-lowering changes of entries of UUᵀ during the last descent",
    kind="reading", source=f"Section 4.2.2 and {_SHOWN}: 'corresponds'; this project's bar", low=0.95,
    evidence="identity", over="runs", needs=("two-descents",),
    why="If the second descent is the second growth of major entries, that entry has the bulk of the account",
    doubt="With two concepts little else is left to lower the loss at that time",
)  # fmt: skip
@two_layer.on_authors
def _last_fall_share(run: xr.Dataset) -> Estimate:
    of = np.zeros((run.sizes["entry"], 2), bool)
    of[two_layer.entry_index(run, _weak(run), _weak(run)), 0] = True
    return Estimate(float(two_layer.push_share(run, rising=False, of=of)[-1]))


@claims.add(
    "reversal", "In the authors' run the output at the test point turns back: the weaker concept's component falls",
    quantity="largest fall of the output component of the weaker concept, relative to its target", kind="reading",
    source=f"Section 4.2.2 and {_SHOWN}, right; a twentieth is this project's bar for a visible fall", low=0.05,
    evidence="identity", over="runs", needs=("two-descents",),
    why="A trajectory that turns back towards a cluster loses part of one component, the weaker concept's",
    doubt="One run, chosen by the authors to show it; the share of random starts is another claim",
)  # fmt: skip
@two_layer.on_authors
def _reversal(run: xr.Dataset) -> Estimate:
    weak = _weak(run)
    f = run.output.values[:, weak]
    back = np.maximum.accumulate(f) - f
    return Estimate(float(back.max() / run.test_point[weak]), remark=f"component {weak + 1} of the output")


@claims.add(
    "reversal-often", "From nearly all positive starts whose loss visibly rises, the weaker output visibly turns back",
    quantity="share with a fall of the weaker concept's output above 1% of its target, among positive starts whose "
        "loss rises by over 1% of the first loss between two descents",
    kind="reading", source="Section 4.2.2: suppression leads to the output turning back; all in a pilot on other seeds",
    low=0.95, evidence="sample", over="random starts",
    why="If the rise is the suppression of a minor entry, the output that this entry had raised must fall with it",
    doubt="One law and scale of starts and one data set; the level of 1% for both events is ours",
)  # fmt: skip
def _reversal_share(run: xr.Dataset) -> Estimate:
    risen, fallen = run.output_rise.values > _SEEN, run.output_fall.values > _SEEN
    without = f"among starts with one descent {fallen[run.output_rise.values == 0].mean():.3f}"
    return Estimate.share(float((risen & fallen).sum()), float(risen.sum()), without)


@claims.add(
    "stage-times", "Schur complements of the initial W = UUᵀ predict when each of the two concepts is learned",
    quantity="largest error over the two concepts k of the predicted time at which the diagonal entry w_kk reaches "
        "1/2",
    kind="own", source="theory.concepts.concept_stages; this project's bar for small starts", high=0.02, unit="t",
    evidence="cases", over="concepts",
    why="A concept is learned when its diagonal entry passes 1/2, and the prediction uses nothing but the start",
    doubt="One small start; the error grows with the scale, and for the authors' start it is more than ten times that",
)  # fmt: skip
def _stage_time_error(run: xr.Dataset) -> Estimate:
    off = [
        float(abs(run.top[two_layer.entry_index(run, k, k)] - run.predicted_time[k])) for k in range(run.sizes["row"])
    ]
    return Estimate.largest(off, ", ".join(f"{one:.4f}" for one in off))


@claims.add(
    "peak", "Schur complements of the initial W = UUᵀ predict the peak of the off-diagonal entry w_12",
    quantity="relative error of the predicted peak height of w_12", kind="own",
    source="theory.concepts.concept_stages; this project's bar for small starts", high=0.01, evidence="identity",
    over="runs",
    why="The height of the peak is how much of the descent is an illusion, and the start alone must give it",
    doubt="One small start, the one of its batch with the largest rise, whose peak is higher than a typical one",
)  # fmt: skip
def _peak_error(run: xr.Dataset) -> Estimate:
    n = two_layer.entry_index(run, 0, 1)
    off = float(run.top[n] - run.predicted_peak_time[0, 1])
    return Estimate(abs(float(run.height[n] / run.predicted_peak[0, 1]) - 1), remark=f"error of its time {off:.4f}")


def _rise_share(run: xr.Dataset, *, law: str, largest: bool, above: float) -> Estimate:
    one = run.rise.sel(law=law).isel(scale=int((np.argmax if largest else np.argmin)(run.scale.values)))
    rises, remark = one.values, f"{one.size} starts of scale {float(one.scale):g}"
    return Estimate.share(float((rises > above).sum()), len(rises), remark)


claims.add(
    "often",
    "The out-of-distribution loss descends twice from more than half of random positive initial weights of the "
        "largest scale",
    quantity="share of positive initializations at the largest scale with two descents of the loss and a rise of any "
        "height between them", kind="reading",
    source="Section 4.2.2: easy to have if s is small; more than half is this project's bar for 'easy'", low=0.5,
    evidence="sample", over="random starts",
    why="Positive starts are those of the paper's argument, and more often than not is what 'easy' means at least",
    doubt="A rise of any height counts, visible or not; one scale, and the bar of one half is ours",
)(partial(_rise_share, law="positive", largest=True, above=0.0))  # fmt: skip


@claims.add(
    "by-sign",
    "Nearly all normal initial weights with two descents of the out-of-distribution loss have a positive "
        "off-diagonal entry of UUᵀ",
    quantity="share with w_12(0) > 0 among normal initializations of the largest scale with two descents of the loss",
    kind="reading",
    source="Section 4.2.2, footnote 3 and the equal chances of both signs; 0.95 allows for exceptions", low=0.95,
    sizes=("default", "paper"), evidence="sample", over="random starts",
    why="The paper's illusion needs a minor entry that grows the right way, so starts without one should have none",
    doubt="Entries of normal starts of scale 0.1 are not very small, and one may change its sign early",
)  # fmt: skip
def _positive_share(run: xr.Dataset) -> Estimate:
    one = run.sel(law="normal").isel(scale=int(np.argmax(run.scale.values)))
    two = one.rise.values > 0
    if not two.any():
        return Estimate.unresolved("No start has two descents; raise starts.")
    of_all = float(one.positive.values.mean())
    return Estimate.share(float(one.positive.values[two].sum()), float(two.sum()), f"of all starts {of_all:.3f}")


claims.add(
    "vanishes",
    "From normal initial weights of the smallest scale, the out-of-distribution loss rarely rises visibly between "
        "two descents",
    quantity="share of normal initializations of the smallest scale with a rise of the loss above 1% of the first "
        "loss", kind="own",
    source="Not in the paper: the peak of c_ik e^(2(a_i + a_k)t) goes to 0 as scale^(1 − a_i/a_k); none of 4096 "
        "in a pilot",
    high=0.01, evidence="sample", over="random starts",
    why="If the peaks of minor entries vanish with the scale, so does the share of starts whose loss visibly rises",
    doubt="The scale is far below any that is used, and at larger ones the rises are common",
)(partial(_rise_share, law="normal", largest=False, above=_SEEN))  # fmt: skip


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the paper's figure with the predicted times, and shares of random starts against the rise."""
    heights = np.geomspace(1e-5, 0.3, 200)
    shares = (run.rise > xr.DataArray(heights, {"height": heights}, "height")).mean("sample")
    return [
        _two_descents(two_layer.of_authors(run), "authors", "from the start of the authors' program, with A²"),
        _two_descents(run, "two-descents", "from a small positive start, with A"),
        Figure(
            name="how-often",
            title="Rise of the loss between two descents, over random starts",
            caption="Share of random starts with two descents and a rise above the height on the axis, by the scale of "
            f"U. Each curve has {run.sizes['sample']:,} starts; their largest rise is {float(run.rise.max()):.2g}.",
            panels=tuple(
                Panel(
                    title=f"{law} entries of U",
                    x=Axis("height of the rise, over the first loss", scale="log"),
                    y=Axis("share of starts above", range=(-0.02, 1.02)),
                    marks=lines(shares.sel(law=law), x="height", hue="scale", label="scale {:g}", grouped=True),
                )
                for law in run.law.values.tolist()
            ),
        ),
    ]


def _two_descents(one: xr.Dataset, name: str, start: str) -> Figure:
    return Figure(
        name=name,
        title=f"Loss, entries of W and output {start}",
        caption="The loss out of distribution with its turns, whole and enlarged; the entries of W, with vertical "
        "lines at the times of w_kk = 1/2 that the Schur complements of the initial W predict; the path of the "
        "output at the test point. The table lists every entry.",
        panels=(
            views.loss_panel(one),
            views.loss_panel(one, top=views.later_losses(one)),
            views.entries_panel(one, predicted=True),
            views.output_panels(one)[0],
        ),
        table=views.entry_table(one),
    )


entry = Entry(
    "concept-learning/figure-5", "Figure 5: a minor entry of W makes the loss rise between two descents",
    citation=CITATION, source="Section 4.2", params=Params, quick=dict(batch=128, starts=1024, outputs=512), run=run,
    claims=claims, figures=figures, metrics=two_layer.METRICS,
)  # fmt: skip
