"""Claims of the entry `authors_scripts`."""

from functools import partial

import xarray as xr

from saddlescope.papers.concept_learning.authors_scripts.simulations import CONVENTIONS, HYSTERESES
from saddlescope.reproduction.claim import Claim, Claims, Estimate, Kind


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


_NOTE = "Reported of the authors' programs, which are not part of the paper; the bound from a pilot on other seeds"

claims = Claims()

claims.add(
    "triple",
    "Squaring A makes three descents on Figure 8's data commoner",
    quantity="their share with A^2 over that with A",
    kind="printed",
    source=f"{_NOTE}, 2.3",
    low=1.5,
)(partial(share_ratio, figure="Figure 8", descents=3))

claims.add(
    "quadruple",
    "And four descents on Figure 9's",
    quantity="the same ratio",
    kind="printed",
    source=f"{_NOTE}, 13",
    low=3.0,
)(partial(share_ratio, figure="Figure 9", descents=4))

claims.add(
    "commonest-A",
    "With the paper's A most of their starts on Figure 8's data have two descents",
    quantity="the commonest number",
    kind="printed",
    source=_NOTE,
    low=2.0,
    high=2.0,
)(partial(commonest_count, convention="A"))

claims.add(
    "commonest-A-squared",
    "With A^2 most have three",
    quantity="the commonest number",
    kind="printed",
    source=_NOTE,
    low=3.0,
    high=3.0,
)(partial(commonest_count, convention="A^2"))


@claims.add(
    "at-most-concepts",
    "With no convention are there more descents than concepts",
    quantity="largest share of starts that have more",
    kind="printed",
    source="A conjecture from trial runs, without a proof",
    high=0.0,
)
def excess_share(run: xr.Dataset) -> Estimate:
    """Return the largest share of starts with more descents than concepts, over data and conventions."""
    more = run.share.where(run.descents > run.concepts, 0.0).sel(hysteresis=0.0).sum("descents")
    return Estimate(float(more.max()), remark=f"{more.size} batches of {run.starts}")


claims.add(
    "learned-A",
    "With A 2000 steps of .01 are enough on Figure 8's data",
    quantity="share of starts that have learned all",
    kind="printed",
    source=_NOTE,
    low=0.95,
)(partial(learned_share, convention="A"))

claims.add(
    "learned-A-squared",
    "With A^2 they are not",
    quantity="the same share",
    kind="printed",
    source=f"{_NOTE}, .15",
    high=0.5,
)(partial(learned_share, convention="A^2"))

claims.add(
    "euler-sound",
    "Euler's steps in U keep W positive semidefinite",
    quantity="runs that lose it",
    kind="printed",
    source="W = U U^T, whatever the step",
    high=0.0,
)(partial(map_extreme, name="euler_lost", pick="max"))

claims.add(
    "euler-descents",
    "They show as many descents as the flow",
    quantity="least share of starts for which they do",
    kind="printed",
    source=f"{_NOTE}, .97",
    low=0.9,
)(partial(map_extreme, name="euler_same", pick="min"))

claims.add(
    "euler-error",
    "But they are not exact",
    quantity="largest error of the loss, in units of |x|^2 / 2",
    kind="printed",
    source=f"{_NOTE}, .04; a step of .01 of first order",
    low=1e-3,
    high=0.1,
)(partial(map_extreme, name="euler_error", pick="max"))

claims.extend(
    Claim(
        name=f"printed-map-{law}",
        statement=f"The printed map D.2 loses positive semidefiniteness from {law} starts of full rank",
        quantity="share, with A",
        kind=Kind.PRINTED,
        source="D.2 lacks the term eta^2 grad grad^T of a gradient step in U; 5 to 40 % in trial runs",
        low=0.05,
        high=0.4,
        statistic=partial(indefinite_share, law=law),
    )
    for law in ("uniform", "normal")
)
