"""Theorem 4.1: the direction of diagonal weights approaches a solution of the ℓ1 problem.

The diagonal flow from w₊ = w₋ = ω₀ is followed to ln t = 1e7 and compared with the certified solution β* of the ℓ1
problem, with multipliers λ. The theorem is judged on raw Gaussian data, with the rate at which the error of β / μ
falls. Conditioned instances come second: they are accepted only if the law of the margins predicts a direction that is
off by at most 0.5 / ln t, so that their bars test the solver and the law. Both meet Assumptions 2 and 3.

The error falls like 1 / ln t at best. A weight off the support grows like μ to the power |Σ_k λ_k B_k,j|, which is near
1 for some coordinate of raw data: its share of the direction, and the error, then fall like a small power of 1 / ln t.

    error      |β / μ - β*| / |β*|
    objective  |β / μ|₁ over the dual bound, less 1: distance from a global solution, unique or not
    margins    u_k - [ln t + ln μ + ln(C_k / λ_k)] for λ_k > 0, C = (2/n) (-l'(γ)) gap
    loss       2 t μ (L - L*) / |β*|₁, less 1

The last two are laws that follow from the proof: φ = λ ln μ makes the rates 2 r = λ / (t μ).
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.shared.curves import flow_curves
from saddlescope.plot import Axis, Figure, Line, Mark, Panel
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.metric import Metric
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData

_LATE, _ASTRONOMICAL = 1e7, 690.7755278982137  # ln t; the second is t = 1e300

_DECADES = (1e3, 1e4, 1e5, 1e6, 1e7)  # ln t


class Params(EntryParams):
    """Instances and initial scale."""

    samples: tuple[int, ...] = param((4, 10, 20), "number of samples n of each size", ge=1)
    tokens: tuple[int, ...] = param((5, 5, 10), "number of tokens per sample L of each size", ge=1)
    dims: tuple[int, ...] = param((8, 50, 200), "dimension d of each size", ge=1)
    instances: int = param(4, "number of conditioned data sets of each size, each with both losses", ge=1)
    raw: int = param(20, "number of Gaussian data sets of each size but the largest", ge=2)
    scale: float = param(0.3, "initial scale ω₀ of the weights", gt=0, scale="log")
    marks: int = param(33, "number of recorded times from ln t = 1 to 1e7", ge=9)
    seed: int = param(700, "seed of the first data set; the others count up", ge=0)

    def check(self) -> None:
        sizes = self.samples, self.tokens, self.dims
        if len({len(each) for each in sizes}) > 1:
            raise InputError(f"samples, tokens and dims must be as many, one of each per size; got {sizes!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow all flows, and solve their ℓ1 problems."""
    from saddlescope.models.tokens.generators import conditioned_tokens
    from saddlescope.papers.softmax_attention.shared.separable_tokens import separable_gaussian_tokens

    times = np.unique([*np.geomspace(1, _LATE, params.marks), *_DECADES, _ASTRONOMICAL])
    sizes = list(zip(params.samples, params.tokens, params.dims, strict=True))
    jobs: list[tuple[str, str, Callable[[], TokenData], str]] = []
    for size in sizes:
        for k in range(params.instances):
            make = partial(conditioned_tokens, *size, seed=params.seed + k)
            jobs += [
                (f"conditioned {size} {k}, {kind}", "conditioned", make, kind) for kind in ("exponential", "logistic")
            ]
    for size in sizes[: max(1, len(sizes) - 1)]:
        for k in range(params.raw):
            make = partial(separable_gaussian_tokens, *size, seed=params.seed + k)
            jobs.append((f"Gaussian {size} {k}", "raw", make, "exponential"))
    parts: list[xr.Dataset] = []
    for (k, (name, group, make, kind)), step in context.steps(enumerate(jobs)):
        step.report(0.0, name)
        parts.append(step.cached(f"flow-{k}", partial(_follow, name, group, make, kind, times, params.scale)))
    example = _follow_examples(sizes[0], params, times)
    context.report(1.0, "done")
    flows = xr.concat(parts, "case", data_vars="all", coords="minimal", compat="equals", join="exact")
    return xr.merge([flows, example]).assign_attrs(scale=params.scale)


