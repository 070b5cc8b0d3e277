"""Escape and width: the share of descents that find a fast escape direction, against width and depth.

ReLU networks descend the localised loss of Example 1, eight points on a circle, on the sphere |theta|^2 = L from random
starts, at many widths and several depths L; at L = 3 the two hidden layers have unequal widths, too.

    faster  a run whose speed exceeds tan(pi/8) = sqrt 2 - 1, the best of rank-one networks of any depth
    optimal a run whose speed is within 0.001 of 1/2, the certified largest one at L = 3: descent is slow at the end
    odds    p / (1 - p) of the share p of runs that succeed
    law     log odds = c + sum_i k_i log w_i: the odds grow as the power k_i of the width w_i
"""

import itertools
from itertools import pairwise
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle, depth_three_optimum, rank_one_optimum
from saddlescope.papers.deep_relu.shared.shares import share_difference
from saddlescope.plot import Axis, Band, Figure, Line, Panel
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, Evidence, Metric, RunContext, param
from saddlescope.reproduction.claim import Size, wilson_interval
from saddlescope.reproduction.grid import cached_rows

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
        (4, 8, 16, 32), "widths of each of two hidden layers, in all pairs", ge=1, order="increasing", scale="log"
    )
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


class OddsLaw(NamedTuple):
    """Fitted law of the odds: c, the k_i, and half-widths of their 95 % intervals, from the likelihood's curvature."""

    constant: float
    powers: np.ndarray
    errors: np.ndarray

    def shares(self, widths: np.ndarray) -> np.ndarray:
        """Return the shares (cells,) at widths (cells, widths)."""
        from scipy.special import expit

        return expit(self.constant + np.log(widths) @ self.powers)


def fit_odds(widths: np.ndarray, hits: np.ndarray, runs: np.ndarray) -> OddsLaw | None:
    """Return the likeliest law of hits (cells,) among runs (cells,) at widths (cells, widths), None without one."""
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


def _fit_equal(run: xr.Dataset, depth: int) -> OddsLaw | None:
    """Fit the law of the odds of a faster run against the width of all hidden layers."""
    found = succeeds(run.speed.sel(depth=depth), "faster").sum("start").values
    return fit_odds(run.width.values[:, None].astype(float), found, np.full(len(found), run.sizes["start"]))


def _fit_unequal(run: xr.Dataset) -> OddsLaw | None:
    """Fit the law of the odds of a faster run against the product of both hidden widths, and first over second."""
    found = succeeds(run.unequal_speed, "faster").sum("start").transpose("first", "second").values.ravel()
    widths = np.array(list(itertools.product(run["first"].values, run["second"].values)), float)
    product_and_quotient = np.column_stack([widths.prod(axis=1), widths[:, 0] / widths[:, 1]])
    return fit_odds(product_and_quotient, found, np.full(len(found), run.sizes["start"]))


def _power(law: OddsLaw | None, powers: np.ndarray, n: int) -> Estimate:
    """Return a combination of the fitted powers, with the error of one of them where it has no other."""
    if law is None:
        return Estimate.unresolved("The runs fix no law, since all or none of them succeed; add widths or starts.")
    value, error = float(law.powers @ powers), float(law.errors @ abs(powers))
    return Estimate(value, error, n=n, evidence=Evidence.SAMPLE, over="random starts")


_LARGER: tuple[Size, ...] = ("default", "paper")  # the quick run has too few widths, starts and steps

claims = Claims(
    limits="One data set, that of Example 1. Widths from 3 to 32 span one decade, on which two parameters fit most "
    "rising curves to 12 %: the cube is a description, not a law. All bounds are from a pilot on another seed. That "
    "1/2 is the largest speed is certified at depth 3 alone; all depths have the same steps, and deeper networks may "
    "need more."
)


def follows_a_power_law(run: xr.Dataset) -> bool:
    """The odds at depth 3 follow a power law of the width: no share differs from it by more than 0.12"""
    law = _fit_equal(run, _DEPTH)
    if law is None or run.sizes["width"] < 3:
        return False
    found, starts = succeeds(run.speed.sel(depth=_DEPTH), "faster").sum("start").values, run.sizes["start"]
    off = abs(found / starts - law.shares(run.width.values[:, None].astype(float)))
    wider = NormalDist().inv_cdf(1 - 0.025 / len(found)) / NormalDist().inv_cdf(0.975)  # all widths together
    errors = [wider * Estimate.share(count, starts).uncertainty for count in found]
    return bool(np.max(off + errors) < 0.12)


