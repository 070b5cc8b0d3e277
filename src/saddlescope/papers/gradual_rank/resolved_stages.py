"""Resolved stages: the number of Algorithm 1's plateaus that a flow has at an initial scale.

The attention head of Figure 2, at several dimensions and from many seeds, is followed from ever smaller initial scales
α. Algorithm 1 gives every plateau of the limit, and the number of e-folds of growth that separate it from its
neighbours at a given α. The flow shows which of them it has.

    efolds   the number that Algorithm 1 gives a plateau at α: the lesser of its length, in e-folds of the slowest rate
             on it, and of the e-folds that the next coordinate to enter lacks when its stage begins
    found    a plateau in whose predicted middle exactly the predicted coordinates have |β_i| > level
    least    the smallest |β_i| on a plateau that is not 0: below the level no scale makes it count as found
    held     plateaus counted without any theory: spans between two changes of the set of coordinates above the level
             in whose second half none of these moves by more than 2 % of the largest; a leaving coordinate does

Figure 2 counts a plateau as resolved from log(1/level) e-folds on, which is sufficient. This entry asks for the number
that is necessary.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import log
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank import CITATION
from saddlescope.plot import Axis, Band, Figure, Line, Mark, Panel
from saddlescope.reproduction.claim import Claims, Estimate, wilson_interval
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.grid import join_cells
from saddlescope.reproduction.metric import Metric
from saddlescope.reproduction.parameters import EntryParams, param

_STILL = 0.02  # of the largest |beta_i|: change on a plateau that is held

_SPACING = 0.003  # of the records, in log t

_AT_ONCE = 96  # flows: their records take some 100 MB


class Params(EntryParams):
    """The head of Figure 2, smaller, from twelve seeds at each of three dimensions."""

    dims: tuple[int, ...] = param((4, 8, 16), "dimensions of a token, increasing", ge=2, le=64, order="increasing")
    log10_scales: tuple[float, ...] = param(
        (-1.0, -2.0, -4.0, -8.0, -16.0, -32.0, -64.0),
        "log10 of the initial scales α, decreasing",
        lt=0,
        order="decreasing",
        ge=-300.0,
    )
    seeds: int = param(12, "number of seeds at each dimension", ge=1)
    seed: int = param(300, "first seed of the tasks and the initial weights", ge=0)
    samples: int = param(100, "number of sequences in a data set", ge=1)
    tokens: int = param(5, "number of tokens in a sequence", ge=1)
    level: float = param(0.01, "|β_i| above which coordinate i counts as learned", ge=1e-6, le=0.1, scale="log")
    tolerance: float = param(1e-4, "relative tolerance of the flow's stage times", ge=1e-10, le=1e-2, scale="log")


class _Kind(NamedTuple):
    """Properties that the flows of one batch share."""

    dim: int
    samples: int
    tokens: int
    tolerance: float


class _Flow(NamedTuple):
    """Properties in which flows of one kind differ, and the level at which plateaus are judged."""

    seed: int
    log10_scale: float
    level: float


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow the flows of all seeds and scales at once, dimension by dimension."""
    return run_many((params,), context)[0]


def run_many(points: Sequence[Params], context: RunContext) -> list[xr.Dataset]:
    """Follow the flows of all points together that share dimension, data size and tolerance."""
    import jax

    def kind(point: Params, dim: int) -> _Kind:
        return _Kind(dim, point.samples, point.tokens, point.tolerance)

    def flows(point: Params) -> list[_Flow]:
        seeds = range(point.seed, point.seed + point.seeds)
        return [_Flow(seed, scale, point.level) for seed in seeds for scale in point.log10_scales]

    batches: dict[_Kind, set[_Flow]] = {}
    for point in points:
        for dim in point.dims:
            batches.setdefault(kind(point, dim), set()).update(flows(point))
    made: dict[_Kind, dict[_Flow, xr.Dataset]] = {}
    with jax.enable_x64(True):
        for k, (of, step) in enumerate(context.steps(batches)):
            several = sorted(batches[of])
            batch = step.cached(f"batch-{k}", partial(_follow, of, several, step))
            made[of] = {flow: batch.isel(flow=n) for n, flow in enumerate(several)}
    context.report(1.0, "done")

    def join(point: Params) -> xr.Dataset:
        axes = {"dim": point.dims, "seed": range(point.seed, point.seed + point.seeds), "scale": point.log10_scales}
        plateaus = range(1, 3 * max(point.dims) + 1)
        parts = [made[kind(point, dim)][flow].reindex(plateau=plateaus) for dim in point.dims for flow in flows(point)]
        grid = join_cells(parts, axes)
        return grid.assign(plateaus=grid.plateaus.isel(scale=0)).assign_attrs(level=point.level)

    return [join(point) for point in points]


