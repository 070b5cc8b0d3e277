"""Escape and width: the share of descents that find a fast escape direction, against width and depth.

ReLU networks descend the localised loss of Example 1, eight points on a circle, on the sphere |theta|^2 = L from random
starts, at many widths and several depths L; at L = 3 the two hidden layers have unequal widths, too.

    faster  a run whose speed exceeds tan(pi/8) = sqrt 2 - 1, the best of rank-one networks of any depth
    optimal a run whose speed is within 0.001 of 1/2, the certified largest one at L = 3: descent is slow at the end
    odds    p / (1 - p) of the share p of runs that succeed
    law     log odds = c + sum_i k_i log w_i: the odds grow as the power k_i of the width w_i
"""

import itertools
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import NormalDist
from typing import Literal

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle, depth_three_optimum, rank_one_optimum
from saddlescope.plot import Axis, Band, Figure, Heat, Line, Panel
from saddlescope.reproduction.claim import Claims, Estimate, Size, wilson_interval
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.grid import cached_rows
from saddlescope.reproduction.metric import Metric
from saddlescope.reproduction.parameters import EntryParams, param

Success = Literal["faster", "optimal"]

_SAMPLES = 8  # of Example 1
_DEPTH = 3  # the depth whose optimum is certified
_FASTER, _OPTIMAL = 1e-4, 1e-3
_RATE = 0.03  # of the first step of a descent


