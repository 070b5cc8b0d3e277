"""Assumptions D.1 to D.5: the starts at which they hold, and the dynamics far outside them.

The lemmas of appendix D assume that W(0) is small and that the strengths a_k differ enough. By the paper, these
assumptions "all commonly hold in the practice". This entry computes the largest omega (the smallest entry of W(0)) at
which they hold, compares them with the data of the figures, and follows starts of larger scale on these data. It uses
logarithms throughout, since the constant P is as large as omega is small.

    margin  of the data: the least a_i - 3 a_j over pairs with a_i > a_j, over the least strength; D.5 needs it positive
    ordered a run in which the major entries w_kk pass 1/2 in the order of the strengths
    minor   the largest |w_ij| of a run, i other than j; by Assertion D.1 and Assumption D.3 at most 0.4
"""

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.shared.authors_programs import CODE, PROGRAMS
from saddlescope.papers.concept_learning.shared.random_starts import FIGURES, Signal, draw_starts
from saddlescope.papers.concept_learning.shared.two_layer_runs import strengths_and_test_point
from saddlescope.plot import Axis, Figure, Mark, Panel, Table, lines
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.grid import cached_rows
from saddlescope.reproduction.parameters import EntryParams, param

# The paper does not print the data of Figure 5; these are the two concepts of the authors' program
_DATA = FIGURES | {"Figure 5": Signal(PROGRAMS["Figure 5"].mu[:2], PROGRAMS["Figure 5"].sigma[:2])}
_KAPPAS = (1.1001, 1.11, 1.13, 1.16, 1.2, 1.3, 1.5, 2.0)  # over which the largest omega is maximised
_SMALL = 0.4  # P beta omega in D.3
_MARKED, _UNTIL = (0.3, 100.0), 400.0  # W is recorded between the first two times; runs end at the last