def _follow(kind: _Kind, flows: list[_Flow], context: RunContext) -> xr.Dataset:
    """Run Algorithm 1 for every seed, and all flows, over `flow`. The results of one do not depend on the others."""
    from saddlescope.flow import DiagonalInit, gradient_flow_batched
    from saddlescope.models import attention_teacher_task
    from saddlescope.theory import incremental_learning

    dim, tasks, learned = kind.dim, {}, {}
    theory, simulation = context.split(0.5, 0.5)
    for seed, step in theory.steps(sorted({flow.seed for flow in flows})):
        step.report(0.0, f"dimension {dim}, seed {seed}: Algorithm 1")
        tasks[seed] = attention_teacher_task(seed, samples=kind.samples, tokens=kind.tokens, dim=dim)
        learned[seed] = incremental_learning(tasks[seed].network, 2 * dim, max_stages=3 * dim)
    measured: list[dict[str, Any]] = []
    batches = [flows[first : first + _AT_ONCE] for first in range(0, len(flows), _AT_ONCE)]
    for some, step in simulation.steps(batches, [float(len(some)) for some in batches]):
        times = _records([learned[flow.seed] for flow in some])
        chosen = [(tasks[flow.seed], flow.log10_scale * log(10)) for flow in some]
        paths = gradient_flow_batched(
            [task.network for task, _ in chosen],
            [DiagonalInit(task.u0, task.v0, log_scale=log_scale) for task, log_scale in chosen],
            until=float(times[-1]),
            tolerance=kind.tolerance,
            record=times,
            report=step.note(f"dimension {dim}"),
        )
        measured += [
            _measure(learned[flow.seed], flow, paths.times, beta) for flow, beta in zip(some, paths.beta, strict=True)
        ]

    def over_plateaus(name: str) -> np.ndarray:
        values = np.full((len(flows), 3 * dim), np.nan)
        for row, one in zip(values, measured, strict=True):
            row[: len(one[name])] = one[name]
        return values

    return xr.Dataset(
        {
            **{name: (("flow", "plateau"), over_plateaus(name)) for name in ("efolds", "found", "least")},
            "held": ("flow", np.array([one["held"] for one in measured], float)),
            "plateaus": ("flow", np.array([len(one["found"]) for one in measured])),
        },
        coords={"plateau": np.arange(1, 3 * dim + 1)},
    )


def _end(learned: Any) -> float:
    return 1.1 * learned.stages[-1].time


def _records(learned: list[Any]) -> np.ndarray:
    """Return times to record at, on one grid for all runs, whatever flows are followed together."""
    first = log(0.5 * min(one.stages[1].time for one in learned)) // _SPACING
    last = log(max(_end(one) for one in learned)) // _SPACING + 1
    return np.exp(_SPACING * np.arange(first, last + 1))


def _measure(learned: Any, flow: _Flow, times: np.ndarray, beta: np.ndarray) -> dict[str, Any]:
    """Return efolds, found and least of all plateaus between two stages, and the number held."""
    begins = np.array([stage.time for stage in learned.stages[1:]])
    betas = np.stack([stage.beta for stage in learned.stages[1:-1]])
    at = np.abs(beta[np.searchsorted(times, (begins[1:] + begins[:-1]) / 2)]) > flow.level
    efolds = np.full(len(learned.stages), np.inf)
    for tie in learned.near_ties(flow.log10_scale * log(10), efolds=1e300):
        efolds[tie.stage] = min(efolds[tie.stage], tie.efolds)
    own = (times >= 0.5 * begins[0]) & (times <= _end(learned))
    return {
        "efolds": efolds[1:-1],
        "found": (at == (betas != 0)).all(axis=1),
        "least": np.where(betas != 0, np.abs(betas), np.inf).min(axis=1),
        "held": _held(times[own], beta[own], flow.level),
    }