def _follow(
    name: str, group: str, make: "Callable[[], TokenData]", kind: str, times: np.ndarray, scale: float
) -> xr.Dataset:
    """Follow one flow and compare it with its ℓ1 solution."""
    from saddlescope.flow import diagonal_margin_flow
    from saddlescope.models.tokens.assumptions import check_token_assumptions
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.theory.attention.svm import l1_svm

    data = make()
    svm = l1_svm(data)
    loss = SelectionLoss(data.optimal_scores, data.gaps, kind)
    flow = diagonal_margin_flow(loss, data.features, scale, log_until=times[-1], record=times, tolerance=1e-7)
    direction, mu = flow.direction, flow.margin
    push = -data.optimal_scores if kind == "exponential" else -np.logaddexp(0.0, data.optimal_scores)
    active = svm.multipliers > 1e-9 * svm.multipliers.max()
    with np.errstate(divide="ignore", invalid="ignore"):
        law = np.log(2 / data.samples) + push[:, None] + np.log(data.gaps / svm.multipliers)
        off = flow.margins - (flow.log_times + np.log(mu))[:, None, None] - law
        of_loss = 2 * np.exp(flow.log_times + flow.log_excess) * mu / np.abs(svm.beta).sum() - 1
    assumptions = check_token_assumptions(data, np.zeros(data.dim))
    large = np.abs(direction[-1]) > 1e-3 * np.abs(direction[-1]).max()
    return xr.Dataset(
        {
            "group": group,
            "error": ("time", np.linalg.norm(direction - svm.beta, axis=1) / np.linalg.norm(svm.beta)),
            "objective": ("time", np.abs(direction).sum(axis=1) / svm.certificate.dual - 1),
            "margin_law": ("time", np.where(mu > 0, np.abs(np.where(active, off, 0.0)).max(axis=(1, 2)), np.nan)),
            "loss_law": ("time", np.where(mu > 0, of_loss, np.nan)),
            "assumptions_hold": bool(assumptions.equal_scores.holds and assumptions.small_initial_loss.holds),
            "support": int(svm.support.sum()),
            "same_support": bool(np.array_equal(large, svm.support)),
            "gap": svm.certificate.gap,
            "evaluations": flow.evaluations,
            "energy_defect": float(flow.energy_defects.max()),
        },
        coords={"log_time": ("time", flow.log_times), "case": name},
    )


def _follow_examples(size: tuple[int, int, int], params: Params, times: np.ndarray) -> xr.Dataset:
    """Return the directions of one conditioned and one raw instance, for the figure."""
    from saddlescope.flow import diagonal_margin_flow
    from saddlescope.models.tokens.generators import conditioned_tokens
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.papers.softmax_attention.shared.separable_tokens import separable_gaussian_tokens
    from saddlescope.theory.attention.svm import l1_svm

    found = {}
    for name, make in (("conditioned", conditioned_tokens), ("raw", separable_gaussian_tokens)):
        data = make(*size, seed=params.seed)
        loss = SelectionLoss(data.optimal_scores, data.gaps)
        flow = diagonal_margin_flow(
            loss, data.features, params.scale, log_until=times[-1], record=times, tolerance=1e-7
        )
        found[f"{name}_direction"] = (("time", "entry"), flow.direction)
        found[f"{name}_beta"] = ("entry", l1_svm(data).beta)
    return xr.Dataset(found)


def _select_group(run: xr.Dataset, name: str) -> xr.Dataset:
    """Return the conditioned or the raw flows."""
    return run.isel(case=[group == name for group in run.group.values.tolist()])


def _values_at(run: xr.Dataset, variable: str, log_time: float, group: str = "conditioned") -> np.ndarray:
    cases = _select_group(run, group)
    return np.abs(cases[variable].values[:, int(np.argmin(np.abs(cases.log_time.values - log_time)))])


def _largest_at(variable: str, log_time: float, run: xr.Dataset) -> Estimate:
    """Return the largest absolute value of a variable at one time, conditioned data; both losses are one case."""
    values = _values_at(run, variable, log_time)
    defect = float(_select_group(run, "conditioned").energy_defect.max())
    return Estimate.largest(
        values.reshape(-1, 2).max(axis=1), f"{len(values)} flows; their energy balances to {defect:.1e}"
    )


claims = Claims()


