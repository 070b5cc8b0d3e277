"""Statistics behind the claims of the entry `descents`."""

import xarray as xr

from saddlescope.papers.concept_learning.descents.simulations import LARGE
from saddlescope.reproduction.claim import Estimate


def descent_probability(run: xr.Dataset, *, name: str, law: str, least: int, most: int = 9) -> Estimate:
    """Return the share of starts with a number of descents in a range."""
    counts = run.counts.sel(data=name, law=law)
    return Estimate.share(float(counts.sel(descents=slice(least, most)).sum()), float(counts.sum()))


def start_count(run: xr.Dataset, *, name: str, law: str, least: int) -> Estimate:
    """Return the number of starts with at least so many descents."""
    counts = run.counts.sel(data=name, law=law)
    return Estimate(float(counts.sel(descents=slice(least, None)).sum()), remark=f"of {int(counts.sum())} starts")


def probability_gain(run: xr.Dataset) -> Estimate:
    """Return P(two or more) of positive W less that of random signs, on Figure 5's data."""
    one, other = (descent_probability(run, name="Figure 5", law=law, least=2) for law in ("uniform", "normal"))
    return Estimate(one.value - other.value, (one.uncertainty**2 + other.uncertainty**2) ** 0.5)


def conjecture_exceptions(run: xr.Dataset, *, small: bool) -> Estimate:
    """Return the number of starts with more descents than concepts, of small starts or of all."""
    sample = run.isel(small=[1] if small else [0, 1])
    seen, starts = int(sample.exceptions.sum()), int(sample.followed.sum())
    clear = float(sample.exception_rise.max())
    remark = f"; in the clearest one every rise is at least {clear:.2g} |x|^2 / 2" if seen else ""
    if not small and float(run.rise.sel(kind=LARGE)) > 0:
        seen, remark = seen + 1, f"{remark}; a search finds one more, among starts of entries up to 4"
    return Estimate(float(seen), remark=f"{starts} starts{remark}")


def largest_rise(run: xr.Dataset, *, kind: str) -> Estimate:
    """Return the largest rise that a search has found."""
    rise = float(run.rise.sel(kind=kind))
    if not rise > 0:
        return Estimate.unresolved("The search found no such start; raise pool or generations.")
    return Estimate(rise, remark=f"{int(run.search_followed)} starts followed")


def extra_descents(run: xr.Dataset) -> Estimate:
    """Return the number of searches that found one descent more than concepts."""
    found = run.rise.sel(kind=["2 concepts, three", "3 concepts, four"])
    return Estimate(float((found > 0).sum()), remark=f"{2 * int(run.search_followed)} starts followed")
