"""The authors' scripts: effects of the squared data matrix and of Euler's steps on the figures.

The programs behind Figures 5, 8, 9 and 10, as reported, differ from the text. They have A^2 where the paper has A, so
that the concepts' strengths are farther apart. They take 2000 or 10000 Euler's steps of .01 in U where appendix D has
the map D.2 in W. U starts with uniform entries between 0 and 1/5 or 1/10, so that all of W is positive.

    A       E[x x^T], strengths a_p = sigma_p^2 + mu_p^2 / s
    A^2     strengths a_p^2
    var     A^2 with the numbers of the figures' captions as variances, sigma_p for sigma_p^2, as in their data code

Here these conventions are compared from the same starts, on the data of Figures 8 and 9.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.shared.discrete_maps import LOST, euler_runs, printed_runs
from saddlescope.papers.concept_learning.shared.two_layer_runs import strengths_and_test_point
from saddlescope.plot import Axis, Figure, Mark, Panel, Table, lines
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

_DATA = {
    "Figure 8": ((1.0, 1.5, 2.2), (0.05, 0.05, 0.05)),
    "Figure 9": ((1.0, 1.5, 2.2, 2.7), (0.05, 0.05, 0.05, 0.5)),
}

_CONVENTIONS = ("A", "A^2", "var")

_HYSTERESES = (0.0, 0.003)  # in parts of the first loss

_MOST = 6  # largest count of descents

_RECORDED = 500  # times at which Euler's steps are compared with the flow


class Params(EntryParams):
    """The authors' numbers, from many starts."""

    divisors: tuple[float, ...] = param((5.0, 10.0), "reciprocals of the largest entries of U at the start", ge=1)
    starts: int = param(4096, "starts per divisor", ge=1)
    step: float = param(0.01, "step of Euler's method and of the map D.2", ge=1e-4, le=0.05, scale="log")
    steps: tuple[int, ...] = param(
        (2000, 10_000), "numbers of steps of a run", ge=1, least=2, most=2, order="increasing"
    )
    map_starts: int = param(1024, "starts of Euler's method and of D.2", ge=1)
    seed: int = param(0, "seed of all starts", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow flows with every convention, then iterate both discrete maps."""
    cases = [(name, convention) for name in _DATA for convention in _CONVENTIONS]
    flow, discrete = context.split(0.7, 0.3)
    flows, maps = [], []
    for n, (case, step) in enumerate(flow.steps(cases)):
        flows.append(step.cached(f"flows-{n}", partial(_flows_by_law, params, *case)))
        step.report(1.0, ", ".join(case))
    for n, (convention, step) in enumerate(discrete.steps(_CONVENTIONS[:2])):
        maps.append(step.cached(f"maps-{n}", partial(_compare_maps, params, convention)))
        step.report(1.0, f"Euler's steps and D.2, {convention}")
    per_data = [xr.concat(flows[n : n + 3], dim="convention") for n in (0, 3)]
    both = xr.concat(per_data, dim="data").assign_coords(data=list(_DATA), convention=list(_CONVENTIONS))
    strengths = [np.pad(a, (0, _MOST - len(a)), constant_values=np.nan) for a in (_strengths(*case) for case in cases)]
    both = both.assign(
        concepts=("data", [len(mu) for mu, _ in _DATA.values()]),
        end=("steps", [params.step * n for n in params.steps], {"long_name": "time of the last step"}),
        strength=(("data", "convention", "concept"), np.array(strengths).reshape(2, 3, -1)),
    )
    maps_too = xr.concat(maps, dim="map_convention").assign_coords(map_convention=list(_CONVENTIONS[:2]))
    return xr.merge([both, maps_too, _example_losses(params)]).assign_attrs(
        starts=params.starts, map_starts=min(params.map_starts, params.starts)
    )


def _strengths(name: str, convention: str) -> np.ndarray:
    mu, sigma = _DATA[name]
    a, _ = strengths_and_test_point(mu, tuple(one**0.5 for one in sigma) if convention == "var" else sigma)
    return a if convention == "A" else a**2


def _starts(params: Params, d: int, law: int) -> np.ndarray:
    rng = np.random.default_rng([params.seed, d, law])
    return rng.random((params.starts, d, d)) / params.divisors[law]


def _flows_by_law(params: Params, name: str, convention: str) -> xr.Dataset:
    """Return shares of starts by their number of descents under exact flow, and shares that have learned all."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.measure import find_descents

    a = _strengths(name, convention)
    x = np.array(_DATA[name][0])
    ends = [params.step * n for n in params.steps]
    counts, learned = [], []
    for law in range(len(params.divisors)):
        flows = symmetric_flows(
            a, _starts(params, len(a), law), test_point=x, until=ends[1], record=ends[:1], tolerance=1e-8
        )
        found = [find_descents(flows.turning_losses, hysteresis=h).counts for h in _HYSTERESES]
        counts.append([np.bincount(one, minlength=_MOST + 1)[: _MOST + 1] / len(flows) for one in found])
        off = np.abs(flows.W[:, 1:] - np.eye(len(a))).max(axis=(2, 3))
        learned.append((off < 0.01).mean(axis=0))
    return xr.Dataset(
        {
            "share": (("divisor", "hysteresis", "descents"), np.array(counts)),
            "learned": (("divisor", "steps"), np.array(learned)),
        },
        coords={
            "divisor": list(params.divisors),
            "hysteresis": list(_HYSTERESES),
            "descents": np.arange(_MOST + 1),
            "steps": list(params.steps),
        },
    )


def _compare_maps(params: Params, convention: str) -> xr.Dataset:
    """Compare Euler's steps in U and D.2 in W with exact flow on the data of Figure 8."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.measure import find_descents

    a, x = _strengths("Figure 8", convention), np.array(_DATA["Figure 8"][0])
    uniform = _starts(params, len(a), 0)[: params.map_starts]
    normal = 0.1 * np.random.default_rng([params.seed, 99]).standard_normal(uniform.shape)
    steps = params.steps[0]
    euler = euler_runs(a, uniform, step=params.step, steps=steps, keep=_RECORDED)
    flows = symmetric_flows(a, uniform, test_point=x, until=steps * params.step, record=euler.times, tolerance=1e-9)
    losses = euler.losses(x)
    descents = [find_descents(one).counts for one in (losses, flows.turning_losses)]
    printed = [printed_runs(a, starts, step=params.step, steps=steps, keep=100) for starts in (uniform, normal)]
    return xr.Dataset(
        {
            "euler_same": float((descents[0] == descents[1]).mean()),
            "euler_error": float(np.abs(losses - flows.losses).max() / (x @ x / 2)),
            "euler_lost": int(np.sum(euler.lowest.min(axis=1) < LOST)),
            "printed_lost": ("law", [float(runs.indefinite.mean()) for runs in printed]),
            "printed_blown": ("law", [float(runs.blown_up.mean()) for runs in printed]),
        },
        coords={"law": ["uniform", "normal"]},
    )


def _example_losses(params: Params) -> xr.Dataset:
    """Return losses with A and A^2 from the first start with one descent more with A^2, Figure 8's data."""
    from saddlescope.flow import symmetric_flows

    until = params.step * params.steps[1]
    times = np.geomspace(1e-3 * until, until, 500)
    x = np.array(_DATA["Figure 8"][0])
    follow = partial(symmetric_flows, test_point=x, until=until, record=times, tolerance=1e-11)
    starts = _starts(params, len(x), 0)[:64]
    flows = [follow(_strengths("Figure 8", convention), starts) for convention in _CONVENTIONS[:2]]
    shown = int(np.argmax(flows[1].turns - flows[0].turns == 2))
    losses = [one.losses[shown, np.searchsorted(one.times, times)] for one in flows]
    return xr.Dataset(
        {"example_loss": (("map_convention", "time"), np.array(losses))},
        coords={"time": times, "map_convention": list(_CONVENTIONS[:2])},
    )


_NOTE = "Reported of the authors' programs, which are not part of the paper; the bound from a pilot on other seeds"

claims = Claims()


def _share_ratio(run: xr.Dataset, *, figure: str, descents: int) -> Estimate:
    shares = run.share.sel(data=figure, descents=descents, convention=list(_CONVENTIONS[:2])).isel(divisor=0)
    plain, squared = shares.sel(hysteresis=0.0).values.tolist()
    seen = shares.sel(hysteresis=_HYSTERESES[1]).values.tolist()
    if plain == 0:
        return Estimate.unresolved("No start has so many descents with A; take more starts.")
    spread = squared / plain * 1.96 * sum((1 - one) / (one * run.starts) for one in (plain, squared)) ** 0.5
    remark = f"{squared:.4f} and {plain:.4f}; at a hysteresis of .003 {seen[1]:.4f} and {seen[0]:.4f}"
    return Estimate(squared / plain, spread, remark=remark)


claims.add(
    "triple",
    "Squaring the second-moment matrix A of three-concept data makes three descents of the loss at least 1.5 times "
        "as frequent",
    quantity="share of initializations with three descents of the out-of-distribution loss under A² (the authors' "
        "code), divided by that under A", kind="own", source=f"{_NOTE}, 2.3", low=1.5,
)(partial(_share_ratio, figure="Figure 8", descents=3))  # fmt: skip

claims.add(
    "quadruple",
    "Squaring the second-moment matrix A of four-concept data makes four descents of the loss at least 3 times as "
        "frequent",
    quantity="share of initializations with four descents of the out-of-distribution loss under A² (the authors' "
        "code), divided by that under A", kind="own", source=f"{_NOTE}, 13", low=3.0, sizes=("default", "paper"),
)(partial(_share_ratio, figure="Figure 9", descents=4))  # fmt: skip


def _commonest_count(run: xr.Dataset, *, convention: str) -> Estimate:
    shares = run.share.sel(data="Figure 8", convention=convention, hysteresis=0.0).isel(divisor=0).values
    remark = ", ".join(f"{k}: {share:.3f}" for k, share in enumerate(shares) if share > 0)
    return Estimate(float(shares.argmax()), remark=remark)


claims.add(
    "commonest-A",
    "For three concepts and the data matrix A as printed, the out-of-distribution loss most often has two descents",
    quantity="most frequent number of descents of the out-of-distribution loss over uniform positive initial "
        "weights, with data second-moment matrix A", kind="own", source=_NOTE, low=2.0, high=2.0,
)(partial(_commonest_count, convention="A"))  # fmt: skip

claims.add(
    "commonest-A-squared",
    "For three concepts and the squared data matrix A² (authors' code), the out-of-distribution loss most often has "
        "three descents",
    quantity="most frequent number of descents of the out-of-distribution loss over uniform positive initial "
        "weights, with squared second-moment matrix A²", kind="own", source=_NOTE, low=3.0, high=3.0,
)(partial(_commonest_count, convention="A^2"))  # fmt: skip


@claims.add(
    "at-most-concepts",
    "The out-of-distribution loss never has more descents than concepts, with data matrix A or A², from positive "
        "initial weights",
    quantity="share of initializations with more descents of the loss than concepts, largest over data sets, data "
        "matrices and initial scales", kind="own", source="A conjecture from trial runs, without a proof", high=0.0,
)  # fmt: skip
def _excess_share(run: xr.Dataset) -> Estimate:
    more = run.share.where(run.descents > run.concepts, 0.0).sel(hysteresis=0.0).sum("descents")
    return Estimate(float(more.max()), remark=f"{more.size} batches of {run.starts}")


def _learned_share(run: xr.Dataset, *, convention: str) -> Estimate:
    one = run.learned.sel(data="Figure 8", convention=convention).isel(divisor=0)
    return Estimate(float(one[0]), remark=f"after {int(run.steps[1])} steps {float(one[1]):.3f}")


_LEARNED = "share of initializations with UUᵀ within 0.01 of the identity at the end of the shorter run"

claims.add(
    "learned-A",
    "With data second-moment matrix A, gradient flow learns all concepts within the shorter run from at least 95% of "
        "initializations", quantity=_LEARNED, kind="own", source=f"{_NOTE}; 2000 steps of .01", low=0.95,
)(partial(_learned_share, convention="A"))  # fmt: skip

claims.add(
    "learned-A-squared",
    "With squared data matrix A², gradient flow learns all concepts within the shorter run from at most 50% of "
        "initializations", quantity=_LEARNED, kind="own", source=f"{_NOTE}, .15; 2000 steps of .01", high=0.5,
)(partial(_learned_share, convention="A^2"))  # fmt: skip


def _map_extreme(run: xr.Dataset, *, name: str, pick: str) -> Estimate:
    """Return the largest or smallest of a number over both data matrices."""
    values = run[name].values
    remark = ", ".join(f"{value:.3g}" for value in values.ravel())
    return Estimate(float(getattr(values, pick)()), remark=f"{remark}; {run.map_starts} starts each")


claims.add(
    "euler-sound", "Euler steps in the factor U keep the network map W = UUᵀ positive semidefinite in every run",
    quantity="number of runs in which W has a negative eigenvalue, larger of data matrices A and A²", kind="own",
    source="W = U U^T, whatever the step", high=0.0,
)(partial(_map_extreme, name="euler_lost", pick="max"))  # fmt: skip

claims.add(
    "euler-descents",
    "Euler steps in U give as many loss descents as gradient flow from at least 90% of initializations",
    quantity="share of initializations with equal numbers of out-of-distribution loss descents by both methods, "
        "smaller of data matrices A and A²", kind="own", source=f"{_NOTE}, .97", low=0.9,
)(partial(_map_extreme, name="euler_same", pick="min"))  # fmt: skip

claims.add(
    "euler-error", "Out-of-distribution losses by Euler steps differ from those by gradient flow by 0.1% to 10%",
    quantity="largest difference of the loss over initializations, times and data matrices, relative to |x|²/2, "
        "the loss of the zero network",
    kind="own", source=f"{_NOTE}, .04; a step of .01 of first order", low=1e-3, high=0.1,
)(partial(_map_extreme, name="euler_error", pick="max"))  # fmt: skip


def _indefinite_share(run: xr.Dataset, *, law: str) -> Estimate:
    lost, blown = (run[name].sel(map_convention="A", law=law) for name in ("printed_lost", "printed_blown"))
    squared = float(run.printed_lost.sel(map_convention="A^2", law=law))
    remark = f"{float(blown):.3f} blow up; with A^2 {squared:.3f} lose it"
    return Estimate.share(float(lost * run.map_starts), float(run.map_starts), remark)


for _law in ("uniform", "normal"):
    claims.add(
        f"printed-map-{_law}",
        f"The paper's discrete map D.2 makes W = UUᵀ indefinite from 5% to 40% of {_law} full-rank initial weights",
        quantity=f"share of {_law} initializations from which W loses positive semidefiniteness, with data matrix A",
        kind="own", source="D.2 lacks the term eta^2 grad grad^T of a gradient step in U; 5 to 40 % in trial runs",
        low=0.05, high=0.4, sizes=("default", "paper"),
    )(partial(_indefinite_share, law=_law))  # fmt: skip


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw shares of starts by their number of descents, with a table, and one start with both matrices."""
    names, panels, rows = run.data.values.tolist(), [], []
    for name in names:
        for divisor in run.divisor.values.tolist():
            for convention in _CONVENTIONS:
                one = run.sel(data=name, divisor=divisor, convention=convention)
                shares = one.share.sel(hysteresis=0.0, descents=range(1, 5)).values.tolist()
                rows.append((name, f"rand / {divisor:g}", convention, *shares, *one.learned.values.tolist()))
        most = int(run.concepts.sel(data=name)) + 1
        shown = run.share.sel(data=name, hysteresis=0.0, descents=slice(1, most)).isel(divisor=0)
        draw = partial(lines, shown, x="descents", hue="convention", grouped=True)
        x, y = Axis("descents", range=(0.7, most + 0.3)), Axis("share of starts", range=(-0.03, 1.0))
        panels.append(Panel(title=f"data of {name}", x=x, y=y, marks=draw(opacity=0.5) + draw(style="points")))
    ends = (f"learned after {n} steps" for n in run.steps.values.tolist())
    columns = ("data", "U", "matrix", "one descent", "two", "three", "four", *ends)
    losses = lines(run.example_loss, x="time", hue="map_convention", grouped=True)
    marks = [Mark(at=float(end), label=f"{n} steps") for n, end in zip(run.steps.values, run.end.values, strict=True)]
    loss = Axis("|(W − 1) x|² / 2")
    return [
        Figure(
            name="descents",
            title="Share of starts by number of descents and data matrix",
            caption="Descents of the loss out of distribution under exact flow, at hysteresis 0, from U uniform "
            f"between 0 and 1/{run.divisor.values[0]:g}. `var` is A² with the captions' numbers as variances.",
            panels=tuple(panels),
            table=Table(columns=columns, rows=tuple(rows)),
        ),
        Figure(
            name="one-start",
            title="One start on the data of Figure 8, with A and with A²",
            caption="Loss out of distribution against the logarithm of time, in true time of either flow. Vertical "
            "lines are the ends of the authors' runs, at their step.",
            panels=(Panel(x=Axis("time t of gradient flow", scale="log"), y=loss, marks=(*losses, *marks)),),
            columns=1,
        ),
    ]


entry = Entry(
    "concept-learning/authors-scripts",
    "The authors' scripts: effects of the squared data matrix and of Euler's steps on the figures", citation=CITATION,
    source="Appendix E", params=Params, quick=dict(divisors=(5.0,), starts=160, map_starts=48, steps=(2000, 4000)),
    run=run, claims=claims, figures=figures,
)  # fmt: skip
