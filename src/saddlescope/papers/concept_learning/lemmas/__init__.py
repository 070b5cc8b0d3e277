"""Lemmas D.1 to D.8, each as printed and where it is wrong as corrected, held against runs   (Appendix D.2)

Where the assumptions hold, as printed, the runs start from weights of 1e-31 and less: two concepts of strengths 0.1 and
1, some starts nearly singular. Others start at ordinary scales from the data of Figures 5, 8 and 10, with P as large as
D.3 has it. Gradient flow is followed, and the map D.2 that the lemmas are about, at the largest step that D.2 allows.

    allowed  runs whose start and constants meet D.1 to D.5
    excess   the logarithm of what a lemma bounds over its bound, or the difference for numbers near 1, or of a sign the
             value over omega: positive where the lemma is violated
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.lemmas.figures import figures
from saddlescope.papers.concept_learning.shared.random_starts import FIGURES, drawn
from saddlescope.papers.concept_learning.shared.two_layer_runs import data
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext

if TYPE_CHECKING:
    from saddlescope.papers.concept_learning.lemmas.simulations import Starts
    from saddlescope.papers.concept_learning.lemmas.violations import Runs

__all__ = ["Params", "claims", "figures", "run"]

_DATA = ("Figure 5", "Figure 8", "Figure 10")
_ALLOWED = ("allowed, flow", "allowed, map")
_ROUNDING = 1e-6  # an excess beyond which a lemma counts as violated


@dataclass(frozen=True, kw_only=True)
class Params:
    """Starts that the assumptions allow, and others."""

    allowed: int = 24  # starts at which the assumptions hold
    near: int = 8  # of them, nearly singular
    allowed_until: float = 700.0  # their last time, in t; all is learned by 500
    ordinary: int = 64  # starts at each ordinary scale, on each figure's data
    scales: tuple[float, ...] = (0.1, 0.001)  # deviations of U's entries, descending
    until: float = 50.0  # their last time, in t
    marks: int = 2400  # times at which W is held against the lemmas
    seed: int = 0  # of everything

    def __post_init__(self) -> None:
        parameter_checks.at_least(1, self, "ordinary", "near")
        parameter_checks.at_least(100, self, "marks")
        parameter_checks.at_least(0, self, "seed")
        parameter_checks.positive(self, "allowed_until", "until")
        if not self.allowed > self.near:
            raise InputError(f"allowed must be greater than near={self.near}; got {self.allowed!r}.")
        if not self.scales or not all(0 < scale <= 1 for scale in self.scales):
            raise InputError(f"scales must be one or more numbers above 0, up to 1; got {self.scales!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: to when the stronger of the two concepts is learned."""
        return cls(allowed=6, near=2, allowed_until=60.0, ordinary=8, scales=(0.1,), until=6.0, marks=300)

    @classmethod
    def paper(cls) -> "Params":
        """More starts; the paper has none."""
        return cls(allowed=60, near=20, ordinary=1024)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Runs of every kind, held against all lemmas."""
    from saddlescope.papers.concept_learning.lemmas.simulations import allowed_starts, flows, maps, ordinary_starts

    starts = allowed_starts(params.allowed, params.near, np.random.default_rng((params.seed, 0)))
    jobs = [("allowed", starts, params.allowed_until)]
    for k, (name, scale) in enumerate(itertools.product(_DATA, params.scales)):
        a, _ = data(*FIGURES[name])
        factors = drawn(np.random.default_rng((params.seed, 1 + k)), "normal", scale, (params.ordinary, len(a), len(a)))
        jobs.append((f"{name}, scale {scale:g}", ordinary_starts(a, factors), params.until))
    made: list[xr.Dataset] = []
    for n, (name, of, until) in enumerate(jobs):
        report = context.part(n / len(jobs), (n + 1) / len(jobs))
        report(0.0, f"{name}, flow")
        kinds = {"flow": partial(flows, of, until, params.marks),
                 "map": partial(maps, of, until, params.marks, partial(_told, report, f"{name}, map"))}  # fmt: skip
        for kind, follow in kinds.items():
            made.append(context.cached(f"{kind}-{n}", partial(_held, f"{name}, {kind}", of, follow)))
    example = context.cached("example", partial(_examples, starts, params))
    context.report(1.0, "done")
    return xr.merge([xr.concat(made, "group"), example], join="exact", combine_attrs="drop_conflicts")


def _told(report: Callable[[float, str], None], name: str, fraction: float) -> None:
    report(0.3 + 0.7 * fraction, name)


def _held(name: str, starts: "Starts", follow: "Callable[[], list[Runs]]") -> xr.Dataset:
    """How many runs violate each lemma, and by how much at most."""
    from saddlescope.papers.concept_learning.lemmas.violations import excesses

    pieces = [excesses(runs) for runs in follow()]
    all_of = {lemma: np.concatenate([piece[lemma] for piece in pieces]) for lemma in pieces[0]}
    values = np.array(list(all_of.values()))
    return xr.Dataset(
        {
            "runs": len(starts.factors),
            "hold": starts.hold.sum(),
            "violations": ("lemma", np.sum(values > _ROUNDING, axis=1)),
            "largest": ("lemma", values.max(axis=1)),
            "typical": ("lemma", np.median(values, axis=1)),
        },
        coords={"lemma": list(all_of), "group": name},
    )


def _examples(starts: "Starts", params: Params) -> xr.Dataset:
    """One allowed run of each kind, the first and the last start, for the picture."""
    from saddlescope.papers.concept_learning.lemmas.simulations import KAPPA, Starts, flows

    a, *of_starts = starts
    first, last = 0, params.allowed - 1
    two = Starts(a, *(one[[first, last]] for one in of_starts))
    (runs,) = flows(two, params.allowed_until, min(params.marks, 800))
    return xr.Dataset(
        {
            "example": (("start", "mark", "row", "column"), runs.W),
            "example_time": ("mark", runs.times, {"units": "t"}),
            "example_phase": ("start", runs.log_phase),
            "example_strength": ("row", a),
            "kappa": KAPPA,
        },
        coords={"start": ["first", "nearly singular"]},
        attrs={"last_start": f"W(0) = w (1, c; c, 1), 1 - |c| = {-np.expm1(-starts.log_beta[last]):.1e}"},
    )


def _violations(lemma: str, groups: Callable[[str], bool], run: xr.Dataset) -> Estimate:
    """How many runs of some groups violate a lemma."""
    chosen = run.isel(group=[groups(name) for name in run.group.values.tolist()]).sel(lemma=lemma)
    violations, runs, names = (chosen[of].values.tolist() for of in ("violations", "runs", "group"))
    each = [f"{k} of {n} ({name})" for k, n, name in zip(violations, runs, names, strict=True)]
    told = ", ".join(each) if len(each) <= 2 else f"{sum(runs)} runs of {len(each)} kinds"
    return Estimate(float(sum(violations)), remark=f"{told}; largest excess {float(chosen.largest.max()):.3g}")


def _hold(run: xr.Dataset) -> Estimate:
    allowed = run.sel(group=list(_ALLOWED))
    return Estimate(float((allowed.hold / allowed.runs).min()), remark=f"{int(allowed.runs.max())} starts")


def _allowed(name: str) -> bool:
    return name in _ALLOWED


def _allowed_flow(name: str) -> bool:
    return name == _ALLOWED[0]


def _any_flow(name: str) -> bool:
    return name.endswith("flow")


_EXACT = "as printed; exact"
_OURS = "this project's correction, proved in saddlescope.theory.concepts; exact"
_MAP = "in the flow and in the map D.2"


class _Lemma(NamedTuple):
    """A statement that no run of some groups may violate."""

    name: str
    lemma: str
    says: str
    source: str
    groups: Callable[[str], bool] = _allowed


_LEMMAS = (
    _Lemma(
        "corollary-d1",
        "Corollary D.1",
        "As printed: |N_ij| is at most 2 P gamma alpha d beta^2 omega^2",
        f"Corollary D.1, {_EXACT}",
    ),
    _Lemma(
        "corollary-d1-corrected",
        "Corollary D.1, P²",
        "Corrected: |N_ij| is at most P times that",
        "two entries in the initial phase have a product of at most (P beta omega)^2; exact",
    ),
    _Lemma("d1", "D.1", "|w_ij(t)| <= |w_ij(0)| e^(2 (a_i + a_j) kappa t)", f"Lemma D.1, {_EXACT}"),
    _Lemma(
        "d2",
        "D.2",
        "Until T_1 all entries are in the initial phase, keep their sign, and are at least |w_ij(0)| "
        "e^(2 (a_i + a_j) t / kappa)",
        f"Lemma D.2, {_EXACT}",
    ),
    _Lemma(
        "d3",
        "D.3",
        "As printed: until T_1^(i), w_ii >= w_ii(0) e^(4 a_i t / kappa)",
        f"Lemma D.3, {_EXACT}",
    ),
    _Lemma(
        "d2-d3-corrected",
        "growth",
        "Corrected, from any start: w_ij is within the bound of initial_growth of w_ij(0) e^(2 (a_i + a_j) t)",
        _OURS,
        _any_flow,
    ),
    _Lemma(
        "d4",
        "D.4",
        "From the initial phase to lambda = 0.85, w_ii grows at least as e^(4 a_i (1 - lambda) t / kappa)",
        f"Lemma D.4, {_EXACT}",
    ),
    _Lemma("d5-upper", "D.5, upper", "w_ii <= 1 + 2 / K", f"Lemma D.5, {_EXACT}"),
    _Lemma("d5-lower-flow", "D.5, lower", "0 <= w_ii in the flow", f"Lemma D.5, {_EXACT}", _allowed_flow),
    _Lemma(
        "d5-lower",
        "D.5, lower",
        f"As printed: 0 <= w_ii {_MAP}",
        "Lemma D.5, as printed, of W = U U^T; but the map drops a term, and is no such product",
    ),
    _Lemma("corollary-d2", "Corollary D.2", "w_ii changes by at most 1 / K in a step", f"Corollary D.2, {_EXACT}"),
    _Lemma("d6", "D.6", "w_ii stays above 1 - 2 / K once it is there", f"Lemma D.6, {_EXACT}"),
    _Lemma(
        "d7",
        "D.7",
        "From when w_ii is above 0.8, |w_ij| stays below what it is then, or omega, for a weaker j",
        f"Lemma D.7, {_EXACT}",
    ),
    _Lemma("d8", "D.8", "Minor entries stay in the initial phase for ever", f"Lemma D.8, Assertion D.1, {_EXACT}"),
    _Lemma(
        "d8-step",
        "D.8, step",
        "As printed: w_ii(t_0) >= P beta omega, where t_0 is when its upper bound gets there",
        f"the proof of Lemma D.8, {_EXACT}",
    ),
    _Lemma("d8-time", "D.8, t*", f"As printed: w_ii has passed 0.8 by t* {_MAP}", f"the proof of Lemma D.8, {_EXACT}"),
    _Lemma("d8-time-flow", "D.8, t*", "It has in the flow", f"the proof of Lemma D.8, {_EXACT}", _allowed_flow),
    _Lemma(
        "ceiling",
        "ceiling",
        "Corrected D.1 and D.5, from any start: |w_ij| <= sqrt(L_i L_j), L_i a logistic",
        _OURS,
        _any_flow,
    ),
)

claims = (
    Claim(
        name="allowed",
        says="The assumptions hold at these starts, as printed: part of them",
        source="Assumptions D.1 to D.5, with K = 20, kappa = 1.11, C = 2",
        statistic=_hold,
        low=1.0,
    ),
    *(
        Claim(
            name=one.name,
            says=f"{one.says}: runs that violate it",
            source=one.source,
            statistic=partial(_violations, one.lemma, one.groups),
            high=0.0,
        )
        for one in _LEMMAS
    ),
)