def _held(times: np.ndarray, beta: np.ndarray, level: float) -> int:
    """Count the spans of one set of learned coordinates that settle, the first and the last left out."""
    learned = np.abs(beta) > level
    edges = np.flatnonzero((learned[1:] != learned[:-1]).any(axis=1)) + 1
    count = 0
    for first, after in pairwise(edges):
        middle = np.searchsorted(times, (times[first] + times[after - 1]) / 2)
        moved = np.abs(beta[after - 1] - beta[middle])[learned[first]]
        count += bool(learned[first].any() and moved.max() <= _STILL * np.abs(beta[after - 1]).max())
    return count


_FEW = 2.0  # e-folds: the size of a correction to a stage time, on both sides of a plateau

_LATE = -3.9  # log10 of the scale from which on numbers are compared: before, hardly a plateau exists


def predicted(run: xr.Dataset, efolds: float) -> xr.DataArray:
    """Return the number of plateaus with so many e-folds, over dim, seed and scale."""
    return (run.efolds >= efolds).sum("plateau")


def found(run: xr.Dataset) -> xr.DataArray:
    """Return the number of plateaus found, over dim, seed and scale."""
    return run.found.sum("plateau")


def _enough(run: xr.Dataset) -> float:
    """Return log(1/level): the e-folds from which on Figure 2 counts a plateau as resolved."""
    return log(1 / run.attrs["level"])


def _late(run: xr.Dataset, at: float = _LATE) -> xr.Dataset:
    return run.sel(scale=run.scale <= at)


def _ratio(over: xr.DataArray, under: xr.DataArray) -> Estimate:
    """Return the ratio of two numbers of plateaus, summed over all but the instances: its mean over these.

    An instance is one task: a dimension and a seed. Plateaus and scales of one instance are not independent.
    """
    top, bottom = (
        number.sum([dim for dim in number.dims if dim not in ("dim", "seed")]).values.ravel().astype(np.float64)
        for number in (over, under)
    )
    some = bottom > 0
    remark = f"{int(top.sum())} against {int(bottom.sum())} plateaus"
    return Estimate.mean(top[some] / bottom[some], remark)


def _share(hits: xr.DataArray, of: xr.DataArray) -> Estimate:
    """Return the mean share over tasks, with the wider of the intervals over tasks and over plateaus (Wilson's)."""
    over_tasks, total = _ratio(hits, of), float(of.sum())
    over_plateaus = Estimate.share(float(hits.sum()), total).uncertainty
    return replace(over_tasks, uncertainty=max(over_tasks.uncertainty, over_plateaus))


# The bounds: the e-folds that a plateau needs are of order one by the theory, no more is known; the rest from pilots on
# seeds 101 to 106 at dimensions 4 and 8. The quick size has two seeds and one dimension, too few plateaus for a share
# or a mean within 10 %.
claims = Claims()

_PILOT = "the bounds are from a pilot on other seeds"


def _sufficient_share(run: xr.Dataset, *, visible: bool = False) -> Estimate:
    meant = (run.efolds >= _enough(run)) & ((run.least > run.attrs["level"]) if visible else True)
    return _share(meant & (run.found == 1), meant)


claims.add(
    "sufficient",
    "Gradient flow shows at least 97 % of attention plateaus that Algorithm 1 separates by log(1/level) e-folds of "
        "growth",
    quantity="share of these plateaus at whose predicted middle exactly the predicted diagonal entries exceed the "
        "detection level, over all initial scales",
    kind="own", source="Theorem 4.1 and near_ties; 3 % for corrections of order 1 that near_ties does not include",
    low=0.97, sizes=("default", "paper"),
    evidence="sample", over="tasks (a dimension and a seed)",
    why="A plateau that outlasts log(1/level) e-folds has its next entry below the level in its middle, so the flow "
        "should show nearly all",
    doubt="The detection level counts entries of the teacher that are smaller than itself as missed, and the bar of "
        "97 % is this project's",
)(_sufficient_share)  # fmt: skip


claims.add(
    "sufficient-visible",
    "Where all predicted nonzero entries exceed the detection level, gradient flow shows at least 97 % of "
        "well-separated attention plateaus",
    quantity="share of these plateaus, separated by log(1/level) e-folds of growth, at whose middle exactly the "
        "predicted entries exceed the detection level", kind="own",
    source="Theorem 4.1 and near_ties; added after small entries of the teacher counted as missed; the same bound",
    low=0.97, sizes=("default", "paper"),
    evidence="sample", over="tasks (a dimension and a seed)",
    why="Leaving out plateaus with entries too small to be detected leaves only the separation to decide whether the "
        "flow shows one",
    doubt="The restriction to visible entries was added after the unrestricted share had failed, though it is judged "
        "on new seeds",
)(partial(_sufficient_share, visible=True))  # fmt: skip


