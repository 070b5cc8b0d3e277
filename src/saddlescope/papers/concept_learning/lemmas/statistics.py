"""Statistics behind the claims of the entry `lemmas`."""

from collections.abc import Callable

import xarray as xr

from saddlescope.reproduction.claim import Estimate

_ALLOWED = ("allowed, flow", "allowed, map")


def violating_runs(lemma: str, groups: Callable[[str], bool], run: xr.Dataset) -> Estimate:
    """Return the number of runs of some groups that violate a lemma."""
    chosen = run.isel(group=[groups(name) for name in run.group.values.tolist()]).sel(lemma=lemma)
    violations, runs, names = (chosen[of].values.tolist() for of in ("violations", "runs", "group"))
    each = [f"{k} of {n} ({name})" for k, n, name in zip(violations, runs, names, strict=True)]
    remark = ", ".join(each) if len(each) <= 2 else f"{sum(runs)} runs of {len(each)} kinds"
    return Estimate(float(sum(violations)), remark=f"{remark}; largest excess {float(chosen.largest.max()):.3g}")


def assumptions_hold(run: xr.Dataset) -> Estimate:
    """Return the part of the allowed starts at which the assumptions hold."""
    allowed = run.sel(group=list(_ALLOWED))
    return Estimate(float((allowed.hold / allowed.runs).min()), remark=f"{int(allowed.runs.max())} starts")


def is_allowed(name: str) -> bool:
    """Return True for groups of allowed starts."""
    return name in _ALLOWED


def is_allowed_flow(name: str) -> bool:
    """Return True for the flows from allowed starts."""
    return name == _ALLOWED[0]


def is_flow(name: str) -> bool:
    """Return True for flows from any start."""
    return name.endswith("flow")
