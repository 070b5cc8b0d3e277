"""The authors' scripts: the data matrix squared, Euler's steps, and what of the figures hangs on it   (Appendix E)

What the text does not tell of Figures 5, 8, 9 and 10: the programs behind them, as reported, have A^2 where the paper
has A, which sets the concepts' strengths farther apart; they take Euler's steps of .01 in U, 2000 or 10000 of them,
where appendix D has the map D.2 in W; and U starts with uniform entries between 0 and 1/5 or 1/10, so that all of W is
positive.

    A       E[x x^T], strengths a_p = sigma_p^2 + mu_p^2 / s
    A^2     strengths a_p^2
    var     A^2 with the numbers of the figures' captions as variances, sigma_p for sigma_p^2, as in their data code

Here all of it stands side by side, from the same starts, on the data of Figures 8 and 9.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.authors_scripts.simulations import (
    CONVENTIONS,
    DATA,
    HYSTERESES,
    flows_by_law,
    maps_beside_flow,
    one_start,
    padded_strengths,
)
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext


@dataclass(frozen=True, kw_only=True)
class Params:
    """The authors' numbers, from many starts."""

    divisors: tuple[float, ...] = (5.0, 10.0)  # entries of U are uniform from 0 to 1 over this
    starts: int = 4096  # of each law
    step: float = 0.01  # of Euler's method and of the map D.2
    steps: tuple[int, ...] = (2000, 10_000)  # after which their runs end
    map_starts: int = 1024  # of the first ones, from which Euler's method and D.2 are iterated
    seed: int = 0  # of all starts

    def __post_init__(self) -> None:
        parameter_checks.at_least(1, self, "starts", "map_starts")
        parameter_checks.at_least(0, self, "seed")
        parameter_checks.between(1e-4, 0.05, self, "step")
        if not self.divisors or not all(1 <= one < float("inf") for one in self.divisors):
            raise InputError(f"divisors must be one or more numbers of at least 1; got {self.divisors!r}.")
        if len(self.steps) != 2 or not 1 <= self.steps[0] < self.steps[1]:
            raise InputError(f"steps must be two, increasing, at least 1; got {self.steps!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds."""
        return cls(divisors=(5.0,), starts=160, map_starts=48, steps=(2000, 4000))

    @classmethod
    def paper(cls) -> "Params":
        """The default has the authors' numbers."""
        return cls()


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Flows with every convention, then both discrete maps."""
    cases = [(name, convention) for name in DATA for convention in CONVENTIONS]
    flows = []
    for n, (name, convention) in enumerate(cases):
        report = context.part(0.7 * n / len(cases), 0.7 * (n + 1) / len(cases))
        report(0.0, f"{name}, {convention}")
        flows.append(context.cached(f"flows-{n}", partial(flows_by_law, params, name, convention)))
    maps = []
    for n, convention in enumerate(CONVENTIONS[:2]):
        context.report(0.7 + 0.15 * n, f"Euler's steps and D.2, {convention}")
        maps.append(context.cached(f"maps-{n}", partial(maps_beside_flow, params, convention)))
    context.report(1.0, "done")
    per_data = [
        xr.concat(flows[n : n + len(CONVENTIONS)], dim="convention") for n in range(0, len(cases), len(CONVENTIONS))
    ]
    both = xr.concat(per_data, dim="data").assign_coords(data=list(DATA), convention=list(CONVENTIONS))
    both = both.assign(
        concepts=("data", [len(mu) for mu, _ in DATA.values()]),
        end=("steps", [params.step * n for n in params.steps], {"long_name": "time of the last step"}),
        strength=(
            ("data", "convention", "concept"),
            np.array([padded_strengths(*case) for case in cases]).reshape(2, 3, -1),
        ),
    )
    maps_too = xr.concat(maps, dim="map_convention").assign_coords(map_convention=list(CONVENTIONS[:2]))
    return xr.merge([both, maps_too, one_start(params)]).assign_attrs(
        starts=params.starts, map_starts=min(params.map_starts, params.starts)
    )


def _with(run: xr.Dataset, figure: str, convention: str, descents: int, hysteresis: float = 0.0) -> float:
    one = run.share.sel(data=figure, convention=convention, descents=descents, hysteresis=hysteresis)
    return float(one.isel(divisor=0))


def _more(run: xr.Dataset, *, figure: str, descents: int) -> Estimate:
    """The share with so many descents with A^2, over that with A."""
    plain, squared = (_with(run, figure, convention, descents) for convention in CONVENTIONS[:2])
    seen = [_with(run, figure, convention, descents, HYSTERESES[1]) for convention in CONVENTIONS[:2]]
    if plain == 0:
        return Estimate.unresolved("No start has so many descents with A; take more starts.")
    spread = squared / plain * 1.96 * sum((1 - one) / (one * run.starts) for one in (plain, squared)) ** 0.5
    return Estimate(
        squared / plain,
        spread,
        remark=f"{squared:.4f} and {plain:.4f}; at a hysteresis of .003 {seen[1]:.4f} and {seen[0]:.4f}",
    )


def _commonest(run: xr.Dataset, *, convention: str) -> Estimate:
    """The commonest number of descents on the data of Figure 8."""
    shares = run.share.sel(data="Figure 8", convention=convention, hysteresis=0.0).isel(divisor=0).values
    told = ", ".join(f"{k}: {share:.3f}" for k, share in enumerate(shares) if share > 0)
    return Estimate(float(shares.argmax()), remark=told)


def _beyond(run: xr.Dataset) -> Estimate:
    """The share of starts with more descents than concepts, all data and conventions together."""
    more = run.share.where(run.descents > run.concepts, 0.0).sel(hysteresis=0.0).sum("descents")
    return Estimate(float(more.max()), remark=f"{more.size} batches of {run.starts}")


def _learned(run: xr.Dataset, *, convention: str) -> Estimate:
    one = run.learned.sel(data="Figure 8", convention=convention).isel(divisor=0)
    return Estimate(float(one[0]), remark=f"after {int(run.steps[1])} steps {float(one[1]):.3f}")


def _of_maps(name: str, pick: str) -> Callable[[xr.Dataset], Estimate]:
    """The largest or smallest of a number over both conventions and all laws."""

    def statistic(run: xr.Dataset) -> Estimate:
        values = run[name].values
        told = ", ".join(f"{value:.3g}" for value in values.ravel())
        return Estimate(float(getattr(values, pick)()), remark=f"{told}; {run.map_starts} starts each")

    return statistic


def _indefinite(run: xr.Dataset, *, law: str) -> Estimate:
    lost, blown = (run[name].sel(map_convention="A", law=law) for name in ("printed_lost", "printed_blown"))
    squared = float(run.printed_lost.sel(map_convention="A^2", law=law))
    told = f"{float(blown):.3f} blow up; with A^2 {squared:.3f} lose it"
    return Estimate.share(float(lost * run.map_starts), float(run.map_starts), told)


_NOTE = "Reported of the authors' programs, which are not part of the paper; the bound from a pilot on other seeds"

claims = (
    Claim(
        name="triple",
        says="Squaring A makes three descents on Figure 8's data commoner: their share with A^2 over that with A",
        source=f"{_NOTE}, 2.3",
        statistic=partial(_more, figure="Figure 8", descents=3),
        low=1.5,
    ),
    Claim(
        name="quadruple",
        says="And four descents on Figure 9's: the same ratio",
        source=f"{_NOTE}, 13",
        statistic=partial(_more, figure="Figure 9", descents=4),
        low=3.0,
    ),
    Claim(
        name="commonest-A",
        says="With the paper's A most of their starts on Figure 8's data have two descents: the commonest number",
        source=_NOTE,
        statistic=partial(_commonest, convention="A"),
        low=2.0,
        high=2.0,
    ),
    Claim(
        name="commonest-A-squared",
        says="With A^2 most have three: the commonest number",
        source=_NOTE,
        statistic=partial(_commonest, convention="A^2"),
        low=3.0,
        high=3.0,
    ),
    Claim(
        name="at-most-concepts",
        says="With no convention are there more descents than concepts: largest share of starts that have more",
        source="A conjecture from trial runs, without a proof",
        statistic=_beyond,
        high=0.0,
    ),
    Claim(
        name="learned-A",
        says="With A 2000 steps of .01 are enough on Figure 8's data: share of starts that have learned all",
        source=_NOTE,
        statistic=partial(_learned, convention="A"),
        low=0.95,
    ),
    Claim(
        name="learned-A-squared",
        says="With A^2 they are not: the same share",
        source=f"{_NOTE}, .15",
        statistic=partial(_learned, convention="A^2"),
        high=0.5,
    ),
    Claim(
        name="euler-sound",
        says="Euler's steps in U keep W positive semidefinite: runs that lose it",
        source="W = U U^T, whatever the step",
        statistic=_of_maps("euler_lost", "max"),
        high=0.0,
    ),
    Claim(
        name="euler-descents",
        says="They show as many descents as the flow: least share of starts for which they do",
        source=f"{_NOTE}, .97",
        statistic=_of_maps("euler_same", "min"),
        low=0.9,
    ),
    Claim(
        name="euler-error",
        says="But they are not exact: largest error of the loss, in units of |x|^2 / 2",
        source=f"{_NOTE}, .04; a step of .01 of first order",
        statistic=_of_maps("euler_error", "max"),
        low=1e-3,
        high=0.1,
    ),
    *(
        Claim(
            name=f"printed-map-{law}",
            says=f"The printed map D.2 loses positive semidefiniteness from {law} starts of full rank: share, with A",
            source="D.2 lacks the term eta^2 grad grad^T of a gradient step in U; 5 to 40 % in trial runs",
            statistic=partial(_indefinite, law=law),
            low=0.05,
            high=0.4,
        )
        for law in ("uniform", "normal")
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """Shares of starts by their number of descents, and all numbers; one start with both matrices."""
    rows = []
    for name in run.data.values.tolist():
        for divisor in run.divisor.values.tolist():
            for convention in CONVENTIONS:
                one = run.sel(data=name, divisor=divisor, convention=convention)
                shares = (float(one.share.sel(hysteresis=0.0, descents=k)) for k in range(1, 5))
                rows.append((name, f"rand / {divisor:g}", convention, *shares, *map(float, one.learned.values)))
    ends = (f"learned after {n} steps" for n in run.steps.values.tolist())
    columns = ("data", "U", "matrix", "one descent", "two", "three", "four", *ends)
    return [
        Figure(
            name="descents",
            title="With the data matrix squared, many descents are the rule",
            caption="Share of starts by the number of descents of the loss out of distribution, exact flow, hysteresis "
            "0, U uniform between 0 and the reciprocal of the first divisor. `var` is A^2 with the captions' numbers "
            "as variances.",
            panels=tuple(_panel(run, name) for name in run.data.values.tolist()),
            table=Table(columns=columns, rows=tuple(rows)),
        ),
        Figure(
            name="one-start",
            title="One start on the data of Figure 8, with A and with A^2",
            caption="The loss out of distribution against the logarithm of time, in true time of either flow. Vertical "
            "lines are the ends of the authors' runs, at the step they take.",
            panels=(
                Panel(
                    x=Axis("time t of gradient flow", scale="log"),
                    y=Axis("|(W - 1) x|² / 2"),
                    marks=(
                        *(
                            Line(
                                x=run.time.values, y=run.example_loss.sel(map_convention=one).values, group=one, color=n
                            )
                            for n, one in enumerate(CONVENTIONS[:2])
                        ),
                        *(
                            Mark(at=float(end), label=f"{n} steps")
                            for n, end in zip(run.steps.values.tolist(), run.end.values, strict=True)
                        ),
                    ),
                ),
            ),
            columns=1,
        ),
    ]


def _panel(run: xr.Dataset, name: str) -> Panel:

    most = int(run.concepts.sel(data=name)) + 1
    lines = []
    for n, convention in enumerate(CONVENTIONS):
        shares = run.share.sel(data=name, convention=convention, hysteresis=0.0).isel(divisor=0).values[1 : most + 1]
        counts = run.descents.values[1 : most + 1]
        lines.append(Line(x=counts, y=shares, group=convention, color=n, opacity=0.5))
        lines.append(Line(x=counts, y=shares, group=convention, color=n, style="points"))
    return Panel(
        title=f"data of {name}",
        x=Axis("descents", range=(0.7, most + 0.3)),
        y=Axis("share of starts", range=(-0.03, 1.0)),
        marks=tuple(lines),
    )
