"""Lemmas 4.1 and A.1: diagonal weights as keys times queries, as a difference of squares, and in closed form.

Lemma 4.1: the flows of β = ξ_k ⊙ ξ_q and of w = (w₊² - w₋²) / 2 are followed separately, in their parameters, by an
explicit solver of high order. The starts meet equation 4, β(0) = w(0) and equal sums of squares, and agree in nothing
else: β(0) is not 0, and the signs and the order of ξ_k and ξ_q are random.

    difference  |β - w| / |w|, largest entries
    drifts      of ξ_k² - ξ_q² over ξ_k² + ξ_q² at the start, and of w₊ w₋ over its start; both are conserved
    control     |β - w| / |w| from the same β(0) with other sums of squares

Lemma A.1: w₊ and w₋ are followed from w₊ = w₋ = ω₀, and φ = 2 ∫ r dt with them. ω₀ differs between coordinates; the
paper proves equal ones and states that the others are similar.

    closed form  |β - ω₀² sinh(Bφ)| / |β|, largest entries (equation 19)
    speed        the same for dβ/dt = 2 √(β² + ω₀⁴) ⊙ (-∇L), the second half of the lemma
    fall         the measured dL/dt over -⟨∇L, 2 √(β² + ω₀⁴) ⊙ ∇L⟩; NaN if a sample is lost, since the loss hardly falls
                 then (the logistic loss does not meet Assumption 3 here)

Equation 27 has 2/n in place of 2, but ∇L contains a factor 1/n already: the equation is wrong by a factor of n.

The data are Gaussian, with the paper's exponential loss and with the logistic one, to which the proofs extend.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
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
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.papers.softmax_attention.shared.parameter_flow import Case

_JUDGED_FROM = 3.0  # log10 t from which the bars hold

_VISIBLE = 1e-4  # fall of ln(L - L*) with ln t below which differences of times do not resolve it: a sample is lost

_APART = 0.01  # in ln t, between the five times from which dL/dt and dβ/dt are computed

_TIMES = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0, 70.0, 100.0)


class Params(EntryParams):
    """Sizes, instances and times of Lemma 4.1."""

    samples: tuple[int, ...] = param((4, 10), "number of samples n of each size", ge=1)
    tokens: tuple[int, ...] = param((5, 5), "number of tokens per sample L of each size", ge=1)
    dims: tuple[int, ...] = param((8, 50), "dimension d of each size", ge=1)
    instances: int = param(4, "number of data sets of each size, each with both losses", ge=1)
    scale: float = param(0.3, "typical size of w₊ and w₋ at the start", gt=0, scale="log")
    log10_times: tuple[float, ...] = param(_TIMES, "log10 of the recorded times", order="increasing")
    seed: int = param(0, "seed of the first data set and its start; the others count up", ge=0)

    def check(self) -> None:
        if len({len(self.samples), len(self.tokens), len(self.dims)}) > 1:
            sizes = self.samples, self.tokens, self.dims
            raise InputError(f"samples, tokens and dims must be as many, one of each per size; got {sizes!r}.")
        times = self.log10_times
        if times[-1] < _JUDGED_FROM or any(b - a < 0.1 for a, b in pairwise(times)):
            raise InputError(f"log10_times must rise by 0.1 or more, to {_JUDGED_FROM:g} or beyond; got {times!r}.")


class ClosedFormParams(Params):
    """Sizes, instances and times of Lemma A.1."""

    log10_times: tuple[float, ...] = param(
        (1.0, 3.0, 6.0, 10.0, 20.0, 40.0, 70.0, 100.0), "log10 of the recorded times", order="increasing"
    )
    seed: int = param(100, "seed of the first data set and its start; the others count up", ge=0)


def _run_cases(
    params: Params, context: RunContext, measure: "Callable[[int, Case, np.ndarray], xr.Dataset]", from_zero: bool
) -> list[xr.Dataset]:
    """Measure all cases by number at the log times, one after the other."""
    from saddlescope.papers.softmax_attention.shared.parameter_flow import draw_cases

    sizes = list(zip(params.samples, params.tokens, params.dims, strict=True))
    log_times = np.array(params.log10_times) * np.log(10)
    parts = []
    cases = draw_cases(sizes, params.instances, params.scale, params.seed, from_zero)
    for (k, case), step in context.steps(enumerate(cases)):
        step.report(0.0, case.name)
        parts.append(step.cached(f"case-{k}", partial(measure, k, case, log_times)))
    context.report(1.0, "done")
    return parts


def run_equivalence(params: Params, context: RunContext) -> xr.Dataset:
    """Follow every case in both parametrisations, and once from a start against equation 4."""
    parts = _run_cases(params, context, _compare_parametrisations, from_zero=False)
    example = parts[0][["beta", "w", "other_beta"]]
    compared = xr.concat([part.drop_dims("entry", errors="ignore") for part in parts], "case")
    return xr.merge([compared, example]).assign_coords(log10_time=("time", np.array(params.log10_times)))


def _compare_parametrisations(number: int, case: "Case", log_times: np.ndarray) -> xr.Dataset:
    from saddlescope.papers.softmax_attention.shared.parameter_flow import KEYS_AND_QUERIES, SQUARES, parameter_flow

    follow = partial(parameter_flow, case.data, case.loss)
    keys = follow(KEYS_AND_QUERIES, case.keys, log_times=log_times)
    squares = follow(SQUARES, case.squares, log_times=log_times)
    k, q = case.keys
    early = log_times <= _JUDGED_FROM * np.log(10)
    other = np.full_like(keys.beta, np.nan)  # from the same β(0)
    other[early] = follow(KEYS_AND_QUERIES, (2 * k, q / 2), log_times=log_times[early], tolerance=1e-11).beta
    sizes = np.abs(squares.beta).max(axis=1)

    def drift(moved: np.ndarray, start: np.ndarray, unit: np.ndarray) -> np.ndarray:
        return np.max(np.abs(moved - start) / unit, axis=1)

    plus, minus = case.squares
    found = {
        "difference": ("time", np.abs(keys.beta - squares.beta).max(axis=1) / sizes),
        "control": ("time", np.abs(other - squares.beta).max(axis=1) / sizes),
        "drift_of_keys": ("time", drift(keys.first**2 - keys.second**2, k**2 - q**2, k**2 + q**2)),
        "drift_of_squares": ("time", drift(squares.first * squares.second, plus * minus, plus * minus)),
        "size": ("time", sizes),
        "evaluations": keys.evaluations + squares.evaluations,
    }
    if number == 0:
        examples = {"beta": keys.beta, "w": squares.beta, "other_beta": other}
        found |= {name: (("time", "entry"), values) for name, values in examples.items()}
    return xr.Dataset(found, coords={"case": case.name})


def run_closed_form(params: ClosedFormParams, context: RunContext) -> xr.Dataset:
    """Follow every case: β and φ, and the loss at times around each recorded one."""
    parts = _run_cases(params, context, _measure_closed_form, from_zero=True)
    return xr.concat(parts, "case").assign_coords(log10_time=("time", np.array(params.log10_times)))


def _measure_closed_form(_number: int, case: "Case", log_times: np.ndarray) -> xr.Dataset:
    from saddlescope.papers.softmax_attention.shared.parameter_flow import SQUARES, parameter_flow

    around = (log_times[:, None] + _APART * np.arange(-2, 3)).ravel()
    flow = parameter_flow(case.data, case.loss, SQUARES, case.squares, around, with_phi=True)
    B, omega = case.data.features, case.squares[0]
    assert flow.phi is not None
    closed = omega**2 * np.sinh(np.einsum("knm,nmd->kd", flow.phi, B))
    betas = flow.beta.reshape(-1, 5, case.data.dim)
    losses = np.array([case.loss.log_excess(B @ beta) for beta in flow.beta]).reshape(-1, 5)
    beta = betas[:, 2]
    log_rates, signs = zip(*(case.loss.log_rates(B @ each) for each in beta), strict=True)
    pulls = np.einsum("knm,nmd->kd", np.array(signs) * np.exp(np.array(log_rates) + log_times[:, None, None]), B)
    speeds = 2 * np.hypot(beta, omega**2) * pulls  # dβ / d ln t by the lemma
    powers = np.sum(pulls * speeds, axis=1)  # -t² dL/dt by equation 27 with the factor 2
    slope = np.array([1.0, -8.0, 0.0, 8.0, -1.0]) / (12 * _APART)  # d/d ln t from five times
    measured_speeds = np.einsum("kad,a->kd", betas, slope)
    falls = -(losses @ slope)  # -d ln(L - L*) / d ln t
    fall = np.where(falls > _VISIBLE, falls * np.exp(losses[:, 2] + log_times), np.nan)
    largest = np.abs(flow.beta).max(axis=1)
    return xr.Dataset(
        {
            "closed_form": ("time", (np.abs(closed - flow.beta).max(axis=1) / largest)[2::5]),
            "speed": ("time", np.abs(speeds - measured_speeds).max(axis=1) / np.abs(measured_speeds).max(axis=1)),
            "fall": ("time", fall / powers),
            "samples": case.data.samples,
        },
        coords={"case": case.name},
    )


def _largest(name: str, run: xr.Dataset) -> Estimate:
    """Return the largest value over all cases, from the time on from which the bars hold."""
    late = run[name].isel(time=run.log10_time.values >= _JUDGED_FROM)
    where = run.case.values[late.max("time").values.argmax()]
    last = run.log10_time.values[-1]
    return Estimate.largest(late.max("time"), f"{run.sizes['case']} cases to t = 1e{last:g}; {where}")


equivalence_claims, closed_form_claims = Claims(), Claims()

equivalence_claims.add(
    "equivalence",
    "From starts of equal value and sum of squares, diagonal attention as key-query product or difference of squares "
        "moves identically",
    quantity="largest entry of the difference of both weights, relative to the largest weight, over flows and "
        "recorded times from t = 1e3 on", kind="printed",
    source="Lemma 4.1; the bound is this project's bar for an identity followed numerically", high=1e-10,
    evidence="identity", over="data sets and losses",
    why="Both forms are integrated in their own parameters from starts that share equation 4 alone, so agreement is "
        "no consequence of the code",
    doubt="One explicit solver runs both, and its error must only be the same by chance",
)(partial(_largest, "difference"))  # fmt: skip

equivalence_claims.add(
    "keys-and-queries-conserve",
    "The gradient flow of diagonal key and query weights ξ_k and ξ_q conserves ξ_k² − ξ_q² in every coordinate",
    quantity="largest drift of ξ_k² − ξ_q² relative to the initial ξ_k² + ξ_q², over coordinates, flows and "
        "recorded times from t = 1e3 on",
    kind="own", source="Follows from equations 10 and 14; the bound is this project's bar", high=1e-10,
    evidence="identity", over="data sets and losses",
    why="The difference of squares is what the two velocities of equations 10 and 14 leave unchanged",
    doubt="Rounding alone uses most of the bar, since large weights cancel in the difference",
)(partial(_largest, "drift_of_keys"))  # fmt: skip

equivalence_claims.add(
    "squares-conserve",
    "The gradient flow of diagonal attention weights (w₊² − w₋²) / 2 conserves the product w₊ w₋ in every coordinate",
    quantity="largest drift of w₊ w₋ relative to its initial value, over coordinates, flows and recorded times from "
        "t = 1e3 on",
    kind="own", source="Follows from equations 11 and 12; the bound is this project's bar", high=1e-10,
    evidence="identity", over="data sets and losses",
    why="Opposite relative velocities of both factors in equations 11 and 12 leave their product unchanged",
    doubt="Solvers in logarithmic time may keep products better than a gradient method would",
)(partial(_largest, "drift_of_squares"))  # fmt: skip


@equivalence_claims.add(
    "sums-of-squares-matter",
    "With equal values but unequal sums of squares at the start, key-query products and differences of squares move "
        "apart",
    quantity="smallest over flows of the largest entry of the difference of both diagonal attention weights at t = "
        "1e3, relative to the largest weight", kind="own",
    source="Equations 10 and 13, whose right-hand sides differ; the bound is this project's, far above rounding",
    low=1e-3,
    evidence="cases", over="data sets", sizes=("default", "paper"),
    why="If other sums of squares gave the same path, equation 4 would ask for more than is needed",
    doubt="One kind of other start is tried, keys doubled and queries halved",
)  # fmt: skip
def _smallest_control(run: xr.Dataset) -> Estimate:
    last = int((run.log10_time <= _JUDGED_FROM).sum()) - 1
    at = run.control.values[:, last]
    when = run.log10_time.values[last]
    return Estimate.smallest(at.reshape(-1, 2).min(axis=1), f"of {run.sizes['case']} flows, at t = 1e{when:g}")


closed_form_claims.add(
    "closed-form",
    "Along gradient flow, diagonal attention weights equal their squared initial scale times sinh of features "
        "weighted by integrated rates",
    quantity="largest entry of the difference of both sides, relative to the largest weight, over flows and recorded "
        "times from t = 1e3 on", kind="printed",
    source="Lemma A.1, equation 19; the bound is this project's bar for an identity followed numerically", high=1e-10,
    evidence="identity", over="data sets and losses",
    why="The integral of the rates is computed beside the weights, so equation 19 is tested at each time on its own",
    doubt="φ and the weights come from one solver, so a common error in time would not show",
)(partial(_largest, "closed_form"))  # fmt: skip

closed_form_claims.add(
    "speed",
    "Under gradient flow, diagonal attention weights β from initial scale ω₀ follow dβ/dt = −2 √(β² + ω₀⁴) ⊙ ∇L",
    quantity="largest entry of measured minus predicted dβ/dt, relative to the largest entry of dβ/dt, over flows "
        "and recorded times from t = 1e3 on", kind="printed",
    source="Lemma A.1, second half; the bound is that of differences of five times 1 % apart", high=1e-6,
    evidence="identity", over="data sets and losses",
    why="Differences of the followed weights give their speed without the lemma's formula",
    doubt="Five neighbouring times give about eleven digits at best, and late speeds are tiny",
)(partial(_largest, "speed"))  # fmt: skip


@closed_form_claims.add(
    "equation-27-as-printed",
    "The loss of diagonal attention on n samples obeys dL/dt = −(2/n) ⟨∇L, √(β² + ω₀⁴) ⊙ ∇L⟩",
    quantity="smallest relative deviation of measured dL/dt from this rate, β the weights and ω₀ their initial "
        "scale, over flows and times", kind="printed",
    source="Equation 27; its 1/n is part of ∇L already. The bound is that of differences of times", high=1e-6,
    evidence="identity", over="data sets and losses",
    why="If the printed factor were right anywhere, the smallest deviation over flows and times would be near zero",
    doubt="For one sample the printed equation is right, and the authors use only its sign",
)  # fmt: skip
def _printed_fall_error(run: xr.Dataset) -> Estimate:
    ratio = run.fall * run.samples
    remark = f"dL/dt is {float(ratio.min()):.4g} to {float(ratio.max()):.4g} of it"
    return Estimate(float(abs(ratio - 1).min()), remark=remark, n=run.sizes["case"])


@closed_form_claims.add(
    "equation-27-corrected",
    "The loss of diagonal attention obeys dL/dt = −2 ⟨∇L, √(β² + ω₀⁴) ⊙ ∇L⟩, without the printed factor 1/n",
    quantity="largest relative deviation of measured dL/dt from this rate, β the weights and ω₀ their initial "
        "scale, over flows and times",
    kind="own", source="Equation 27 without its second 1/n; the bound is that of differences of times", high=1e-6,
    evidence="identity", over="data sets and losses",
    why="The measured fall of the loss is divided by the rate without the second 1/n, so a ratio of one confirms the "
        "correction",
    doubt="Times at which a lost sample hides the fall are left out",
)  # fmt: skip
def _fall_error(run: xr.Dataset) -> Estimate:
    seen = int(run.fall.notnull().sum())
    remark = f"{seen} of {run.fall.size} times resolve the fall"
    return Estimate(float(abs(run.fall - 1).max()), remark=remark, n=run.sizes["case"])


def equivalence_figures(run: xr.Dataset) -> list[Figure]:
    """Draw the entries of β in both parametrisations, and their distance."""
    time = run.log10_time.values
    curves, early = [], time <= 10
    for color, j in enumerate(np.argsort(-np.abs(run.w.values[-1]))[:4]):
        drawn = {"x": time[early], "group": f"w_{j}", "color": color}
        curves += [
            Line(y=run.w.values[early, j], width=5.0, opacity=0.35, **drawn),
            Line(y=run.beta.values[early, j], width=1.4, **drawn),
            Line(y=run.other_beta.values[early, j], width=1.4, style="dotted", **drawn),
        ]
    kinds = {
        "difference": "β − w",
        "drift_of_keys": "ξ_k² − ξ_q²",
        "drift_of_squares": "w₊ w₋",
        "control": "β − w, against equation 4",
    }
    return [
        _deviations(
            "equivalence",
            "Keys times queries and a difference of squares over time",
            "Left: the four largest entries of the first case against time, as a difference of squares (wide) and as "
            "keys times queries (thin). Dotted: keys times queries from the same β(0) but other sums of squares, "
            f"against equation 4, to t = 1e3. Right, {run.sizes['case']} cases: the relative difference of both, and "
            "the relative drift of the two conserved quantities.",
            run,
            kinds,
            Panel(title="entries of β", x=Axis("time, log10 t"), y=Axis("β and w"), marks=tuple(curves)),
            first=4,
        )
    ]


def closed_form_figures(run: xr.Dataset) -> list[Figure]:
    """Draw the error of the closed form, and the measured fall over that of equation 27."""
    time, falls = run.log10_time.values, []
    for color, n in enumerate(sorted({int(n) for n in run.samples.values})):
        rows = run.fall.values[run.samples.values == n]
        falls += flow_curves(time, rows * n, f"as printed, n = {n}", 2 + color, width=1.4, opacity=1.0)
        falls += flow_curves(time, rows, "with 2 in place of 2/n", 5, width=1.4, opacity=1.0)
    return [
        _deviations(
            "closed-form",
            "Closed form of the diagonal flow, and equation 27",
            "Left: relative deviations of the flow from ω₀² sinh(Bφ), and of its speed, measured by differences of "
            "times, from the lemma's. Right: the measured dL/dt over that of equation 27, as printed and with 2 in "
            "place of 2/n.",
            run,
            {"closed_form": "closed form", "speed": "speed"},
            Panel(
                title="equation 27", x=Axis("time, log10 t"), y=Axis("dL/dt over the equation's"), marks=tuple(falls)
            ),
        )
    ]


def _deviations(
    name: str, title: str, caption: str, run: xr.Dataset, kinds: dict[str, str], other: Panel, first: int = 0
) -> Figure:
    """Return a figure of relative deviations over time with another panel, on the left if its colours come first."""
    marks = [
        mark
        for color, (variable, label) in enumerate(kinds.items(), first)
        for mark in flow_curves(run.log10_time.values, np.maximum(run[variable].values, 1e-17), label, color)
    ]
    panel = Panel(
        title="relative deviations",
        x=Axis("time, log10 t"),
        y=Axis("relative deviation", scale="log"),
        marks=(*marks, Mark(at=1e-10, label="bar", axis="y")),
    )
    panels = (other, panel) if first else (panel, other)
    return Figure(name=name, title=title, caption=caption, panels=panels)


equivalence = Entry(
    "softmax-attention/lemma-4-1", "Lemma 4.1: keys times queries and a difference of squares are one flow",
    citation=CITATION, source="Lemma 4.1, appendix A.2", params=Params,
    quick=dict(samples=(4,), tokens=(5,), dims=(8,), instances=1, log10_times=(1.0, 3.0, 6.0, 10.0), seed=2),
    paper=dict(instances=20), run=run_equivalence, claims=equivalence_claims, figures=equivalence_figures,
)  # fmt: skip

closed_form = Entry(
    "softmax-attention/lemma-a-1", "Lemma A.1: the flow of diagonal weights in closed form, and the fall of its loss",
    citation=CITATION, source="Lemma A.1, equations 19 and 27", params=ClosedFormParams,
    quick=dict(samples=(4,), tokens=(5,), dims=(8,), instances=1, log10_times=(1.0, 3.0, 10.0), seed=2),
    paper=dict(instances=20), run=run_closed_form, claims=closed_form_claims, figures=closed_form_figures,
)  # fmt: skip