class Params(EntryParams):
    """Error bars of about two per cent."""

    widths: tuple[int, ...] = param(
        (3, 4, 6, 8, 12, 16, 24, 32), "widths of all hidden layers", ge=1, order="increasing", scale="log"
    )
    depths: tuple[int, ...] = param((3, 4, 6), "depths L", ge=3, order="increasing")
    unequal: tuple[int, ...] = param(
        (4, 8, 16, 32), "widths of each of two hidden layers, combined in all pairs", ge=1, order="increasing",
        scale="log",
    )  # fmt: skip
    starts: int = param(512, "random starts of each network", ge=2)
    steps: int = param(4000, "steps of each descent", ge=100)
    seed: int = param(1, "seed of the starts", ge=0)

    def check(self) -> None:
        if self.depths[0] != _DEPTH:
            raise InputError(f"depths must begin with {_DEPTH}, whose optimum is certified; got {self.depths!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Descend network by network; a killed run resumes after the last complete one."""
    equal, unequal = context.split(0.8, 0.2)

    def equal_widths(k: int, cell: tuple[int, int], report: Report) -> xr.Dataset:
        depth, width = cell
        report(0.0, f"depth {depth}, width {width}")
        return xr.Dataset({"speed": ("start", _descend((width,) * (depth - 1), params, (0, k)))})

    def unequal_widths(k: int, cell: tuple[int, int], report: Report) -> xr.Dataset:
        report(0.0, f"widths {cell[0]} and {cell[1]}")
        return xr.Dataset({"unequal_speed": ("start", _descend(cell, params, (1, k)))})

    square = cached_rows({"depth": params.depths, "width": params.widths}, equal_widths, equal, name="equal")
    oblong = cached_rows({"first": params.unequal, "second": params.unequal}, unequal_widths, unequal, name="unequal")
    context.report(1.0, "done")
    return xr.merge([square, oblong])


def _descend(hidden: tuple[int, ...], params: Params, place: tuple[int, int]) -> np.ndarray:
    """Return the speeds at which descents of networks with these hidden widths end, (starts,)."""
    from saddlescope.theory.escape.sphere_descent import sphere_descent

    X, G = alternating_circle(_SAMPLES)
    rng, shape = np.random.default_rng((params.seed, *place)), (X.shape[1], *hidden, G.shape[1])
    weights = tuple(rng.standard_normal((params.starts, out, into)) for into, out in pairwise(shape))
    record = np.array([params.steps])
    return sphere_descent(weights, X, G, steps=params.steps, learning_rate=_RATE, record=record)[1][:, -1]


@dataclass(frozen=True)
class OddsLaw:
    """Fitted law of the odds.

    Attributes:
        constant: c.
        powers: k_i, (widths,).
        errors: half-widths of their 95 % intervals, from the curvature of the likelihood, (widths,).
    """

    constant: float
    powers: np.ndarray
    errors: np.ndarray

    def shares(self, widths: np.ndarray) -> np.ndarray:
        """Return the shares (cells,) at widths (cells, widths)."""
        from scipy.special import expit

        return expit(self.constant + np.log(widths) @ self.powers)


def fit_odds(widths: np.ndarray, hits: np.ndarray, runs: np.ndarray) -> OddsLaw | None:
    """Fit the law of largest likelihood to hits (cells,) among runs (cells,) at widths (cells, widths).

    Returns:
        The law; None where the data determine none, such as where all runs succeed, or none does.
    """
    from scipy.special import expit

    design = np.column_stack([np.ones(len(widths)), np.log(widths)])
    beta, information = np.zeros(design.shape[1]), np.eye(design.shape[1])
    for _ in range(60):  # Newton's method takes about six
        shares = expit(design @ beta)
        information = (design.T * (runs * shares * (1 - shares))) @ design
        if not np.isfinite(information).all() or np.linalg.cond(information) > 1e12:
            return None
        step = np.linalg.solve(information, design.T @ (hits - runs * shares))
        beta = beta + step / max(1.0, float(np.abs(step).max()) / 4)  # long steps overshoot where shares are extreme
        if np.abs(step).max() < 1e-10:
            errors = 1.96 * np.sqrt(np.diag(np.linalg.inv(information)))
            return OddsLaw(float(beta[0]), beta[1:], errors[1:])
    return None


def succeeds(speeds: xr.DataArray, success: Success) -> xr.DataArray:
    """Return True for each run that succeeds."""
    if success == "faster":
        return speeds > rank_one_optimum(_SAMPLES) + _FASTER
    return speeds > depth_three_optimum(_SAMPLES) - _OPTIMAL


def _fit_equal(run: xr.Dataset, depth: int, success: Success = "faster") -> OddsLaw | None:
    """Fit the law of the odds against the width of all hidden layers."""
    found = succeeds(run.speed.sel(depth=depth), success).sum("start").values
    return fit_odds(run.width.values[:, None].astype(float), found, np.full(len(found), run.sizes["start"]))


def _fit_unequal(run: xr.Dataset) -> OddsLaw | None:
    """Fit the law of the odds of a faster run against the product of both hidden widths, and first over second."""
    found = succeeds(run.unequal_speed, "faster").sum("start").transpose("first", "second").values.ravel()
    widths = np.array(list(itertools.product(run["first"].values, run["second"].values)), float)
    product_and_quotient = np.column_stack([widths.prod(axis=1), widths[:, 0] / widths[:, 1]])
    return fit_odds(product_and_quotient, found, np.full(len(found), run.sizes["start"]))


def _success_share(run: xr.Dataset, success: Success, depth: int, width: int) -> tuple[float, float, float]:
    """Return the share of runs that succeed, and its 95 % interval."""
    found = succeeds(run.speed.sel(depth=depth, width=width), success).values
    return float(found.mean()), *wilson_interval(found.sum(), len(found))


claims = Claims()

_LARGER: tuple[Size, ...] = ("default", "paper")  # the quick run has too few widths, starts and steps
_NO_LAW = Estimate.unresolved("The runs fix no law, since all or none of them succeed; add widths or starts.")
_PILOT = "the bound is from a pilot on another seed"


def _power(run: xr.Dataset, depth: int) -> Estimate:
    law, starts = _fit_equal(run, depth), run.sizes["width"] * run.sizes["start"]
    return _NO_LAW if law is None else Estimate(float(law.powers[0]), float(law.errors[0]), n=starts)


def _simultaneous(tests: int) -> float:
    """Return the factor that widens 95 % intervals to hold for so many tests together (Bonferroni)."""
    return NormalDist().inv_cdf(1 - 0.025 / tests) / NormalDist().inv_cdf(0.975)


_POWER = (
    "fitted power of the width in the odds of a descent with escape speed above √2 - 1, the best of rank-one networks"
)

claims.add(
    "cube", "On 8 circle points at depth 3, the odds to escape faster than rank-one networks grow as the width cubed",
    quantity=_POWER, kind="own", source=f"this project's, after Figure 2, which has no numbers; {_PILOT}: 3.1 ± 0.4",
    low=2.5, high=3.5, sizes=_LARGER, evidence="sample", over="random starts", needs=("law",),
    why="If the odds are a power law, the likelihood of all successes determines its exponent with an error",
    doubt="Widths from 3 to 32 span one decade, and the exponent may be another one on other data",
)(lambda run: _power(run, _DEPTH))  # fmt: skip


@claims.add(
    "law", "On 8 circle points at depth 3, the odds to escape faster than rank-one networks follow a width power law",
    quantity="largest difference of the share of descents with escape speed above √2 - 1 from the fitted power "
        "law, over widths", kind="own", source=f"this project's; {_PILOT}: 0.08 with half as many starts", high=0.12,
    sizes=_LARGER, evidence="sample", over="random starts",
    why="A law that is wrong in form misses the measured share at some width by more than the binomial error",
    doubt="A law of two parameters fits most rising curves over one decade to 12 %, so it is a description only",
)  # fmt: skip
def _distance_from_law(run: xr.Dataset) -> Estimate:
    law = _fit_equal(run, _DEPTH)
    if law is None:
        return _NO_LAW
    if run.sizes["width"] < 3:
        return Estimate.unresolved("Two widths fit any law; give three or more.")
    found, starts = succeeds(run.speed.sel(depth=_DEPTH), "faster").sum("start").values, run.sizes["start"]
    off = abs(found / starts - law.shares(run.width.values[:, None].astype(float)))
    wider = _simultaneous(len(found))
    errors = np.array([Estimate.share(count, starts).uncertainty * wider for count in found])
    worst = int(np.argmax(off + errors))
    return Estimate(float(off[worst]), errors[worst], f"at width {int(run.width[worst])}", starts * len(found))


@claims.add(
    "no-lottery",
    "At some width, one depth-3 network of twice the width beats rank-one escape more often than two independent "
        "tries",
    quantity="share of descents faster than rank-one networks at twice the width minus 1 - (1 - p)², largest over "
        "widths with share p", kind="own", source=f"excludes that wide networks act as several narrow ones; {_PILOT}",
    low=0.0, sizes=_LARGER, evidence="sample", over="random starts",
    why="Two halves that act alone would succeed with 1 - (1 - p)², so a larger share at one width excludes that",
    doubt="It excludes independent halves only: four quarters, or halves that share the output weight, may do as well",
)  # fmt: skip
def _gain_over_two_tries(run: xr.Dataset) -> Estimate:
    gains = []
    for width in run.width.values.tolist():
        if 2 * width in run.width.values:
            once, twice = (_success_share(run, "faster", _DEPTH, of) for of in (width, 2 * width))
            slope = 2 * (1 - once[0])
            error = np.hypot(twice[0] - twice[1], slope * (once[2] - once[0]))
            gains.append((twice[0] - (1 - (1 - once[0]) ** 2), float(error), width))
    if not gains:
        return Estimate.unresolved("No width is twice another; give such a pair in widths.")
    gain, error, width = max(gains)
    remark = f"from width {width} to {2 * width}, of {len(gains)} such pairs"
    return Estimate(gain, error * _simultaneous(len(gains)), remark, 2 * run.sizes["start"])


@claims.add(
    "first-layer",
    "At depth 3, odds to escape faster than rank-one networks grow more with the first hidden width than the second",
    quantity="fitted power of the first hidden layer's width minus that of the second's, in the odds of an escape "
        "speed above √2 - 1", kind="own",
    source="at L = 3 an optimum needs one neuron in the second layer (the argument of Proposition 3.2), several in the "
        f"first; {_PILOT}", low=0.0, sizes=_LARGER, evidence="sample", over="random starts",
    why="Both widths vary independently, so the two powers share the odds between the layers",
    doubt="The law is assumed to be a product of powers, and the data need several neurons in the first layer only",
)  # fmt: skip
def _first_layer_advantage(run: xr.Dataset) -> Estimate:
    law = _fit_unequal(run)
    if law is None:
        return _NO_LAW
    both, half = law.powers  # of the product, (k_1 + k_2) / 2, and of the quotient, (k_1 - k_2) / 2
    remark = f"powers {both + half:.2f} and {both - half:.2f}"
    return Estimate(float(2 * half), float(2 * law.errors[1]), remark, run.unequal_speed.size)


def _difference(run: xr.Dataset, success: Success, less: tuple[int, int], of: tuple[int, int]) -> Estimate:
    """Return the share of success of the second depth and width minus that of the first."""
    low, high = (_success_share(run, success, depth, width) for depth, width in (less, of))
    error = max(np.hypot(high[0] - high[1], low[2] - low[0]), np.hypot(high[2] - high[0], low[0] - low[1]))
    remark = " and ".join(f"{share:.3f} at depth {d}, width {w}" for (share, *_), (d, w) in ((high, of), (low, less)))
    return Estimate(high[0] - low[0], float(error), remark, 2 * run.sizes["start"])


def _depth_difference(run: xr.Dataset, *, success: Success) -> Estimate:
    width, deepest = int(run.width[-1]), int(run.depth[-1])
    return _difference(run, success, (deepest, width), (_DEPTH, width))


claims.add(
    "depth-faster",
    "At the largest width, fewer descents escape faster than rank-one networks at the largest depth than at depth 3",
    quantity="share of descents with escape speed above √2 - 1, the best of rank-one networks, at depth 3 minus "
        "that at the largest depth", kind="own", source=f"this project's; {_PILOT}", low=0.0, sizes=_LARGER,
    evidence="sample", over="random starts",
    why="Width, data, steps and the threshold are the same at both depths, so that the depth makes the difference",
    doubt="Deeper networks may need more steps or smaller ones: the descent has the same number at all depths",
)(partial(_depth_difference, success="faster"))  # fmt: skip

claims.add(
    "depth-optimal",
    "At the largest width, the share of optimal escapes drops by at least 0.25 from depth 3 to the deepest",
    quantity="share of descents within 0.001 of the optimal escape speed 1/2 at depth 3 minus that at the largest "
        "depth", kind="own", source=f"this project's; {_PILOT}", low=0.25, sizes=_LARGER, evidence="sample",
    over="random starts",
    why="The optimum has speed 1/2 at every depth, as far as is known, so both shares count the same success",
    doubt="That 1/2 is the largest speed is certified at depth 3 alone, and descents are stopped after 4,000 steps",
)(partial(_depth_difference, success="optimal"))  # fmt: skip

claims.add(
    "no-depth",
    "At the largest depth, the odds to escape faster than rank-one networks grow as the cube of the width",
    quantity=_POWER, kind="own",
    source="this project's, as first posed before the pilot; the bounds are those at L = 3", low=2.5, high=3.5,
    sizes=_LARGER, evidence="sample", over="random starts",
    why="The exponent at the largest depth is fitted as at depth 3, so equal bounds ask if it depends on the depth",
    doubt="The true exponent seems near a bound, and whether a power law fits at this depth is not tested",
)(lambda run: _power(run, int(run.depth[-1])))  # fmt: skip


@claims.add(
    "conjecture-1-deep", "At the largest depth, wider networks reach the optimal escape speed more often",
    quantity="share of descents within 0.001 of the optimal escape speed 1/2 at the largest width minus that at a "
        "quarter of it, on 8 circle points", kind="reading",
    source="Section 5, conjecture 1: 'the more neurons, the more likely'; it names no width", low=0.0, sizes=_LARGER,
    evidence="sample", over="random starts",
    why="The conjecture's reason is that more neurons more often contain an optimal circuit, at any depth",
    doubt="A rise up to width 32 on the conjecture's own data says little about the limit that it speaks of",
)  # fmt: skip
def _gain_with_width(run: xr.Dataset) -> Estimate:
    depth, widest = int(run.depth[-1]), int(run.width[-1])
    narrow = run.width.values[4 * run.width.values <= widest]
    if not narrow.size:
        return Estimate.unresolved("No width is at most a quarter of the largest; give one in widths.")
    return _difference(run, "optimal", (depth, int(narrow[-1])), (depth, widest))


@claims.add(
    "ceiling",
    "On 8 circle points, no descent at any depth escapes faster than 1/2, the certified optimum of depth 3",
    quantity="largest escape speed of a descent minus 1/2, over depths, widths and random starts", kind="own",
    source="certified at L = 3 (theory.escape.certificate); deeper optima are at least as fast (Proposition 3.2)",
    high=1e-6, evidence="cases", over="random starts",
    why="A faster descent would show that depth raises the optimum, which Proposition 3.2 allows",
    doubt="Descents at depth 6 reach even 1/2 in half of the runs only, so a rare faster direction could be missed",
)  # fmt: skip
def _excess_over_optimum(run: xr.Dataset) -> Estimate:
    speeds = np.concatenate([run.speed.values.ravel(), run.unequal_speed.values.ravel()])
    return Estimate.largest(speeds - depth_three_optimum(_SAMPLES))


metrics = (
    Metric(
        name="faster_share", quantity="share of faster runs at the largest width, L = 3",
        statistic=lambda run: _success_share(run, "faster", _DEPTH, int(run.width[-1]))[0],
    ),
    Metric(
        name="optimal_share", quantity="share of optimal runs at the largest width, L = 3",
        statistic=lambda run: _success_share(run, "optimal", _DEPTH, int(run.width[-1]))[0],
    ),
)  # fmt: skip


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw success against width at every depth, and against the widths of both hidden layers."""
    starts = run.sizes["start"]
    return [
        Figure(
            name="success",
            title="Share of descents that beat rank one, and that find the optimum",
            caption=f"Share of {starts} descents from random starts, with 95 % intervals, against the width of all "
            "hidden layers, at several depths. Left: faster than √2 − 1, the best of rank-one networks; dashed, the "
            "law p / (1 − p) = c wᵏ fitted to each depth. Right: within 0.001 of the certified optimum, 1/2.",
            panels=(_shares_panel(run, "faster", "beats rank one", law=True), _shares_panel(run, "optimal", "optimal")),
        ),
        Figure(
            name="unequal",
            title="Success with unequal widths of the two hidden layers",
            caption=f"Share of {starts} descents at depth 3 that beat rank one (left) or find the optimum (right) over "
            "the widths of both hidden layers.",
            panels=(_widths_panel(run, "faster", "beats rank one"), _widths_panel(run, "optimal", "optimal")),
        ),
    ]


def _shares_panel(run: xr.Dataset, success: Success, title: str, *, law: bool = False) -> Panel:
    widths, marks = run.width.values.astype(float), []
    fine = np.geomspace(widths[0], widths[-1], 100)
    for color, depth in enumerate(run.depth.values):
        found = succeeds(run.speed.sel(depth=depth), success)
        count, runs = found.sum("start").values, found.sizes["start"]
        intervals = np.array([wilson_interval(k, runs) for k in count])
        name = f"depth {depth}"
        marks.append(Band(x=widths, low=intervals[:, 0], high=intervals[:, 1], group=name, color=color))
        marks.append(Line(x=widths, y=count / runs, group=name, color=color, style="points", width=3.5))
        fitted = _fit_equal(run, int(depth)) if law else None
        if fitted is None:
            marks.append(Line(x=widths, y=count / runs, group=name, color=color))
        else:
            marks.append(Line(x=fine, y=fitted.shares(fine[:, None]), group=name, color=color, style="dashed"))
    x, y = Axis("width", scale="log"), Axis("share of runs", range=(-0.02, 1.02))
    return Panel(title=title, x=x, y=y, marks=tuple(marks))


def _widths_panel(run: xr.Dataset, success: Success, title: str) -> Panel:
    shares = succeeds(run.unequal_speed, success).mean("start").transpose("second", "first").values
    first, second = (tuple(str(width) for width in run[name].values) for name in ("first", "second"))
    words = np.array([[f"{share:.2f}" for share in row] for row in shares])
    heat = Heat(
        x=np.arange(len(first)), y=np.arange(len(second)), z=shares, label="share", range=(0.0, 1.0), words=words
    )
    return Panel(
        title=title,
        x=Axis("width of the first hidden layer", names=first),
        y=Axis("width of the second hidden layer", names=second),
        marks=(heat,),
    )


entry = Entry(
    "deep-relu/escape-width",
    "Escape and width: the share of descents that find a fast escape direction, against width and depth",
    citation=CITATION, source="Section 4.1, beyond", params=Params,
    quick=dict(widths=(4, 16), depths=(3, 4), unequal=(16,), starts=16, steps=600),
    paper=dict(widths=(3, 4, 6, 8, 12, 16, 24, 32, 64, 128), depths=(3, 4, 5, 6, 8), starts=1000), run=run,
    claims=claims, figures=figures, metrics=metrics,
)  # fmt: skip