def _found_over_predicted(run: xr.Dataset, *, efolds: float | None = None) -> Estimate:
    late = _late(run)
    return _ratio(found(late), predicted(late, _enough(run) if efolds is None else efolds))


claims.add(
    "number",
    "Gradient flow shows as many attention plateaus, within 10 %, as Algorithm 1 separates by log(1/level) e-folds "
        "of growth",
    quantity="ratio of plateaus found in the flow to those so separated, at initial scales up to 1e-4, mean over "
        "dimensions and seeds",
    kind="own", source="Figure 2's criterion; a bar set before the pilot", low=0.9, high=1.1,
    sizes=("default", "paper"), evidence="sample", over="tasks (a dimension and a seed)",
    why="If log(1/level) e-folds were also necessary, as many plateaus would be found as are so separated, a ratio of "
        "one",
    doubt="A ratio near one may also come from errors of both kinds that cancel, and most plateaus of a task are "
        "correlated",
)(_found_over_predicted)  # fmt: skip


claims.add(
    "number-two",
    "Gradient flow shows as many attention plateaus, within 10 %, as Algorithm 1 separates by two e-folds of growth",
    quantity="ratio of plateaus found in the flow to those so separated, at initial scales up to 1e-4, mean over "
        "dimensions and seeds", kind="own", source=f"One e-fold of correction on either side of a plateau; {_PILOT}",
    low=0.9, high=1.1, sizes=("default", "paper"),
    evidence="sample", over="tasks (a dimension and a seed)",
    why="The criterion that is both necessary and sufficient predicts the number itself, and two e-folds are the size "
        "of the theory's corrections",
    doubt="Two e-folds were chosen on a pilot of the same family of tasks, so that other teachers may need another "
        "number",
)(partial(_found_over_predicted, efolds=_FEW))  # fmt: skip


@claims.add(
    "each-plateau",
    "Separation by two e-folds predicts correctly, for at least 80 % of attention plateaus, whether gradient flow "
        "shows them",
    quantity="share of Algorithm 1's plateaus shown if separated by two e-folds of growth and absent if not, at "
        "initial scales up to 1e-4", kind="own", source="near_ties; the bar allows for chance close to two e-folds",
    low=0.8, sizes=("default", "paper"),
    evidence="sample", over="tasks (a dimension and a seed)",
    why="Numbers can agree although the wrong plateaus are found; a share of right predictions per plateau excludes "
        "that",
    doubt="Where nearly all plateaus are found at small scales, a prediction that calls all of them found is right as "
        "well",
)  # fmt: skip
def _classified_share(run: xr.Dataset) -> Estimate:
    late = _late(run)
    known = late.efolds.notnull()
    return _share(((late.efolds >= _FEW) == (late.found == 1)) & known, known)


@claims.add(
    "without-theory",
    "A theory-free count of settled attention plateaus in gradient flow equals the count at predicted times within "
        "10 %",
    quantity="ratio of the theory-free count to that at Algorithm 1's times, two smallest initial scales together, "
        "mean over dimensions and seeds",
    kind="own", source=f"Theorem 4.1; {_PILOT}", low=0.9, high=1.1, sizes=("default", "paper"),
    evidence="sample", over="tasks (a dimension and a seed)",
    why="A count that uses no predicted time shows that the plateaus found are not an effect of looking at the "
        "predicted times only",
    doubt="The count has thresholds of its own, 2 % of change and half a span, and misses plateaus that a leaving "
        "coordinate ends",
)  # fmt: skip
def _held_over_found(run: xr.Dataset) -> Estimate:
    smallest = run.isel(scale=slice(-2, None))
    return _ratio(smallest.held, found(smallest))


