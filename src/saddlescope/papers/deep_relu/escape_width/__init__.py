"""Escape and width: how often descent finds a fast escape direction, against width and depth   (Section 4.1, beyond)

ReLU networks descend the localised loss of Example 1, eight points on a circle, on the sphere |theta|^2 = L from random
starts, at many widths and several depths L; at L = 3 the two hidden layers have widths of their own, too.

    faster  a run whose speed exceeds tan(pi/8) = sqrt 2 - 1, the best of rank-one networks of any depth
    optimal a run whose speed is 1/2, the certified largest one at L = 3, up to .001: descent is slow at the very end
    law     the odds of success, p / (1 - p), grow as a power of the width
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle, depth_three_optimum, rank_one_optimum
from saddlescope.plot import Figure
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate, wilson_interval
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.grid import cached_rows
from saddlescope.reproduction.metric import Metric

if TYPE_CHECKING:
    from saddlescope.papers.deep_relu.escape_width.odds_regression import OddsLaw

    Success = Literal["faster", "optimal"]

_SAMPLES = 8  # of Example 1
_FASTER, _OPTIMAL = 1e-4, 1e-3
_RATE = 0.03  # of the first step of a descent
_BASE = 3  # the depth whose optimum is certified


@dataclass(frozen=True, kw_only=True)
class Params:
    """Error bars of about three per cent."""

    widths: tuple[int, ...] = (3, 4, 6, 8, 12, 16, 24, 32)  # of all hidden layers, increasing
    depths: tuple[int, ...] = (3, 4, 6)  # L, increasing from 3 on
    unequal: tuple[int, ...] = (4, 8, 16, 32)  # of each hidden layer, every pair of them, L = 3
    starts: int = 256  # of each network
    steps: int = 4000  # of each descent
    seed: int = 0  # of the starts

    def __post_init__(self) -> None:
        parameter_checks.at_least(2, self, "starts")
        parameter_checks.at_least(100, self, "steps")
        parameter_checks.at_least(0, self, "seed")
        for name in ("widths", "depths", "unequal"):
            values = getattr(self, name)
            if not values or values[0] < 1 or any(a >= b for a, b in pairwise(values)):
                raise InputError(f"{name} must be at least 1 and increasing, such as 4,8,16; got {values!r}.")
        if self.depths[0] != _BASE:
            raise InputError(f"depths must begin with {_BASE}, whose optimum is certified; got {self.depths!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: two widths, two depths."""
        return cls(widths=(4, 16), depths=(3, 4), unequal=(16,), starts=16, steps=600)

    @classmethod
    def paper(cls) -> "Params":
        """More starts and wider networks; the paper has one depth and says no numbers."""
        return cls(widths=(3, 4, 6, 8, 12, 16, 24, 32, 64, 128), depths=(3, 4, 5, 6, 8), starts=1000)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Network by network; a killed run goes on after the last whole one."""
    equal, unequal = context.subtask(0.0, 0.8), context.subtask(0.8, 1.0)
    axes = {"depth": params.depths, "width": params.widths}
    square = cached_rows(axes, partial(_equal, params), equal, name="equal")
    pairs = {"first": params.unequal, "second": params.unequal}
    oblong = cached_rows(pairs, partial(_unequal, params), unequal, name="unequal")
    context.report(1.0, "done")
    return xr.merge([square, oblong])


def _equal(params: Params, k: int, cell: tuple[int, int], report: Callable[[float, str], None]) -> xr.Dataset:

    depth, width = cell
    report(0.0, f"depth {depth}, width {width}")
    return xr.Dataset({"speed": ("start", _speeds((width,) * (depth - 1), params, (0, k)))})


def _unequal(params: Params, k: int, cell: tuple[int, int], report: Callable[[float, str], None]) -> xr.Dataset:

    report(0.0, f"widths {cell[0]} and {cell[1]}")
    return xr.Dataset({"unequal_speed": ("start", _speeds(cell, params, (1, k)))})


def _speeds(hidden: tuple[int, ...], params: Params, place: tuple[int, int]) -> np.ndarray:
    """The speeds at which descents of networks with these hidden widths end, (starts,)."""
    from saddlescope.theory.escape.sphere_descent import sphere_descent

    X, G = alternating_circle(_SAMPLES)
    rng, shape = np.random.default_rng((params.seed, *place)), (len(X), *hidden, len(G))
    weights = tuple(rng.standard_normal((params.starts, out, into)) for into, out in pairwise(shape))
    return sphere_descent(weights, X, G, steps=params.steps, rate=_RATE, marks=1)[1][:, -1]


def hits(speeds: xr.DataArray, success: "Success") -> xr.DataArray:
    """Which runs succeed."""
    if success == "faster":
        return speeds > rank_one_optimum(_SAMPLES) + _FASTER
    return speeds > depth_three_optimum(_SAMPLES) - _OPTIMAL


def law_of(run: xr.Dataset, depth: int, success: "Success" = "faster") -> "OddsLaw | None":
    """The law of the odds against the width of all hidden layers."""
    from saddlescope.papers.deep_relu.escape_width.odds_regression import fitted_odds

    found = hits(run.speed.sel(depth=depth), success).sum("start").values
    return fitted_odds(run.width.values[:, None].astype(float), found, np.full(len(found), run.sizes["start"]))


def unequal_law(run: xr.Dataset) -> "OddsLaw | None":
    """The law of the odds of a faster run against the widths of the first and the second hidden layer."""
    from saddlescope.papers.deep_relu.escape_width.odds_regression import fitted_odds

    found = hits(run.unequal_speed, "faster").sum("start").transpose("first", "second").values.ravel()
    widths = np.array(list(itertools.product(run["first"].values, run["second"].values)), float)
    return fitted_odds(widths, found, np.full(len(found), run.sizes["start"]))


_NO_LAW = Estimate.unresolved("The runs fix no law: they all succeed, or none does.")


def _power(run: xr.Dataset) -> Estimate:
    law = law_of(run, _BASE)
    return _NO_LAW if law is None else Estimate(float(law.powers[0]), float(law.errors[0]))


def _off_the_law(run: xr.Dataset) -> Estimate:
    """The largest distance of a share from the law, L = 3."""
    law = law_of(run, _BASE)
    if law is None:
        return _NO_LAW
    if run.sizes["width"] < 3:
        return Estimate.unresolved("Two widths fit any law; give three or more.")
    shares = hits(run.speed.sel(depth=_BASE), "faster").mean("start").values
    off = abs(shares - law.shares(run.width.values[:, None].astype(float)))
    return Estimate(float(off.max()), remark=f"at width {int(run.width[int(off.argmax())])}")


def _share(run: xr.Dataset, success: "Success", depth: int, width: int) -> tuple[float, float, float]:
    """The share of runs that succeed, and its 95 % interval."""
    found = hits(run.speed.sel(depth=depth, width=width), success).values
    return float(found.mean()), *wilson_interval(found.sum(), len(found))


def _depth_matters(run: xr.Dataset, *, success: "Success") -> Estimate:
    """The share of successes at L = 3 less that at the largest depth, at the largest width."""
    width, deepest = int(run.width[-1]), int(run.depth[-1])
    low, high = (_share(run, success, depth, width) for depth in (_BASE, deepest))
    error = ((low[0] - low[1]) ** 2 + (high[2] - high[0]) ** 2) ** 0.5
    return Estimate(low[0] - high[0], error, f"{low[0]:.3f} at depth {_BASE}, {high[0]:.3f} at {deepest}")


def _deep_power(run: xr.Dataset) -> Estimate:
    """The power of the law at the largest depth."""
    law = law_of(run, int(run.depth[-1]))
    return _NO_LAW if law is None else Estimate(float(law.powers[0]), float(law.errors[0]))


def _lottery(run: xr.Dataset) -> Estimate:
    """What twice the width gains over two independent tries, at the width where they differ most, L = 3."""
    gains = []
    for width in run.width.values.tolist():
        if 2 * width in run.width.values:
            once, twice = _share(run, "faster", _BASE, width), _share(run, "faster", _BASE, 2 * width)
            slope = 2 * (1 - once[0])
            error = np.hypot(twice[0] - twice[1], slope * (once[2] - once[0]))
            gains.append((twice[0] - (1 - (1 - once[0]) ** 2), float(error), width))
    if not gains:
        return Estimate.unresolved("No width is twice another.")
    gain, error, width = max(gains)
    # The largest of several differences: each gets the interval that holds for all of them together (Bonferroni).
    wider = NormalDist().inv_cdf(1 - 0.025 / len(gains)) / NormalDist().inv_cdf(0.975)
    return Estimate(gain, error * wider, f"from width {width} to {2 * width}, of {len(gains)} such pairs")


def _first_layer(run: xr.Dataset) -> Estimate:
    """The power of the first hidden layer's width less that of the second's."""
    law = unequal_law(run)
    if law is None:
        return _NO_LAW
    told = " and ".join(f"{power:.2f} ± {error:.2f}" for power, error in zip(law.powers, law.errors, strict=True))
    return Estimate(float(law.powers[0] - law.powers[1]), float((law.errors**2).sum() ** 0.5), told)


def _widest(run: xr.Dataset) -> Estimate:
    """The share of optimal runs of the widest network at the largest depth."""
    found = hits(run.speed.isel(depth=-1, width=-1), "optimal").values
    told = f"{found.sum()} of {len(found)}, depth {int(run.depth[-1])}, width {int(run.width[-1])}"
    return Estimate.share(found.sum(), len(found), told)


def _beyond(run: xr.Dataset) -> Estimate:
    most = max(float(run.speed.max()), float(run.unequal_speed.max()))
    return Estimate(most - depth_three_optimum(_SAMPLES), remark=f"{run.speed.size + run.unequal_speed.size} runs")


_PILOT = "the bound from a pilot on another seed"
claims = (
    Claim(
        name="cube",
        says="The odds of a faster run grow as the cube of the width, L = 3: power",
        source=f"this project's, after Figure 2, which has no numbers; {_PILOT}: 3.1 ± 0.4",
        statistic=_power,
        low=2.5,
        high=3.5,
    ),
    Claim(
        name="law",
        says="The share of faster runs keeps to that law, L = 3: largest distance",
        source=f"this project's; {_PILOT}: 0.08 with half as many starts",
        statistic=_off_the_law,
        high=0.12,
    ),
    Claim(
        name="no-lottery",
        says="A network of twice the width does better than two independent tries: the share of faster runs less "
        "1 - (1 - p)^2, where it is most",
        source=f"against wide networks as many narrow ones; {_PILOT}",
        statistic=_lottery,
        low=0.0,
    ),
    Claim(
        name="first-layer",
        says="The first hidden layer's width counts more than the second's, L = 3: power of the one less that of the "
        "other",
        source="at L = 3 an optimum needs one neuron in the second (the argument of Proposition 3.2), several in the "
        f"first; {_PILOT}",
        statistic=_first_layer,
        low=0.0,
    ),
    Claim(
        name="depth-faster",
        says="Depth makes fast runs rarer at the largest width: share of faster runs at L = 3 less that at the largest "
        "depth",
        source=f"this project's; {_PILOT}",
        statistic=partial(_depth_matters, success="faster"),
        low=0.0,
    ),
    Claim(
        name="depth-optimal",
        says="And optimal ones much rarer: the same of optimal runs",
        source=f"this project's; {_PILOT}",
        statistic=partial(_depth_matters, success="optimal"),
        low=0.25,
    ),
    Claim(
        name="no-depth",
        says="As first posed: width makes up for depth, and the odds grow as the cube of it at the largest depth, too: "
        "power",
        source="this project's, before the pilot; the bounds are those at L = 3",
        statistic=_deep_power,
        low=2.5,
        high=3.5,
    ),
    Claim(
        name="conjecture-1-deep",
        says="Wide networks find the optimal direction, at the largest depth and width: share of runs",
        source="Section 5, conjecture 1; read as: nine times out of ten, of the widest network here",
        statistic=_widest,
        low=0.9,
    ),
    Claim(
        name="ceiling",
        says="No run of any depth is faster than 1/2: most by which one is",
        source="certified at L = 3 (theory.escape.certificate); deeper networks are at least as fast (Proposition 3.2)",
        statistic=_beyond,
        high=1e-6,
    ),
)

metrics = (
    Metric(
        name="faster_share",
        says="share of faster runs at the largest width, L = 3",
        statistic=lambda run: _share(run, "faster", _BASE, int(run.width[-1]))[0],
    ),
    Metric(
        name="optimal_share",
        says="share of optimal runs at the largest width, L = 3",
        statistic=lambda run: _share(run, "optimal", _BASE, int(run.width[-1]))[0],
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """Success against width at every depth, and against the widths of both hidden layers."""
    from saddlescope.papers.deep_relu.escape_width.figures import pictures

    return pictures(run)
