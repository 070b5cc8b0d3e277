"""Claims of the entry `lemmas`: one for each lemma, as printed or as corrected."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import xarray as xr

from saddlescope.reproduction.claim import Claim, Claims, Estimate, Kind

_ALLOWED = ("allowed, flow", "allowed, map")


def violating_runs(lemma: str, groups: Callable[[str], bool], run: xr.Dataset) -> Estimate:
    """Return the number of runs of some groups that violate a lemma."""
    chosen = run.isel(group=[groups(name) for name in run.group.values.tolist()]).sel(lemma=lemma)
    violations, runs, names = (chosen[of].values.tolist() for of in ("violations", "runs", "group"))
    each = [f"{k} of {n} ({name})" for k, n, name in zip(violations, runs, names, strict=True)]
    remark = ", ".join(each) if len(each) <= 2 else f"{sum(runs)} runs of {len(each)} kinds"
    return Estimate(float(sum(violations)), remark=f"{remark}; largest excess {float(chosen.largest.max()):.3g}")


def is_allowed(name: str) -> bool:
    """Return True for groups of allowed starts."""
    return name in _ALLOWED


def is_allowed_flow(name: str) -> bool:
    """Return True for the flows from allowed starts."""
    return name == _ALLOWED[0]


def is_flow(name: str) -> bool:
    """Return True for flows from any start."""
    return name.endswith("flow")


_EXACT = "as printed; exact"

_OURS = "this project's correction, proved in saddlescope.theory.concepts; exact"

_MAP = "in the flow and in the map D.2"


class _Lemma(NamedTuple):
    """Statement that no run of some groups may violate."""

    name: str
    lemma: str
    says: str
    source: str
    groups: Callable[[str], bool] = is_allowed


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
        is_flow,
    ),
    _Lemma(
        "d4",
        "D.4",
        "From the initial phase to lambda = 0.85, w_ii grows at least as e^(4 a_i (1 - lambda) t / kappa)",
        f"Lemma D.4, {_EXACT}",
    ),
    _Lemma("d5-upper", "D.5, upper", "w_ii <= 1 + 2 / K", f"Lemma D.5, {_EXACT}"),
    _Lemma("d5-lower-flow", "D.5, lower", "0 <= w_ii in the flow", f"Lemma D.5, {_EXACT}", is_allowed_flow),
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
    _Lemma("d8-time-flow", "D.8, t*", "It has in the flow", f"the proof of Lemma D.8, {_EXACT}", is_allowed_flow),
    _Lemma(
        "ceiling",
        "ceiling",
        "Corrected D.1 and D.5, from any start: |w_ij| <= sqrt(L_i L_j), L_i a logistic",
        _OURS,
        is_flow,
    ),
)

claims = Claims()


@claims.add(
    "allowed",
    "The assumptions hold at these starts, as printed",
    quantity="part of them",
    kind="printed",
    source="Assumptions D.1 to D.5, with K = 20, kappa = 1.11, C = 2",
    low=1.0,
)
def assumptions_hold(run: xr.Dataset) -> Estimate:
    """Return the part of the allowed starts at which the assumptions hold."""
    allowed = run.sel(group=list(_ALLOWED))
    return Estimate(float((allowed.hold / allowed.runs).min()), remark=f"{int(allowed.runs.max())} starts")


claims.extend(
    Claim(
        name=one.name,
        statement=f"{one.says}",
        quantity="runs that violate it",
        kind=Kind.PRINTED,
        source=one.source,
        high=0.0,
        statistic=partial(violating_runs, one.lemma, one.groups),
    )
    for one in _LEMMAS
)