@claims.add(
    "unresolved",
    "The number of predicted attention plateaus that gradient flow lacks falls as log(1/α) to a power between -1 and "
        "-0.5",
    quantity="fitted power of log(1/α), α the initial scale, in the number of Algorithm 1's plateaus not found, from "
        "α = 1e-8 down", kind="own", source=f"This project's question; {_PILOT}, which gave -0.73", low=-1.0,
    high=-0.5, sizes=("default", "paper"),
    evidence="sample", over="seeds",
    why="The slope in logarithms of the number lacking against log(1/α) is the power of a power law, pooled over "
        "dimensions",
    doubt="Four scales within a factor of eight of log(1/α) cannot distinguish a power law from a slow crossover",
)  # fmt: skip
def _unresolved_power(run: xr.Dataset) -> Estimate:
    from scipy.stats import t

    late = _late(run, -7.9)
    if late.sizes["scale"] < 2 or run.sizes["seed"] < 2:
        return Estimate.unresolved("The power needs two scales of at most 1e-8, and two seeds; add them.")
    lost = (late.plateaus - found(late)).sum("dim").transpose("seed", "scale").values.astype(float)
    if not lost.sum(0).all():
        return Estimate.unresolved("At one of these scales all plateaus are found; add seeds or dimensions.")
    times = -late.scale.values * log(10)

    def slope(counts: np.ndarray) -> float:
        return float(np.polyfit(np.log(times), np.log(np.maximum(counts, 0.5)), 1)[0])

    # The jackknife over seeds: the sum over all but one.
    slopes = np.array([slope(lost.sum(0) - one) for one in lost])
    error = float(t.ppf(0.975, len(lost) - 1)) * (len(lost) - 1) ** 0.5 * float(slopes.std())
    remark = f"{lost.sum(0).astype(int).tolist()} of {int(run.plateaus.sum())}"
    return Estimate(slope(lost.sum(0)), error, remark, len(lost))


claims.add(
    "one-over-log", "The number of predicted attention plateaus that gradient flow lacks falls as 1 / log(1/α)",
    quantity="fitted power of log(1/α), α the initial scale, in the number of Algorithm 1's plateaus not found, "
        "from α = 1e-8 down",
    kind="own", source="A density of plateau lengths that is finite at 0; a bar set before the pilot", low=-1.15,
    high=-0.85, sizes=("default", "paper"),
    evidence="sample", over="seeds",
    why="If plateau lengths have a finite density at zero, the number shorter than a length of order 1/log(1/α) is "
        "proportional to it",
    doubt="The entries of small magnitude, which no scale makes visible, add a constant that makes the measured power "
        "weaker",
)(_unresolved_power)  # fmt: skip


@claims.add(
    "dimension",
    "At initial scale 1e-8, gradient flow shows a larger share of attention plateaus at the smallest dimension than "
        "the largest",
    quantity="share of Algorithm 1's plateaus found at the smallest token dimension minus that at the largest, mean "
        "over seeds",
    kind="own", source="This project's question: more stage times in one range; the bound is no difference", low=0.0,
    sizes=("default", "paper"),
    evidence="sample", over="seeds",
    why="More coordinates share one range of times, so at a fixed scale the gaps between them shrink and fewer "
        "plateaus survive",
    doubt="Teacher entries are redrawn with the dimension, so that data and dimension change together between the "
        "compared shares",
)  # fmt: skip
def _dimension_effect(run: xr.Dataset) -> Estimate:
    if run.sizes["dim"] < 2 or -8.0 not in run.scale.values:
        return Estimate.unresolved("The comparison needs two dimensions, and -8 among log10_scales; add them.")
    shares = (found(run).sel(scale=-8.0) / run.plateaus).transpose("dim", "seed").values
    low, high = shares[0].mean(), shares[-1].mean()
    remark = f"{low:.2f} at dimension {int(run.dim[0])}, {high:.2f} at {int(run.dim[-1])}"
    return Estimate.mean(shares[0] - shares[-1], remark)


def _last_found(run: xr.Dataset) -> float:
    return float(found(run).isel(scale=-1).sum())


metrics = (
    Metric(
        name="found_share", quantity="share of all plateaus found at the smallest scale",
        statistic=lambda run: _last_found(run) / float(run.plateaus.sum()),
    ),
    Metric(
        name="found_over_predicted", quantity="plateaus found over those with two e-folds, at the smallest scale",
        statistic=lambda run: _last_found(run) / max(int(predicted(run, _FEW).isel(scale=-1).sum()), 1),
    ),
)  # fmt: skip

