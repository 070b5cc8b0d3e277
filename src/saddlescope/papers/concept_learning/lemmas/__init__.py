"""Lemmas D.1 to D.8, compared with runs from starts that the assumptions allow.

Assumptions D.1 to D.5 hold as printed at weights of 1e-61 and less. The starts are of this size, for two concepts whose
strengths have several ratios: ordinary ones, W(0) = U Uᵀ from a normal U, and nearly singular ones,

    W(0) = omega (1 + e, ±1; ±1, 1 + e) with e from 1e-13 to 1e-9.

From all of them gradient flow is followed, and the map D.2 of the lemmas,

    W' = W + eta (W A + A W - (A W^2 + W^2 A + 2 W A W) / 2), eta = 1 / (9 K gamma alpha),     (D.2, Assumption D.2)

whose time is twice that of the flow: t = eta k / 2 after k steps.

A lemma is violated where the excess of a run over its bound is positive; `violations` defines it.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.lemmas.violations import KAPPA, K, Runs, Starts, excesses
from saddlescope.plot import Axis, Figure, Figures, Line, Mark, Panel, Table
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

_LAWS = ("ordinary", "nearly singular")
_LOST = 2.0  # |w_ij| beyond which a run of the map has left all that the lemmas are about, and is stopped
_TENTH = float(np.log(10))
_VIOLATED = 1e-6  # least excess of a violation


class Params(EntryParams):
    """Starts that the assumptions allow."""

    ratios: tuple[float, ...] = param(
        (5.0, 10.0, 20.0), "ratios of the two strengths, above the 3 of D.5", gt=3, le=100, order="increasing"
    )
    starts: int = param(16, "starts of each law at each ratio", ge=2)
    marks: int = param(2400, "number of times at which W is compared with the lemmas", ge=100)
    seed: int = param(0, "seed of the starts", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run flows and maps of every kind of start, and compare them with all lemmas."""

    def compare(ratio: float, kind: str, step: RunContext) -> xr.Dataset:
        starts = allowed_starts(ratio, params.starts, np.random.default_rng((params.seed, step.cell // 2)))
        runs = flows(starts, params.marks) if kind == "flow" else maps(starts, params.marks, step)
        return _count_violations(f"ratio {ratio:g}, {{}} starts, {kind}", runs)

    weights = [share * ratio for ratio in params.ratios for share in (0.3, 0.7)]
    made = context.cells({"ratio": params.ratios, "kind": ("flow", "map")}, compare, weights=weights)
    example = context.cached("example", lambda: _example_runs(params))
    return xr.merge([xr.concat(made, "group"), example], join="exact", combine_attrs="drop_conflicts")


def allowed_starts(ratio: float, count: int, rng: np.random.Generator) -> Starts:
    """Return starts of each law, one after the other, at which D.1 to D.5 hold, with omega as large as it can be."""
    from saddlescope.models import symmetric_factor
    from saddlescope.theory.concepts import check_assumptions, largest_start

    a = np.array([1 / ratio, 1.0])
    factors, constants, hold = [], [], []
    for law in np.repeat(_LAWS, count):
        if law == "ordinary":
            U = rng.standard_normal((2, 2))
            start = U @ U.T / np.abs(U @ U.T).min()
        else:
            sign = rng.choice([-1.0, 1.0])
            start = np.full((2, 2), sign) + (1 - sign + 10.0 ** rng.uniform(-13, -9)) * np.eye(2)
        beta = float(np.abs(start).max())
        best = largest_start(a, beta=beta, K=K, kappa=KAPPA)
        log_P, log_omega = best.log_P + 2e-5, best.log_omega - 2.1e-5
        held = check_assumptions(a, start, log_P=log_P, K=K, kappa=KAPPA, C=2.0, step=1 / (9 * K), log_scale=log_omega)
        factors.append(symmetric_factor(start) * np.exp(log_omega / 2))
        constants.append((log_P, log_omega, np.log(beta)))
        hold.append(held.hold)
    log_P, log_omega, log_beta = np.array(constants).T
    return Starts(a, np.array(factors), log_P, log_omega, log_beta, np.array(hold))


def flows(starts: Starts, marks: int) -> Runs:
    """Follow gradient flow until all is learned."""
    from saddlescope.flow import symmetric_flows

    times, a, until = np.linspace(0.0, starts.until, marks), starts.strengths, starts.until
    flow = symmetric_flows(a, starts.factors, test_point=np.ones(len(a)), until=until, record=times, tolerance=1e-10)
    major = np.einsum("nkii->nki", flow.W)
    return Runs(starts, flow.times, flow.W, major.min((1, 2)), major.max((1, 2)), np.zeros(len(major)))


def maps(starts: Starts, marks: int, context: RunContext) -> Runs:
    """Iterate the printed map as long as the flow; a run that is lost stays where it was."""
    a = starts.strengths
    eta = 1 / (9 * K * float(a.max()))
    steps = round(2 * starts.until / eta)
    every = -(-steps // marks)
    W = starts.factors @ starts.factors.mT
    major = np.einsum("nii->ni", W)
    lowest, highest, fastest, recorded = major.min(1), major.max(1), np.zeros(len(W)), [W]
    for step in range(1, steps + 1):
        right, left = W * a, a[:, None] * W
        square = left @ W
        change = eta * (right + left - (square + square.mT) / 2 - right @ W)
        change[lowest < -_LOST] = 0.0
        W = W + change
        major, moved = np.einsum("nii->ni", W), np.einsum("nii->ni", change)
        lowest, highest = np.minimum(lowest, major.min(1)), np.maximum(highest, major.max(1))
        fastest = np.maximum(fastest, np.abs(moved).max(1))
        if step % every == 0:
            recorded.append(W)
            if step % (50 * every) == 0:
                context.report(step / steps, "map")
    times = np.arange(len(recorded)) * every * eta / 2
    return Runs(starts, times, np.stack(recorded, axis=1), lowest, highest, fastest)


def _count_violations(name: str, runs: Runs) -> xr.Dataset:
    """Return the number of runs that violate each lemma, and the largest excess, for each law of starts."""
    found = excesses(runs)
    values = np.array(list(found.values())).reshape(len(found), len(_LAWS), -1)
    return xr.Dataset(
        {
            "runs": ("group", np.full(len(_LAWS), values.shape[2])),
            "hold": ("group", runs.starts.hold.reshape(len(_LAWS), -1).sum(axis=1)),
            "violations": (("lemma", "group"), np.sum(values > _VIOLATED, axis=2)),
            "largest": (("lemma", "group"), values.max(axis=2)),
        },
        coords={"lemma": list(found), "group": [name.format(law) for law in _LAWS]},
    )


def _example_runs(params: Params) -> xr.Dataset:
    """Return two runs for the figure, from an ordinary and a nearly singular start."""
    runs = flows(allowed_starts(params.ratios[0], 1, np.random.default_rng(params.seed)), min(params.marks, 800))
    return xr.Dataset(
        {
            "example": (("start", "mark", "row", "column"), runs.W),
            "example_time": ("mark", runs.times, {"units": "t"}),
            "example_phase": ("start", runs.starts.log_phase),
            "example_strength": ("row", runs.starts.strengths),
            "kappa": KAPPA,
        },
        coords={"start": list(_LAWS)},
    )


def allowed(run: xr.Dataset) -> bool:
    """All starts meet Assumptions D.1 to D.5 as printed"""
    return bool((run.hold == run.runs).all())


claims = Claims(
    limits="Two concepts, so that N_12 = 0 and no minor entry meets noise: D.1 is algebra then; K = 20, κ = 1.11, the "
    "largest step of D.2 and the largest W(0) allowed, 1e-61 to 1e-100. The page of the paper derives by hand why "
    "Corollary D.1, Lemma D.3 and Lemma D.5 fail; D.5 by its lower bound, with an excess in units of ω, in the map "
    "alone, whose W is no U Uᵀ. Where it does, D.1, D.4, D.6 to D.8 and Corollary D.2 can fail later: they are read "
    "as statements about runs with every w_ii ≥ 0. Runs are stopped where a w_ii is below −2. D.4 and D.7 are tested "
    "from the first t_0.",
    requires=[allowed],
)


def _violating_runs(run: xr.Dataset, *, lemma: str) -> Estimate:
    """Number of violating runs of the map D.2, and of gradient flow where the lemma is about it, too"""
    one = run.sel(lemma=lemma)
    if lemma in ("D.5", "Corollary D.2"):  # of the map
        one = one.isel(group=[name.endswith("map") for name in one.group.values.tolist()])
    kinds = xr.DataArray([group.partition(", ")[2] for group in one.group.values.tolist()], dims="group", name="kind")
    summed = one[["violations", "runs"]].drop_vars("group").groupby(kinds).sum()
    each = zip(summed.kind.values, summed.violations.values, summed.runs.values, strict=True)
    where = "; ".join(f"{kind} {k} of {n}" for kind, k, n in each if k) or "none"
    violating, runs = int(one.violations.sum()), int(one.runs.sum())
    remark = f"of {runs}: {where}; largest excess {float(one.largest.max()):.3g}"
    return Estimate.number(np.arange(runs) < violating, remark, over="runs")


for _name, _lemma, _statement in (
    ("corollary-d1", "Corollary D.1", "every noise term |N_ij| of equation 4.3 is at most 2Pγαdβ²ω²"),
    ("d2", "Lemma D.2", "until T_1 each w_ij keeps its sign, with |w_ij(0)| exp(ηt(a_i + a_j)/κ) ≤ |w_ij| ≤ Pβω"),
    ("d3", "Lemma D.3", "until its T_1 each w_ii is in the initial phase, and grows at least as exp(2ηta_i/κ)"),
    ("d5", "Lemma D.5", "each w_ii of the map D.2 stays between 0 and 1 + 2/K"),
):
    claims.printed(
        _name,
        f"Under Assumptions D.1 to D.5, {_statement}",
        f"{_lemma} as printed, in its own time η t; exact",
        high=0.0,
    )(partial(_violating_runs, lemma=_lemma.removeprefix("Lemma ")))

for _name, _lemma, _statement in (
    ("d1", "Lemma D.1", "for two concepts |w_ij(t)| never exceeds |w_ij(0)| exp(ηt(a_i + a_j)κ)"),
    ("d4", "Lemma D.4", "each w_ii grows from the initial phase to λ = 0.85 at least as exp(2ηta_i(1 − λ)/κ)"),
    ("corollary-d2", "Corollary D.2", "no w_ii changes by more than 1/K in one step"),
    ("d6", "Lemma D.6", "no w_ii falls below 1 − 2/K once it was there"),
    ("d7", "Lemma D.7", "once w_ii > 0.8, |w_ij| for weaker concepts j never exceeds both its value then and ω"),
    ("d8", "Lemma D.8", "each minor entry stays in the initial phase, |w_ij| ≤ Pβω, for all time"),
):
    claims.reading(
        _name,
        f"Under Assumptions D.1 to D.5, as long as every w_ii is at least 0, {_statement}",
        f"{_lemma}; the paper takes w_ii ≥ 0 from W = U Uᵀ (footnote 2, proofs of D.4 and D.5); exact",
        high=0.0,
    )(partial(_violating_runs, lemma=_lemma.removeprefix("Lemma ")))


def figures(run: xr.Dataset) -> Figures:
    """Draw two allowed runs with the bounds, and a table of all violations."""

    def cell(lemma: str, group: str) -> str:
        one = run.sel(lemma=lemma, group=group)
        return f"{int(one.violations)}/{int(one.runs)} ({float(one.largest):.2g})"

    lemmas, groups = run.lemma.values.tolist(), run.group.values.tolist()
    rows = tuple((group, *(cell(lemma, group) for lemma in lemmas)) for group in groups)
    yield Figure(
        name="bounds",
        title="Entries of W from two allowed starts, and the bounds of Lemmas D.1 and D.3",
        caption="log₁₀ of the entries of W against time, in gradient flow. Dashed: the upper bound of Lemma D.1. "
        "Dotted: the lower bound of Lemma D.3 for diagonal entries. The table has, for each ratio of strengths, "
        "law of starts and kind of run, the number of runs that violate each lemma, and the largest excess in "
        "brackets.",
        panels=tuple(_panel(run.sel(start=start)) for start in run.start.values.tolist()),
        table=Table(columns=("runs", *lemmas), rows=rows),
    )


def _panel(one: xr.Dataset) -> Panel:
    t, W, a, kappa = one.example_time.values, np.abs(one.example.values), one.example_strength.values, float(one.kappa)
    drawn: list[Line | Mark] = [Mark(at=float(one.example_phase) / _TENTH, label="P β ω", axis="y")]
    for k, (i, j, label) in enumerate(((1, 1, "w₂₂"), (0, 0, "w₁₁"), (0, 1, "w₁₂"))):
        rounding = W[:, i, j] < 1e-15 * np.sqrt(W[:, i, i] * W[:, j, j])
        with np.errstate(divide="ignore"):
            value = np.log10(np.where(rounding | (W[:, i, j] == 0), np.nan, W[:, i, j]))
        drawn.append(Line(x=t, y=value, group=label, color=k))
        ceiling = value[0] + 2 * (a[i] + a[j]) * kappa * t / _TENTH
        drawn.append(Line(x=t, y=np.where(ceiling < 3, ceiling, np.nan), color=k, style="dashed", width=0.9))
        if i == j:
            until = (float(one.example_phase) - value[0] * _TENTH) / (4 * a[i] * kappa)
            floor = value[0] + 4 * a[i] * t / kappa / _TENTH
            drawn.append(Line(x=t, y=np.where(t <= until, floor, np.nan), color=k, style="dotted"))
    return Panel(title=f"{one.start.item()} start", x=Axis("time", "t"), y=Axis("log₁₀ |wᵢⱼ|"), marks=tuple(drawn))


entry = Entry(
    "concept-learning/lemmas",
    "Lemmas D.1 to D.8, compared with runs from starts that the assumptions allow",
    source="Appendix D.2",
    quick=dict(ratios=(10.0,), starts=4, marks=300),
    paper=dict(ratios=(5.0, 7.0, 10.0, 30.0, 100.0), starts=64),
)
