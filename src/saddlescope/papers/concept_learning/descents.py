"""Number of descents of the loss out of distribution over hundreds of thousands of starts.

The symmetric two-layer network with d' = d on the data of Figures 5, 8 and 9. Appendix E.1 shows one start with three
descents and one with four, and says that their seeds were tuned. This entry counts visible descents from many random
starts: those separated by rises of more than 1 % of the first loss, as a reader of the figures could see. It tests this
project's conjecture that there are at most s, the number of concepts, of descents between exact extrema, and searches
starts whose loss rises farthest before the last descent.

A count above s, found at a tolerance of 1e-7, is accepted only if it is the same at 1e-12.
"""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report, silent
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.shared.random_starts import (
    FIGURES,
    LAWS,
    VISIBLE,
    Law,
    draw_starts,
    largest_rises,
    verified_descent_counts,
)
from saddlescope.papers.concept_learning.shared.two_layer_runs import strengths_and_test_point
from saddlescope.plot import Axis, Figure, Line, Panel, Table
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

_DATA = ("Figure 5", "Figure 8", "Figure 9")

_CONJECTURE = ("exceptions", "followed", "exception_rise")  # of "at most s descents", in every sample

_MOST = 6  # largest count of descents; higher counts are added to it

_HYSTERESES = (0.0, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3)

_EDGES = np.linspace(-6.0, 0.0, 49)  # of the bins of log10 of rises

_UNTIL = 1e4  # by then all is learned; what has learned takes no more time

_TOLERANCE = 1e-7

_LARGE = "3 concepts, four, large"  # the search with one descent more than concepts, from large weights


class _Search(NamedTuple):
    """Data of a search, the wanted number of descents, the largest entry of U, and the title of its panel."""

    data: str
    descents: int
    bound: float
    title: str


_SEARCHES = {
    "three": _Search("Figure 8", 3, 0.3, "three descents, Figure 8's data"),
    "four": _Search("Figure 9", 4, 0.3, "four descents, Figure 9's data"),
    "2 concepts, three": _Search("Figure 5", 3, 0.3, "three with two concepts"),
    "3 concepts, four": _Search("Figure 8", 4, 0.3, "four with three concepts"),
    _LARGE: _Search("Figure 8", 4, 4.0, "four with three concepts, from large weights"),
}

_SHOWN = 400  # times of a curve