_BINS = 16  # of e-folds, equally many plateaus in each


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw numbers against the scale, the share found against e-folds, and the share not found."""
    return [
        Figure(
            name="numbers",
            title="Number of plateaus by initial scale",
            caption=f"Plateaus between two stages against log(1/α), mean over {run.sizes['seed']} seeds: found by the "
            "flow with the predicted coordinates learned (with Student's 95 % interval), held by a count without "
            f"theory, and predicted from Algorithm 1 with {_FEW:g} e-folds or with log(1/level). Horizontal line: all "
            "plateaus of the limit.",
            panels=tuple(_numbers(run, int(dim)) for dim in run.dim.values),
        ),
        Figure(
            name="efolds",
            title="Share of plateaus found by e-folds, and share not found by initial scale",
            caption="Left: share of plateaus found, with 95 % intervals, against the e-folds that Algorithm 1 gives "
            "them; all seeds and scales, equally many in each dot. Right: the share of plateaus not found against "
            "log(1/α); dotted: proportional to its inverse.",
            panels=(_calibration(run), _share_not_found(run)),
        ),
    ]


def _numbers(run: xr.Dataset, dim: int) -> Panel:
    from scipy.stats import t

    one = run.sel(dim=dim)
    x, n = -one.scale.values * log(10), one.sizes["seed"]
    mean, marks = found(one).mean("seed").values, []
    if n > 1:
        error = t.ppf(0.975, n - 1) * found(one).std("seed", ddof=1).values / n**0.5
        marks.append(Band(x=x, low=mean - error, high=mean + error, group="found", color=0))
    marks.append(Line(x=x, y=mean, group="found", color=0, style="solid"))
    marks.append(Line(x=x, y=one.held.mean("seed").values, group="held", color=1, style="points", width=3.5))
    for color, (name, efolds) in enumerate(((f"{_FEW:g} e-folds", _FEW), ("log(1/level) e-folds", _enough(run))), 2):
        count = predicted(one, efolds).mean("seed").values
        marks.append(Line(x=x, y=np.asarray(count, float), group=name, color=color, style="dashed"))
    marks.append(Mark(at=float(one.plateaus.mean()), axis="y", group="all plateaus", color=7))
    return Panel(
        title=f"dimension {dim}", x=Axis("log(1/α)", scale="log"), y=Axis("number of plateaus"), marks=tuple(marks)
    )


def _calibration(run: xr.Dataset) -> Panel:
    efolds, hit = run.efolds.values.ravel(), run.found.values.ravel()
    kept = (efolds > 0) & np.isfinite(efolds)
    efolds, hit = efolds[kept], hit[kept]
    bins = [part for part in np.array_split(np.argsort(efolds), _BINS) if len(part)]
    x = np.array([np.median(efolds[part]) for part in bins])
    y = np.array([hit[part].mean() for part in bins])
    low, high = np.array([wilson_interval(hit[part].sum(), len(part)) for part in bins]).T
    marks = (
        Band(x=x, low=low, high=high, group="found", color=0),
        Line(x=x, y=y, group="found", color=0, style="points", width=3.5),
        Line(x=x, y=y, group="found", color=0),
        Mark(at=_FEW, group=f"{_FEW:g} e-folds", color=2),
        Mark(at=_enough(run), group="log(1/level) e-folds", color=3),
    )
    return Panel(title="share found", x=Axis("e-folds", scale="log"), y=Axis("share", range=(-0.02, 1.02)), marks=marks)


def _share_not_found(run: xr.Dataset) -> Panel:
    x, marks = -run.scale.values * log(10), []
    for color, dim in enumerate(run.dim.values, 4):
        one = run.sel(dim=dim)
        share = 1 - (found(one).sum("seed") / one.plateaus.sum()).values
        marks.append(Line(x=x, y=np.where(share > 0, share, np.nan), group=f"dimension {dim}", color=color))
    marks.append(Line(x=x, y=x[0] / x, group="1 / log(1/α)", color=7, style="dotted"))
    x_axis, y_axis = Axis("log(1/α)", scale="log"), Axis("share", scale="log")
    return Panel(title="share not found", x=x_axis, y=y_axis, marks=tuple(marks))


entry = Entry(
    "gradual-rank/resolved-stages",
    "Resolved stages: the number of Algorithm 1's plateaus that a flow has at an initial scale", citation=CITATION,
    source="Section 4, beyond", params=Params,
    quick=dict(dims=(3,), log10_scales=(-2.0, -16.0, -64.0), seeds=2, samples=20, tokens=4),
    paper=dict(dims=(4, 8, 16, 32), seeds=50), run=run, claims=claims, figures=figures, metrics=metrics,
    run_many=run_many,
)  # fmt: skip
