"""Statistics behind the claims of the entry `authors_scripts`."""

import xarray as xr

from saddlescope.papers.concept_learning.authors_scripts.simulations import CONVENTIONS, HYSTERESES
from saddlescope.reproduction.claim import Estimate


def _descent_share(run: xr.Dataset, figure: str, convention: str, descents: int, hysteresis: float = 0.0) -> float:
    """Return the share of starts with so many descents, for the first divisor."""
    one = run.share.sel(data=figure, convention=convention, descents=descents, hysteresis=hysteresis)
    return float(one.isel(divisor=0))


def share_ratio(run: xr.Dataset, *, figure: str, descents: int) -> Estimate:
    """Return the share with so many descents with A^2, over that with A."""
    plain, squared = (_descent_share(run, figure, convention, descents) for convention in CONVENTIONS[:2])
    seen = [_descent_share(run, figure, convention, descents, HYSTERESES[1]) for convention in CONVENTIONS[:2]]
    if plain == 0:
        return Estimate.unresolved("No start has so many descents with A; take more starts.")
    spread = squared / plain * 1.96 * sum((1 - one) / (one * run.starts) for one in (plain, squared)) ** 0.5
    return Estimate(
        squared / plain,
        spread,
        remark=f"{squared:.4f} and {plain:.4f}; at a hysteresis of .003 {seen[1]:.4f} and {seen[0]:.4f}",
    )


def commonest_count(run: xr.Dataset, *, convention: str) -> Estimate:
    """Return the commonest number of descents on the data of Figure 8."""
    shares = run.share.sel(data="Figure 8", convention=convention, hysteresis=0.0).isel(divisor=0).values
    remark = ", ".join(f"{k}: {share:.3f}" for k, share in enumerate(shares) if share > 0)
    return Estimate(float(shares.argmax()), remark=remark)


def excess_share(run: xr.Dataset) -> Estimate:
    """Return the largest share of starts with more descents than concepts, over data and conventions."""
    more = run.share.where(run.descents > run.concepts, 0.0).sel(hysteresis=0.0).sum("descents")
    return Estimate(float(more.max()), remark=f"{more.size} batches of {run.starts}")


def learned_share(run: xr.Dataset, *, convention: str) -> Estimate:
    """Return the share of starts on Figure 8's data that have learned all after the shorter run."""
    one = run.learned.sel(data="Figure 8", convention=convention).isel(divisor=0)
    return Estimate(float(one[0]), remark=f"after {int(run.steps[1])} steps {float(one[1]):.3f}")


def map_extreme(run: xr.Dataset, *, name: str, pick: str) -> Estimate:
    """Return the largest or smallest of a number over both conventions and all laws."""
    values = run[name].values
    remark = ", ".join(f"{value:.3g}" for value in values.ravel())
    return Estimate(float(getattr(values, pick)()), remark=f"{remark}; {run.map_starts} starts each")


def indefinite_share(run: xr.Dataset, *, law: str) -> Estimate:
    """Return the share of runs of D.2 with A that lose positive semidefiniteness."""
    lost, blown = (run[name].sel(map_convention="A", law=law) for name in ("printed_lost", "printed_blown"))
    squared = float(run.printed_lost.sel(map_convention="A^2", law=law))
    remark = f"{float(blown):.3f} blow up; with A^2 {squared:.3f} lose it"
    return Estimate.share(float(lost * run.map_starts), float(run.map_starts), remark)