class Params(EntryParams):
    """Samples at the scale of the paper's figures, others at many scales and of random data, and searches."""

    starts: int = param(50_000, "starts of each law on the data of each figure", ge=16)
    scale: float = param(
        0.1, "scale of these starts: standard deviation of normal entries of U, bound of uniform ones", gt=0
    )
    scales: tuple[float, ...] = param(
        (0.001, 0.01, 0.3, 1.0, 4.0), "further scales for the conjecture", gt=0, le=100, scale="log"
    )
    more: int = param(1024, "starts of each law on the data of each figure at each further scale", ge=16)
    tasks: int = param(48, "random data sets of 2 or 3 concepts for the conjecture", ge=1)
    of_task: int = param(512, "starts on each random data set", ge=16)
    pool: int = param(8192, "random starts of each search", ge=16)
    generations: int = param(20, "generations of each search after the random starts", ge=0)
    seed: int = param(1, "seed of all starts, data and searches", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Sample starts of every figure's data and law, test the conjecture elsewhere, and search."""
    samples: list[xr.Dataset] = []
    seen: list[xr.Dataset] = []
    sampling, elsewhere, searching = context.split(0.7, 0.15, 0.15)
    cells = enumerate(product(_DATA, LAWS))
    for (k, (name, law)), step in sampling.steps(cells, weights=(6, 6, 10, 10, 18, 20)):  # of the time, about
        sample = step.cached(f"sample-{k}", partial(_sample_law, name, law, params, (params.seed, k), step.report))
        seen.append(sample[list(_CONJECTURE)])
        samples.append(sample.drop_vars(_CONJECTURE))
    seen.append(elsewhere.cached("elsewhere", partial(_test_conjecture, params, elsewhere)))
    found = searching.cached("search", partial(_search_starts, params, searching))
    context.report(1.0, "done")
    laws = [xr.concat(samples[k : k + len(LAWS)], "law") for k in range(0, len(samples), len(LAWS))]
    together = xr.concat(laws, "data").assign_coords(data=list(_DATA), law=list(LAWS))
    return xr.merge([together, xr.concat(seen, "sample"), found], join="exact")


def _sample_law(name: str, law: Law, params: Params, seed: tuple[int, ...], report: Report) -> xr.Dataset:
    """Follow starts of one law at one scale; count descents, against hysteresis, too, and test the conjecture."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.measure import find_descents

    a, x = strengths_and_test_point(*FIGURES[name])
    starts = draw_starts(np.random.default_rng(seed), law, params.scale, (params.starts, len(a), len(a)))
    flows = symmetric_flows(a, starts, test_point=x, until=_UNTIL, tolerance=_TOLERANCE, report=report)
    counts, clear = verified_descent_counts(flows, starts)
    rises = largest_rises(flows)

    def numbers(counts: np.ndarray) -> np.ndarray:
        return np.bincount(np.minimum(counts, _MOST), minlength=_MOST + 1)

    shares = [numbers(find_descents(flows.turning_losses, hysteresis=h).counts) for h in _HYSTERESES]
    return _exceptions(starts, counts, clear).assign(
        counts=("descents", numbers(counts)),
        counts_at=(("hysteresis", "descents"), np.array(shares)),
        rises=("log_rise", np.histogram(np.log10(rises[rises > 0]), _EDGES)[0]),
        largest_rise=rises.max(),
    ).assign_coords(descents=np.arange(_MOST + 1), hysteresis=list(_HYSTERESES), log_rise=_EDGES[:-1])  # fmt: skip


def _exceptions(starts: np.ndarray, counts: np.ndarray, clear: np.ndarray) -> xr.Dataset:
    """Return starts with more descents than concepts, all starts, and the clearest smallest rise, by size of start."""
    small = np.linalg.norm(starts, 2, axis=(1, 2)) <= 1
    kinds = [small == kind for kind in (False, True)]
    values = (
        [np.sum(kind & (counts > starts.shape[1])) for kind in kinds],
        [np.sum(kind) for kind in kinds],
        [clear[kind].max(initial=0.0) for kind in kinds],
    )
    return xr.Dataset({name: ("small", np.array(value)) for name, value in zip(_CONJECTURE, values, strict=True)})


def _test_conjecture(params: Params, context: RunContext) -> xr.Dataset:
    """Test the conjecture at other scales, and on random data."""
    from saddlescope.flow import symmetric_flows

    rng = np.random.default_rng((params.seed, 1000))

    def test(a: np.ndarray, x: np.ndarray, starts: np.ndarray) -> xr.Dataset:
        flows = symmetric_flows(a, starts, test_point=x, until=_UNTIL, tolerance=_TOLERANCE, report=silent)
        return _exceptions(starts, *verified_descent_counts(flows, starts))

    scales, data = context.split(0.6, 0.4)
    found: list[xr.Dataset] = []
    for (name, law, scale), step in scales.steps(product(_DATA, LAWS, params.scales)):
        step.report(0.0, f"{name}, {law} starts of scale {scale:g}")
        a, x = strengths_and_test_point(*FIGURES[name])
        found.append(test(a, x, draw_starts(rng, law, scale, (params.more, len(a), len(a)))))
    for k, step in data.steps(range(params.tasks)):
        step.report(0.0, f"random data {k + 1} of {params.tasks}")
        s = 2 + k % 2
        mu, sigma = np.exp(rng.uniform(np.log(0.3), np.log(4), s)), np.exp(rng.uniform(np.log(0.01), 0.0, s))
        a, x = strengths_and_test_point(tuple(mu.tolist()), tuple(sigma.tolist()))
        found.append(test(a, x, draw_starts(rng, LAWS[k // 2 % 2], 10 ** rng.uniform(-3, 0.5), (params.of_task, s, s))))
    both = xr.concat(found, "part")
    return both.sum("part").assign(exception_rise=both.exception_rise.max("part"))


def _search_starts(params: Params, context: RunContext) -> xr.Dataset:
    """Search the best start of every kind; return its loss against time and its rise, 0 where none is found."""
    from saddlescope.flow import find_start, symmetric_flows
    from saddlescope.flow.two_layer.start_search import SearchError

    followed = params.pool + 512 * params.generations
    rises, times, losses = np.zeros(len(_SEARCHES)), *np.full((2, len(_SEARCHES), _SHOWN), np.nan)
    for (k, (kind, wanted)), step in context.steps(enumerate(_SEARCHES.items())):
        step.report(0.0, f"search: {kind} descents")
        a, x = strengths_and_test_point(*FIGURES[wanted.data])
        try:
            best = find_start(
                a, descents=wanted.descents, test_point=x, until=_UNTIL, seed=params.seed, bound=wanted.bound,
                num_starts=params.pool, generations=params.generations,
            )  # fmt: skip
        except SearchError:
            continue
        rises[k], followed = best.rise, best.followed
        last = best.flow.turning_times[0, best.flow.turns[0]]
        times[k] = np.geomspace(last / 100, 3 * last, _SHOWN)
        flow = symmetric_flows(a, best.start[None], test_point=x, until=6 * last, record=times[k], tolerance=1e-11)
        losses[k] = flow.losses[0, 1:-1] / (x @ x / 2)
    return xr.Dataset(
        {
            "rise": ("kind", rises),
            "curve_time": (("kind", "point"), times, {"units": "t"}),
            "curve": (("kind", "point"), losses),
            "search_followed": followed,
        },
        coords={"kind": list(_SEARCHES)},
    )


_BAR = "this project's bar, fixed before the run from pilots on other seeds"

# The quick size follows too few starts for rare events, and its searches have no generations.
claims = Claims()

_add = partial(claims.add, sizes=("default", "paper"))


def _visible(run: xr.Dataset, name: str, law: str, least: int) -> tuple[int, int]:
    """Return how many starts have this number of visible descents or more, and the number of starts."""
    counts = run.counts_at.sel(data=name, law=law, hysteresis=VISIBLE)
    return int(counts.sel(descents=slice(least, None)).sum()), int(counts.sum())


def _visible_number(run: xr.Dataset, *, name: str, least: int) -> Estimate:
    seen, starts = _visible(run, name, "uniform", least)
    exact = int(run.counts.sel(data=name, law="uniform", descents=slice(least, None)).sum())
    return Estimate(float(seen), remark=f"of {starts} starts; {exact} with invisible rises", n=starts)


for _name, _concepts, _data, _least, _why, _doubt in (
    ("triple", "three", "Figure 8", 3,
     "Figure 8 shows three descents, and one start with as many that a reader could see is enough for it",
     "That a start exists says nothing of how often one is met; the entries of U are below 0.1 and d' = d"),
    ("quadruple", "four", "Figure 9", 4,
     "The caption of Figure 9 promises a fourth descent, which exists if any of the random starts has it",
     "At 1 % of the first loss a fourth descent can be lost that the paper's own curve shows on a smaller axis"),
):  # fmt: skip
    _add(
        _name,
        f"On {_concepts}-concept data, the out-of-distribution loss visibly descends at least {_concepts} times from "
            "some positive initial weights",
        quantity=f"number of random positive initializations with {_concepts} or more descents separated by rises over "
            f"1 % of the first loss, on {_data}'s data", kind="printed",
        source=f"Appendix E.1 and {_data}; one start is enough", low=1.0, evidence="cases", over="random starts",
        why=_why, doubt=_doubt,
    )(partial(_visible_number, name=_data, least=_least))  # fmt: skip


@_add(
    "subtle",
    "On three-concept data, at most 5% of positive initial weights give three or more visible descents of the "
        "out-of-distribution loss",
    quantity="share of random positive initializations with three or more descents separated by rises over 1 % of the "
        "first loss, on Figure 8's data", kind="reading",
    source="Appendix E.1: only under 'specific initialization conditions'; one start in twenty is this project's bar",
    high=0.05, evidence="sample", over="random starts",
    why="Conditions are specific if few random starts meet them, and a descent that no reader can see is none",
    doubt="The share depends on what is visible: with every rise it is larger (see the remark), and the bar is ours",
)  # fmt: skip
def _triple_share(run: xr.Dataset) -> Estimate:
    exact = float(run.counts.sel(data="Figure 8", law="uniform", descents=slice(3, None)).sum())
    seen, starts = _visible(run, "Figure 8", "uniform", 3)
    return Estimate.share(seen, starts, f"{seen} of {starts}; with invisible rises {exact / starts:.3f}")


@_add(
    "positive",
    "On two-concept data, two visible descents of the out-of-distribution loss are more frequent from positive than "
        "from normal initial weights",
    quantity="share of positive uniform initializations with two or more descents separated by rises over 1 % of the "
        "first loss, less that of normal ones", kind="reading",
    source="Section 4.2.2: positive minor entries make the loss rise between descents; any difference counts",
    low=0.0, evidence="sample", over="random starts",
    why="Uniform entries make every minor entry of W positive, normal ones only half, and the data are the same",
    doubt="The two laws differ in more than the sign: entries of W also have another size and spread",
)  # fmt: skip
def _probability_gain(run: xr.Dataset) -> Estimate:
    one, other = (Estimate.share(*_visible(run, "Figure 5", law, 2)) for law in ("uniform", "normal"))
    remark = f"{one.value:.3f} against {other.value:.3f}"
    return Estimate(one.value - other.value, (one.uncertainty**2 + other.uncertainty**2) ** 0.5, remark, one.n)


def _conjecture_exceptions(run: xr.Dataset, *, small: bool) -> Estimate:
    """Return the number of starts with more descents than concepts, of small starts or of all."""
    sample = run.isel(small=[1] if small else [0, 1])
    seen, starts = int(sample.exceptions.sum()), int(sample.followed.sum())
    clear = float(sample.exception_rise.max())
    remark = f"; in the clearest one every rise is at least {clear:.2g} |x|²/2" if seen else ""
    if not small and float(run.rise.sel(kind=_LARGE)) > 0:
        seen, remark = seen + 1, f"{remark}; a search finds one more, among starts of entries up to 4"
    return Estimate(float(seen), remark=f"{starts} starts{remark}", n=starts)


_exact = partial(_add, kind="own", high=0.0, evidence="cases")

_exact(
    "conjecture",
    "From any initial weights, the out-of-distribution loss descends at most once for each concept, counting every "
        "rise",
    quantity="number of initializations with more descents than concepts between exact extrema, over random weights "
        "and a search of large ones", over="random starts",
    source="This project's conjecture from the cycle of section 4.2: one descent for each concept",
    why="The conjecture is about all starts, so one start with a further extremum, kept at tolerance 1e-12, ends it",
    doubt="The further rise can be invisible, and it needs starts larger than those of the theory",
)(partial(_conjecture_exceptions, small=False))  # fmt: skip

_exact(
    "conjecture-small",
    "If no eigenvalue of UUᵀ initially exceeds 1, the loss descends at most once per concept, counting every rise",
    quantity="number of random initializations with eigenvalues of UUᵀ up to 1 and more descents than concepts "
        "between exact extrema", over="random starts",
    source="This project's conjecture from the cycle of section 4.2, for small starts as in that section",
    why="With every rise counted, the smallest exception would show, and a visible one all the more",
    doubt="Random starts of few laws and data sets: an exception in a thin region would be missed",
)(partial(_conjecture_exceptions, small=True))  # fmt: skip


@_exact(
    "one-more",
    "No search over initial weights up to 0.3 finds more descents of the loss than concepts, counting every rise",
    quantity="number of searches that find three descents of the loss with two concepts, or four with three",
    over="searches", source="This project's conjecture of at most one descent for each concept, in an adversarial test",
    why="A search climbs toward an exception where random starts would only pass it by",
    doubt="Two searches from one seed each; a search that finds nothing may have been a poor one",
)  # fmt: skip
def _extra_descents(run: xr.Dataset) -> Estimate:
    found = run.rise.sel(kind=["2 concepts, three", "3 concepts, four"])
    return Estimate.number((found > 0).values, f"{2 * int(run.search_followed)} starts followed")


def _largest_rise(run: xr.Dataset, *, kind: str) -> Estimate:
    rise = float(run.rise.sel(kind=kind))
    if not rise > 0:
        return Estimate.unresolved("The search found no such start; raise pool or generations.")
    return Estimate(rise, remark=f"{int(run.search_followed)} starts followed", n=int(run.search_followed))


for _name, _kind, _figure, _least, _why, _doubt in (
    ("third-rise", "three", 8, 0.08,
     "The claim is that such a rise exists, and the flow from the start found has it",
     "The bar is of pilots of the same search; the largest rise may be higher than any search finds"),
    ("fourth-rise", "four", 9, 0.03,
     "One start whose loss rises as far before its fourth descent is a proof by example",
     "A start tuned by a search is nothing that training would meet"),
):  # fmt: skip
    _add(
        _name,
        f"On {_kind}-concept data, the out-of-distribution loss can rise by {_least:.0%} of |x|²/2 before the last "
            f"of {_kind} descents",
        quantity=f"largest loss rise found before the last of {_kind} descents, relative to |x|²/2, the zero "
            "network's loss at test point x",
        kind="own", source=f"Appendix E.1 has no number; {_BAR}", low=_least, evidence="cases", over="starts followed",
        why=_why, doubt=_doubt,
    )(partial(_largest_rise, kind=_kind))  # fmt: skip


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw numbers of descents, rises, counts against hysteresis, and the losses of the best starts found."""
    return [_statistics(run), *([_found(run)] if bool((run.rise > 0).any()) else [])]


def _samples(run: xr.Dataset) -> Iterator[tuple[int, str, str, xr.Dataset]]:
    """Yield the index and name of each data set, each law, and their sample."""
    for k, name in enumerate(run.data.values.tolist()):
        for law in LAWS:
            yield k, name, law, run.sel(data=name, law=law)


def _statistics(run: xr.Dataset) -> Figure:
    panels: tuple[list[Line], ...] = ([], [], [], [])  # how many, how far, two or more, three or more
    rows = []
    for k, name, law, one in _samples(run):
        counts, total = one.counts.values, float(one.counts.sum())
        style: Literal["solid", "dashed"] = "solid" if law == "normal" else "dashed"
        some = counts > 0
        at_least = [one.counts_at.sel(descents=slice(n, None)).sum("descents").values / total for n in (2, 3)]
        curves = (
            (run.descents.values[some], counts[some] / total),
            (10**run.log_rise.values, np.cumsum(one.rises.values[::-1])[::-1] / total),
            *((run.hysteresis.values[1:], share[1:]) for share in at_least),
        )
        for n, (x, y) in enumerate(curves):
            if n < 3 or law == "uniform":
                panels[n].append(Line(x=x, y=y, group=f"{name}, {law}", color=k, style=style))
        shares = (float(one.counts.sel(descents=n)) / total for n in range(1, 6))
        rows.append((name, law, int(total), *shares, float(one.largest_rise)))
    share, log_share = Axis("share of the starts"), Axis("share of the starts", scale="log")
    h = Axis("hysteresis, over the first loss", scale="log")
    axes = (
        ("how many", Axis("descents"), log_share),
        ("how far", Axis("largest rise / (|x|²/2)", scale="log"), log_share),
        ("two or more", h, share),
        ("three or more", h, log_share),
    )
    return Figure(
        name="statistics",
        title="Numbers of descents and heights of rises over random starts",
        caption=f"{int(run.counts.sum()):,} random starts at the scale of the paper's figures. Top: shares by number "
        "of descents at hysteresis 0, and share with a rise between descents of at least the value on the axis. "
        "Bottom: shares with two or more and three or more descents if rises below the hysteresis do not count. "
        "Dashed: entries of U uniform from 0 to the scale, as in the authors' programs; solid: normal entries.",
        panels=tuple(
            Panel(title=title, x=x, y=y, marks=tuple(marks))
            for (title, x, y), marks in zip(axes, panels, strict=True)
        ),
        table=Table(
            columns=("data", "law", "starts", "P(1)", "P(2)", "P(3)", "P(4)", "P(5)", "largest rise"), rows=tuple(rows)
        ),
    )  # fmt: skip


def _found(run: xr.Dataset) -> Figure:
    panels = [
        Panel(
            title=f"{_SEARCHES[kind].title}: rise {float(one.rise):.3f}",
            x=Axis("time", "t", scale="log"),
            y=Axis("loss / (|x|²/2)", range=(0.0, 1.05)),
            marks=(Line(x=one.curve_time.values, y=one.curve.values, color=0),),
        )
        for kind in run.kind.values.tolist()
        if float((one := run.sel(kind=kind)).rise) > 0
    ]
    return Figure(
        name="found",
        title="Loss from the starts with the largest rise before the last descent",
        caption="Loss out of distribution against time from the starts found, with entries of U of at most 0.3, or of "
        f"at most 4 for large weights. {len(panels)} of {run.sizes['kind']} searches found a start.",
        panels=tuple(panels),
    )


entry = Entry(
    "concept-learning/descents",
    "Number of descents of the loss out of distribution over hundreds of thousands of starts", citation=CITATION,
    source="Section 4.2.2, E.1", params=Params,
    quick=dict(starts=256, scales=(4.0,), more=16, tasks=2, of_task=32, pool=512, generations=0),
    paper=dict(starts=150_000, more=8192, tasks=256, pool=32_768, generations=60), run=run, claims=claims,
    figures=figures,
)  # fmt: skip