@claims.extension(
    "cube",
    "At depth 3 the odds to escape faster than rank-one networks grow as the cube of the width",
    "after Figure 2; a pilot had the power 3.1 ± 0.4",
    low=2.5,
    high=3.5,
    sizes=_LARGER,
    requires=[follows_a_power_law],
)
def power_of_the_width(run: xr.Dataset) -> Estimate:
    """Fitted power of the width in the odds of a faster descent."""
    return _power(_fit_equal(run, _DEPTH), np.ones(1), run.sizes["width"] * run.sizes["start"])


@claims.extension(
    "first-layer",
    "At depth 3 these odds grow more with the first hidden width than with the second",
    "an optimum needs one neuron in the second layer (the argument of Proposition 3.2), several in the first",
    low=0.0,
    sizes=_LARGER,
)
def first_layer_advantage(run: xr.Dataset) -> Estimate:
    """Fitted power of the first hidden layer's width minus that of the second's."""
    half = np.array([0.0, 2.0])  # of the quotient's power, (k_1 - k_2) / 2
    return _power(_fit_unequal(run), half, run.unequal_speed.size)


def _optimal(run: xr.Dataset, depth: int, width: int) -> np.ndarray:
    return succeeds(run.speed.sel(depth=depth, width=width), "optimal").values


@claims.extension(
    "depth-optimal",
    "At the largest width, the share of optimal escapes drops by at least 0.25 from depth 3 to the deepest",
    "a pilot",
    low=0.25,
    sizes=_LARGER,
)
def optimal_share_lost_with_depth(run: xr.Dataset) -> Estimate:
    """Share of optimal descents at depth 3 minus that at the largest depth."""
    width, deepest = int(run.width[-1]), int(run.depth[-1])
    return share_difference(_optimal(run, deepest, width), _optimal(run, _DEPTH, width))


@claims.extension(
    "conjecture-1-deep",
    "At the largest depth, wider networks reach the optimal escape speed more often",
    "Section 5, conjecture 1, at depths for which the paper has no figure",
    low=0.0,
    sizes=_LARGER,
)
def optimal_share_gained_with_width(run: xr.Dataset) -> Estimate:
    """Share of optimal descents at the largest width minus that at a quarter of it."""
    depth, widest = int(run.depth[-1]), int(run.width[-1])
    narrow = run.width.values[4 * run.width.values <= widest]
    if not narrow.size:
        return Estimate.unresolved("No width is at most a quarter of the largest; give one in widths.")
    return share_difference(_optimal(run, depth, int(narrow[-1])), _optimal(run, depth, widest))


metrics = tuple(
    Metric(
        name=f"{success}_share",
        quantity=f"share of {success} runs at the largest width, L = 3",
        statistic=lambda run, success=success: float(
            succeeds(run.speed.sel(depth=_DEPTH).isel(width=-1), success).mean()
        ),
    )
    for success in ("faster", "optimal")
)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw success against width at every depth."""
    return [
        Figure(
            name="success",
            title="Share of descents that beat rank one, and that find the optimum",
            caption=f"Share of {run.sizes['start']} descents from random starts, with 95 % intervals, against the "
            "width of all hidden layers, at several depths. Left: faster than √2 − 1, the best of rank-one networks; "
            "dashed, the law p / (1 − p) = c wᵏ fitted to each depth. Right: within 0.001 of the optimum, 1/2.",
            panels=(_shares_panel(run, "faster", "beats rank one", law=True), _shares_panel(run, "optimal", "optimal")),
        )
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


entry = Entry(
    "deep-relu/escape-width",
    "Escape and width: the share of descents that find a fast direction",
    citation=CITATION,
    source="Section 4.1, beyond",
    params=Params,
    quick=dict(widths=(4, 16), depths=(3, 4), unequal=(16,), starts=16, steps=600),
    paper=dict(widths=(3, 4, 6, 8, 12, 16, 24, 32, 64, 128), depths=(3, 4, 5, 6, 8), starts=1000),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