class Params(EntryParams):
    """Two and three concepts in theory; the data of the figures in runs."""

    ratios: int = param(200, "number of ratios of the strengths, from 3.05 to 1e5", ge=10)
    betas: tuple[float, ...] = param(
        (1.0, 2.0, 10.0), "β, the largest |w_ij(0)| over the smallest", ge=1, le=1e6, scale="log"
    )
    settings: int = param(4000, "number of random choices of all constants that are checked", ge=10)
    scales: tuple[float, ...] = param(
        (0.1, 0.01, 0.001, 0.0001, 0.00001), "standard deviations of the entries of U(0)", gt=0, order="decreasing",
        scale="log",
    )  # fmt: skip
    starts: int = param(1024, "random starts at each scale on the data of each figure", ge=10)
    marks: int = param(401, "number of times at which W is recorded", ge=10)
    seed: int = param(1, "seed of the constants and the starts", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Compute the largest omega, count random constants, and follow starts on the data of the figures."""
    theory, runs = context.split(0.2, 0.8)
    theory.report(0.0, "the largest omega")
    computed = theory.cached("theory", lambda: _largest_omegas(params))
    axes = {"data": tuple(_DATA), "scale": params.scales}
    followed = cached_rows(axes, partial(_follow_starts, params), runs, name="runs")
    context.report(1.0, "done")
    return xr.merge([computed, followed], join="exact")


def _largest_omegas(params: Params) -> xr.Dataset:
    ratios = np.geomspace(3.05, 1e5, params.ratios)
    printed, corrected, without = _count_settings(params)
    strengths = [np.sort(strengths_and_test_point(*data)[0]) for data in _DATA.values()]
    margins = [min(b - 3 * c for k, c in enumerate(a) for b in a[k + 1 :]) / a[0] for a in strengths]
    omegas = [
        _largest_log10_omega(a.tolist(), params.betas[0]) if margin > 0 else math.nan
        for a, margin in zip(strengths, margins, strict=True)
    ]
    return xr.Dataset(
        {
            "log10_omega": (
                ("ratio", "beta"), np.array([[_largest_log10_omega([1.0, r], b) for b in params.betas] for r in ratios])
            ),
            "log10_omega_three": (
                "ratio", np.array([_largest_log10_omega([1.0, r, r**2], params.betas[0]) for r in ratios])
            ),
            "settings": params.settings,
            "printed_hold": printed,
            "corrected_hold": corrected,
            "without_data_hold": without,
            "margin": ("data", np.array(margins)),
            "figure_log10_omega": ("data", np.array(omegas)),
        },
        coords={"ratio": ratios, "beta": list(params.betas), "data": list(_DATA)},
    )  # fmt: skip


def _largest_log10_omega(strengths: list[float], beta: float) -> float:
    """Return log10 of the largest omega over kappa."""
    from saddlescope.theory.concepts import largest_start

    return max(largest_start(strengths, beta=beta, kappa=kappa).log_omega for kappa in _KAPPAS) / math.log(10)


def _count_settings(params: Params) -> tuple[int, int, int]:
    """Count choices of constants that satisfy the assumptions as printed, corrected, and with an empty direction."""
    from saddlescope.theory.concepts import check_assumptions, largest_start

    rng = np.random.default_rng((params.seed, 1000))
    held = np.zeros(3, int)
    for _ in range(params.settings):
        ratio, beta = 3 + 10 ** rng.uniform(-1, 4), 1 + 10 ** rng.uniform(-2, 1)
        constants = {"K": 20 * 10 ** rng.uniform(0, 1), "kappa": 1.1 + 10 ** rng.uniform(-3, 0)}
        best = largest_start([1.0, ratio], beta=beta, **constants)
        more, less = rng.exponential(30.0), rng.exponential(0.3 if rng.random() < 0.5 else 300.0)
        tuned: dict[str, Any] = {
            **constants, "C": 1 + 10 ** rng.uniform(-2, 1.5), "log_P": best.log_P + more,
            "log_scale": best.log_omega - more - less,
        }  # fmt: skip
        two, three = (np.full((d, d), 1.0) + (beta - 1) * np.eye(d) for d in (2, 3))
        held += [
            check_assumptions([1.0, ratio], two, **tuned).hold,
            check_assumptions([1.0, ratio], two, corrected=True, **tuned).hold,
            check_assumptions([0.0, 1.0, ratio], three, **tuned).hold,
        ]
    return int(held[0]), int(held[1]), int(held[2])


def _follow_starts(params: Params, k: int, cell: tuple[str, float], report: Report) -> xr.Dataset:
    """Return counts of ordered, small and learned starts on the data of one figure, and quantiles of `minor`."""
    from saddlescope.flow import Ending, symmetric_flows

    name, scale = cell
    report(0.0, f"{name}, scale {scale:g}")
    a, x = strengths_and_test_point(*_DATA[name])
    U = draw_starts(np.random.default_rng((params.seed, k)), "normal", scale, (params.starts, len(a), len(a)))
    times = np.geomspace(*_MARKED, params.marks)
    ordered, minor, learned = [], [], 0
    for first in range(0, params.starts, 256):  # as many as fit in memory with their recorded W
        flows = symmetric_flows(a, U[first : first + 256], test_point=x, until=_UNTIL, record=times, tolerance=1e-8)
        major = np.einsum("ntii->nti", flows.W)
        passed = half_times(flows.times, major)[:, np.argsort(-a)]
        ordered.append(np.all(np.diff(passed, axis=1) > 0, axis=1))
        minor.append(np.abs(flows.W - major[..., None] * np.eye(len(a))).max(axis=(1, 2, 3)))
        learned += int(np.sum(flows.endings == Ending.LEARNED))
    minors, quantiles = np.concatenate(minor), (0.1, 0.5, 0.9)
    return xr.Dataset(
        {
            "starts": params.starts,
            "ordered": np.concatenate(ordered).sum(),
            "small": np.sum(minors <= _SMALL),
            "learned": learned,
            "minor": ("quantile", np.quantile(minors, quantiles)),
        },
        coords={"quantile": list(quantiles)},
    )


def half_times(times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return when values (starts, times, d) first pass 1/2, interpolated, (starts, d); NaN where they do not."""
    after = np.argmax(values > 0.5, axis=1)
    before = np.maximum(after - 1, 0)
    high, low = (np.take_along_axis(values, at[:, None], axis=1)[:, 0] for at in (after, before))
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(after > 0, (0.5 - low) / (high - low), 0.0)
    return np.where(high > 0.5, times[before] + part * (times[after] - times[before]), np.nan)


claims = Claims()


@claims.add(
    "largest-omega",
    "Assumptions D.1 to D.5 on small initial weights W = UUᵀ require, for two concepts, an entry below 1e-60",
    quantity="log10 of the smallest absolute entry of W(0), largest value allowed over ratios of concept strengths "
        "and spreads of entries",
    kind="own", source="Assumptions D.1 to D.5 as printed; the bound is this project's", high=-60.0, unit="log10",
    evidence="identity", over="ratios of strengths",
    why="The largest value that all five assumptions leave room for is what they require at the least",
    doubt="The maximum is over grids of ratio, spread and kappa; between grid points it could be slightly larger",
)  # fmt: skip
def _largest_omega(run: xr.Dataset) -> Estimate:
    best = run.log10_omega.where(run.log10_omega == run.log10_omega.max(), drop=True).ratio.values[0]
    remark = f"at strengths in the ratio {best:.3g}; three concepts: {float(run.log10_omega_three.max()):.1f}"
    return Estimate.largest(run.log10_omega.values, remark)


@claims.add(
    "in-practice",
    "In the paper's four figure data sets, any two concept strengths (second moments) differ by more than a factor 3",
    quantity="number of the data sets of Figures 5, 8, 9 and 10 with a strength at most three times a smaller one, "
        "against Assumption D.5", kind="reading",
    source='Appendix D.1: the assumptions "all commonly hold in the practice"; the bound: on all four data sets, of '
        f"Figure 5 from {CODE}", high=0.0, evidence="cases", over="data sets",
    why="The figures are the paper's own practice, and the factor is a necessary condition for D.5",
    doubt="The factor 3 may be meant for the proofs; the order of learning survives without it",
)  # fmt: skip
def _excluded_data(run: xr.Dataset) -> Estimate:
    remark = ", ".join(f"{name} {float(run.margin.sel(data=name)):.2f}" for name in run.data.values.tolist())
    return Estimate.number(run.margin.values <= 0, f"of 4; margins over alpha: {remark}")


_HELD = "number of random choices of concept strengths, initial scale and constants that satisfy"

for _of, _name, _statement, _quantity, _source, _low, _high, _why, _doubt in (
    (
        "printed", "can-be-met",
        "Some choices of all constants satisfy the printed Assumptions D.1 to D.5 on initial weights, data and step",
        f"{_HELD} all five assumptions", "Assumptions D.1 to D.5; the bound: one choice", 1.0, math.inf,
        "One choice that meets all five proves that the printed assumptions do not contradict each other",
        "Choices are drawn around the best one, so their share says nothing; all have weights below 1e-60",
    ),
    (
        "corrected", "contradiction",
        "No constants meet both Assumption D.5 on concept strengths and Assumption D.4 on growth with its constant P "
            "squared",
        f"{_HELD} all assumptions with P² in D.4",
        "this project's proof in saddlescope.theory.concepts; the proofs need P² by Corollary D.1", -math.inf, 0.0,
        "A single choice that meets both would disprove the proof of the contradiction",
        "Random choices cannot prove that there is none; the proof does, and it rests on our correction of D.1",
    ),
    (
        "without_data", "no-free-direction",
        "No choice of constants satisfies Assumptions D.1 to D.5 if the data have zero variance in one input "
            "direction",
        f"{_HELD} all assumptions, with a third direction of strength 0",
        "Assumption D.1, which has 0 < alpha <= a_k for all k", -math.inf, 0.0,
        "A direction of strength 0 is what d > s means, so none of the choices may pass",
        "It follows at once from D.1; the authors may have meant only directions with data",
    ),
):  # fmt: skip
    claims.add(
        _name, _statement, quantity=_quantity, kind="own", source=_source, low=_low, high=_high, evidence="cases",
        over="choices of constants", why=_why, doubt=_doubt,
    )(
        lambda run, of=f"{_of}_hold": Estimate(
            float(run[of]), remark=f"of {int(run.settings)} settings", n=int(run.settings)
        )
    )  # fmt: skip


def _least_share(run: xr.Dataset, *, of: str, up_to: float = math.inf) -> Estimate:
    """Return the share of starts on the data and at the scale, up to a largest one, where it is least."""
    one = run.sel(scale=run.scale <= up_to)
    shares = [
        (Estimate.share(float(cell[of]), float(cell.starts)), f"{name}, scale {scale:g}")
        for name, scale in itertools.product(one.data.values.tolist(), one.scale.values.tolist())
        for cell in [one.sel(data=name, scale=scale)]
    ]
    least, where = min(shares, key=lambda found: found[0].value)
    return Estimate(least.value, least.uncertainty, f"{where}: {least.remark}", least.n)


# 64 starts, as in the quick run, cannot decide shares near 1.
claims.add(
    "order",
    "From nearly all random initial weights of scale up to 0.001, the network learns concepts in order of strength",
    quantity="share of random initializations whose diagonal entries w_kk of UUᵀ pass 1/2 in order of concept "
        "strength, smallest over data sets and scales", kind="reading",
    source="Section 4.2.1; the bound is from trial runs on other seeds", low=0.98, sizes=("default", "paper"),
    evidence="sample", over="random starts",
    why="The times at which entries pass 1/2 say which concept is learned first, and the worst cell bounds all",
    doubt="The worst of several cells is judged by its own interval; scales of a thousandth are rare in practice",
)(partial(_least_share, of="ordered", up_to=0.0011))  # fmt: skip

claims.add(
    "order-of-figures",
    "From at least 90% of random initial weights of scale 0.1, the network learns the concepts in order of strength",
    quantity="share of random initializations whose diagonal entries w_kk of UUᵀ pass 1/2 in order of concept "
        "strength, smallest over data sets",
    kind="reading", source="Section 4.2.1; the bound is this project's", low=0.9, sizes=("default", "paper"),
    evidence="sample", over="random starts",
    why="Scale 0.1 is that of the paper's figures, so the share says how far its order holds there",
    doubt="The bound of 90% is ours, and the worst of four data sets is close to it",
)(lambda run: _least_share(run.isel(scale=[0]), of="ordered"))  # fmt: skip

claims.add(
    "minor-small",
    "From nearly all random initial weights, off-diagonal entries of W = UUᵀ always stay below 0.4 in absolute value",
    quantity="share of random initializations with every off-diagonal |w_ij| at most 0.4 at all times, smallest over "
        "data sets and scales",
    kind="own", source="Assertion D.1 with Assumption D.3; the bound is from trial runs on other seeds", low=0.97,
    sizes=("default", "paper"), evidence="sample", over="random starts",
    why="0.4 is the size that D.3 allows to entries of the initial phase, which minor entries never leave by D.8",
    doubt="The paper asserts it under its assumptions only, at weights sixty powers of ten smaller",
)(partial(_least_share, of="small"))  # fmt: skip


@claims.add(
    "learned", "From every random initialization, the symmetric network W = UUᵀ learns all concepts in the end",
    quantity="number of random initializations that do not end with W within 0.01 of the identity, over data sets "
        "and scales",
    kind="own", source="exact, since d/dt log det W = 4 tr(A (1 - W)); appendix E.3 states the contrary", high=0.0,
    evidence="cases", over="random starts",
    why="One start that ends elsewhere would be a failure mode of the flow",
    doubt="The end time is ours, and random starts are never exactly of lower rank",
)  # fmt: skip
def _unlearned(run: xr.Dataset) -> Estimate:
    starts = int(run.starts.sum())
    return Estimate(float((run.starts - run.learned).sum()), remark=f"of {starts}", n=starts)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the largest omega against the ratio of strengths, and order and minor entries against the scale."""
    scale = Axis("scale of U's entries", scale="log")
    omegas = (
        *lines(run.log10_omega, x="ratio", hue="beta", label="two concepts, β = {:g}"),
        *lines(run.log10_omega_three, x="ratio", label="three concepts", color=5, style="dashed"),
        Mark(at=-37.9, label="least float32", axis="y"),
    )
    ordered = lines(run.ordered / run.starts, x="scale", hue="data", grouped=True)
    minors = lines(run.minor.sel(quantile=0.5, drop=True), x="scale", hue="data", grouped=True)
    columns = (run.data, run.margin, run.figure_log10_omega)
    rows = tuple(zip(*(column.values.tolist() for column in columns), strict=True))
    return [
        Figure(
            name="omega",
            title="Starts that the assumptions allow, and runs from larger ones",
            caption="Left: the largest ω, the smallest entry of W(0), at which D.3, D.4 and D.5 as printed hold "
            "together, against the ratio of neighbouring strengths. Centre: the share of normal starts that learn the "
            "concepts in the order of their strengths, against the initial scale. Right: the median of the largest "
            "minor entry. The table has the margin of each figure's data in D.5, which must be positive, and log₁₀ of "
            f"the largest ω. Its maximum over all ratios and β is {float(run.log10_omega.max()):.1f}.",
            panels=(
                Panel(
                    title="assumptions hold below", x=Axis("ratio of strengths", scale="log"), y=Axis("log₁₀ ω"),
                    marks=omegas,
                ),
                Panel(title="in order", x=scale, y=Axis("share of starts", range=(0.0, 1.05)), marks=ordered),
                Panel(title="largest minor entry", x=scale, y=Axis("median |wᵢⱼ|", scale="log"), marks=minors),
            ),
            columns=3,
            table=Table(columns=("data", "margin / α", "log₁₀ ω"), rows=rows),
        )
    ]  # fmt: skip


entry = Entry(
    "concept-learning/assumptions",
    "Assumptions D.1 to D.5: the starts at which they hold, and the dynamics far outside them", citation=CITATION,
    source="Appendix D.1", params=Params,
    quick=dict(ratios=10, settings=60, scales=(0.1, 0.001), starts=64, marks=101),
    paper=dict(ratios=2000, settings=100_000, starts=16_384), run=run, claims=claims, figures=figures,
)  # fmt: skip