@claims.add(
    "assumptions",
    "The drawn token data have equal wrong-token scores and a small initial loss at zero weights (Assumptions 2 and "
        "3)", quantity="share of flows whose token data, well-conditioned or Gaussian, meet both assumptions",
    kind="own", source="The conditions of Theorem 4.1; exact", low=1.0,
    evidence="cases", over="data sets",
    why="The theorem speaks only about data that meet both assumptions, so every data set of the run must",
    doubt="The generator makes gaps large on purpose, so this tests the check more than the data",
)  # fmt: skip
def _assumptions_share(run: xr.Dataset) -> Estimate:
    holds, both = run.assumptions_hold, _select_group(run, "conditioned").sizes["case"]  # two losses on each data set
    return Estimate(float(holds.mean()), remark=f"{holds.size} flows, raw data included", n=holds.size - both // 2)


@claims.add(
    "raw-comes-nearer",
    "On Gaussian data, the attention direction's ℓ1 norm nears its minimum from each decade of ln t to the next",
    quantity="number of flows whose diagonal weights over smallest margin have an ℓ1 norm no nearer its dual bound at "
        "a later of ln t = 691, 1e3, 1e4 ... 1e7", kind="reading",
    source="Theorem 4.1, if the limit exists; exact count over the Gaussian flows", high=0.0,
    evidence="cases", over="Gaussian data sets", needs=("assumptions",),
    why="The theorem's limit has the least norm, so a flow on its way there loses excess between times that are "
        "decades of ln t apart",
    doubt="A fall is not a limit: in 50 dimensions half a percent of excess is left at the last time, and it falls "
        "ever more slowly",
)  # fmt: skip
def _gaussian_exceptions(run: xr.Dataset) -> Estimate:
    values = np.array([_values_at(run, "objective", log_time, "raw") for log_time in (_ASTRONOMICAL, *_DECADES)])
    rises = np.any(np.diff(values, axis=0) >= 0, axis=0)
    return Estimate.number(rises, f"of {len(rises)} flows; the largest excess is {values[-1].max():.2g} at the end")


@claims.add(
    "raw-distance-falls",
    "On Gaussian data, directions come nearer the ℓ1 max-margin solution from t = 1e300 to ln t = 1e7",
    quantity="number of flows whose weights over smallest margin are no nearer that solution at the later time",
    kind="reading", source="Theorem 4.1, if the limit exists; exact count over the Gaussian flows", high=0.0,
    evidence="cases", over="Gaussian data sets", needs=("assumptions",),
    why="The certified solution is unique for such data, so the theorem's limit of the direction can only be this "
        "point",
    doubt="Some flows come nearer by a few percent of their distance only, and no finite time shows where they end",
)  # fmt: skip
def _gaussian_distance_exceptions(run: xr.Dataset) -> Estimate:
    early, late = (_values_at(run, "error", log_time, "raw") for log_time in (_ASTRONOMICAL, _LATE))
    return Estimate.number(late >= early, f"of {len(late)} flows; largest distance {late.max():.2g} at the end")


@claims.add(
    "raw-rate",
    "On Gaussian data, the attention direction's median distance from the ℓ1 solution falls more slowly than 1/√(ln t)",
    quantity="median exponent of the distance as a power of ln t, between ln t = 1e5 and 1e7, over flows", kind="own",
    source="Not in the paper, whose theorem has no rate; bounds after a pilot on seeds 5000 to 5009 (median -0.05)",
    low=-0.5, high=0.0, sizes=("default", "paper"),
    evidence="sample", over="Gaussian data sets", needs=("assumptions",),
    why="The exponent between two late times is -1 where the error is a constant over ln t, and near 0 where a weight "
        "off the support decays slowly",
    doubt="Two sizes are mixed in equal parts, and a few of the small data sets have reached 1/ln t by then",
)  # fmt: skip
def _gaussian_exponent(run: xr.Dataset) -> Estimate:
    early, late = (_values_at(run, "error", log_time, "raw") for log_time in (1e5, _LATE))
    slopes = np.log(late / early) / np.log(100.0)
    return Estimate.median(slopes, f"{len(slopes)} flows, {slopes.min():.2g} to {slopes.max():.2g}")


@claims.add(
    "raw-is-far",
    "On Gaussian data, the direction of diagonal attention weights is far from the ℓ1 max-margin solution at t = 1e300",
    quantity="mean distance of weights over smallest margin from that solution, relative to its norm, at t = 1e300, "
        "over flows", kind="own",
    source="Not in the paper: the theorem has no rate; the bound from trial runs on other seeds, 8 to 54 %", low=0.05,
    sizes=("default", "paper"),  # the quick size has three data sets
    evidence="sample", over="Gaussian data sets", needs=("assumptions",),
    why="If the mean distance is a fair part of the solution's length, no time that a computer can name shows the "
        "limit",
    doubt="The mean depends on the two sizes chosen, and our bar of 5 % is far below what the trial runs gave",
)  # fmt: skip
def _gaussian_error(run: xr.Dataset) -> Estimate:
    return Estimate.mean(_values_at(run, "error", _ASTRONOMICAL, "raw"))


for _time, _bound in (("1e3", 1e-3), ("1e4", 1e-4), ("1e7", 1e-6)):
    claims.add(
        f"direction-{_time}",
        f"On well-conditioned data, the direction of diagonal attention weights is near the ℓ1 max-margin solution "
            f"at ln t = {_time}",
        quantity=f"largest distance of weights over smallest margin from that solution, relative to its norm, at ln "
            f"t = {_time}, over flows", kind="own",
        source="Theorem 4.1 is about the limit; the bar is this project's, twice what instances are selected for",
        high=_bound, evidence="cases", over="conditioned data sets", needs=("assumptions",),
        why=f"A direction that converges like a constant over ln t is within its bar at ln t = {_time} if theory and "
            "solver agree",
        doubt=f"Instances are accepted only if their predicted error is at most 0.5/ln t, so the bar of {_bound:g} "
            "tests law and solver, not the theorem",
    )(partial(_largest_at, "error", float(_time)))  # fmt: skip

claims.add(
    "global",
    "On well-conditioned data, the direction of diagonal attention weights approaches the least ℓ1 norm with margins "
        "of 1",
    quantity="largest relative distance of the ℓ1 norm of weights over smallest margin from its dual bound at ln t = "
        "1e7, over flows", kind="own", source="Theorem 4.1; the bound is the one of the direction", high=1e-6,
    evidence="cases", over="conditioned data sets", needs=("assumptions",),
    why="The norm over its dual bound measures the distance from any global solution, even if it were not unique",
    doubt="Conditioned instances are selected for early convergence, and the bar is that of the direction",
)(partial(_largest_at, "objective", _LATE))  # fmt: skip


@claims.add(
    "sparse",
    "On well-conditioned data, the large entries of diagonal attention weights are the support of the ℓ1 "
        "max-margin solution",
    quantity="share of flows whose weights above 1e-3 of the largest at ln t = 1e7 are exactly that support",
    kind="own", source="Section 4.1, implicit regularization; exact count over the conditioned flows", low=1.0,
    evidence="cases", over="conditioned data sets", needs=("assumptions",),
    why="Section 4.1 expects sparse limits, and a weight counts as zero here when it is a thousandth of the largest",
    doubt="The generator plants three coordinates and accepts data with this support alone",
)  # fmt: skip
def _same_support_share(run: xr.Dataset) -> Estimate:
    cases = _select_group(run, "conditioned")
    supports = f"{int(cases.support.min())} to {int(cases.support.max())} entries"
    flows = cases.sizes["case"]
    return Estimate(float(cases.same_support.mean()), remark=f"{supports}, {flows} flows", n=flows // 2)


_LAW = "Follows from the proof's multiplier; its next term is of order 1 / μ, so that 1e-2 is 100 times it"

claims.add(
    "margins",
    "On well-conditioned data, active margins of diagonal attention approach ln t plus log smallest margin plus a "
        "predicted constant",
    quantity="largest absolute deviation from this law, its constant from the KKT multiplier, at ln t = 1e4, over "
        "active margins and flows", kind="own", source=_LAW, high=1e-2,
    evidence="cases", over="conditioned data sets", needs=("assumptions",),
    why="The proof's multipliers fix the constant of each active margin, so the deviation tests the multipliers along "
        "with the limit",
    doubt="Selected instances have small constants, and flow and law use the same certified solution",
)(partial(_largest_at, "margin_law", 1e4))  # fmt: skip

claims.add(
    "loss",
    "On well-conditioned data, the excess loss of diagonal attention times t and smallest margin approaches half the "
        "least ℓ1 norm",
    quantity="largest relative deviation of this product from half the ℓ1 norm of the max-margin solution at ln t = "
        "1e4, over flows", kind="own", source=_LAW, high=1e-2,
    evidence="cases", over="conditioned data sets", needs=("assumptions",),
    why="Active margins that obey their law add up to this product, so it checks all of them by one observable number",
    doubt="It follows from the margins law and is no second test of the theorem",
)(partial(_largest_at, "loss_law", 1e4))  # fmt: skip


@claims.add(
    "right-hand-sides",
    "Solving diagonal attention flows on well-conditioned data to ln t = 1e7 takes at most 2000 right-hand-side "
        "evaluations",
    quantity="largest number of evaluations of the gradient flow's right-hand side up to ln t = 1e7, over flows",
    kind="own", source="This project's bar", high=2000.0,
    evidence="cases", over="conditioned data sets",
    why="The number of evaluations is the cost of a flow on any machine, unlike seconds",
    doubt="The bar is ours, for one solver at one tolerance and for easy data",
)  # fmt: skip
def _most_evaluations(run: xr.Dataset) -> Estimate:
    return Estimate.largest(_select_group(run, "conditioned").evaluations.values.reshape(-1, 2).max(axis=1))


metrics = (
    Metric(
        name="error", quantity="final distance of the direction from the ℓ1 solution, median over instances",
        statistic=lambda run: float(run.error.isel(time=-1).median()), scale="log",
    ),
    Metric(
        name="excess", quantity="final excess of the ℓ1 objective, median over instances",
        statistic=lambda run: float(run.objective.isel(time=-1).median()), scale="log",
    ),
    Metric(
        name="support", quantity="coordinates in the support, mean over instances",
        statistic=lambda run: float(run.support.mean()),
    ),
)  # fmt: skip


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw errors over time, the laws, and the entries of two directions."""
    time = run.log_time.values[0] if run.log_time.ndim > 1 else run.log_time.values
    errors, laws, entries = [], [], []
    for color, (name, label) in enumerate({"conditioned": "conditioned data", "raw": "raw Gaussian data"}.items()):
        of = _select_group(run, name)
        errors += flow_curves(time, of.error.values, label, color, width=(1.2, 1.0)[color])
        if name == "conditioned":
            laws += flow_curves(time, np.abs(of.margin_law.values), "margins", 2)
            laws += flow_curves(time, np.abs(of.loss_law.values), "loss", 3)
        at = run[f"{name}_beta"].values
        largest = 1.3 * float(np.abs(at).max())
        marks: list[Line | Mark] = []
        for k, j in enumerate(np.argsort(-np.abs(at), kind="stable")):
            marks.append(Line(x=time, y=run[f"{name}_direction"].values[:, j], color=k % 6, width=1.4))
            marks += [Mark(at=float(at[j]), axis="y", color=k % 6)] if at[j] != 0 else []
        x, y = Axis("ln t", scale="log", range=(3.0, 1e7)), Axis("β / μ", range=(-largest, largest))
        entries.append(Panel(title=f"entries of β/μ, {label}", x=x, y=y, marks=tuple(marks)))
    late = Axis("ln t", scale="log")
    return [
        Figure(
            name="direction",
            title="Direction of diagonal weights and the ℓ1 solution over time",
            caption="Top left: relative distance of the direction β/μ from the certified ℓ1 solution against time; the "
            "dotted guide falls like 1 / ln t, and t = 1e300 is at ln t = 691. Top right: deviations of margins and "
            "loss from the laws that follow from the proof, conditioned data. Below: the entries of two directions; "
            "horizontal lines are the nonzero entries of the solution.",
            panels=(
                Panel(
                    title="error of the direction",
                    x=late,
                    y=Axis("|β/μ − β*| / |β*|", scale="log"),
                    marks=(*errors, Line(x=time[time > 10], y=1 / time[time > 10], style="dotted", label="1 / ln t")),
                ),
                Panel(title="laws", x=late, y=Axis("deviation", scale="log"), marks=tuple(laws)),
                *entries,
            ),
        )
    ]


entry = Entry(
    "softmax-attention/theorem-4-1",
    "Theorem 4.1: the direction of diagonal weights approaches a solution of the ℓ1 problem", citation=CITATION,
    source="Theorem 4.1, section 4.1", params=Params,
    quick=dict(samples=(4,), tokens=(5,), dims=(8,), instances=2, raw=3, marks=17), paper=dict(instances=20, raw=50),
    run=run, claims=claims, figures=figures, metrics=metrics,
)  # fmt: skip
