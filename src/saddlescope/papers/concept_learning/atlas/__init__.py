"""Atlas: a million starts over the ratio of mu, sigma, initial scale and width   (Section 4.2, beyond)

The symmetric two-layer network on s = 2 and 3 concepts with mu = 1, r, r^2, one sigma for all, and normal entries of U
of deviation tau in d' = f d columns. Of every start: how many descents the loss out of distribution has, how far it
rises between them, and from when on the network generalizes.

    ratio   r, of the mu of a concept over the next weaker one's
    factor  f, of the width over the dimension
    visible descents after rises of more than 0.1 % of the first loss; others can be as small as rounding lets them
    rise    the largest between two descents, in units of |x|^2 / 2
    time    from when on the loss is below 1 % of the weakest concept's part of it, mu_1^2 / 2, in units of 1 / (4 a_1)
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.atlas.figures import figures
from saddlescope.papers.concept_learning.shared.random_starts import VISIBLE, counted, drawn, largest_rises
from saddlescope.papers.concept_learning.shared.two_layer_runs import data
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.grid import cached_rows, labelled

__all__ = ["Params", "claims", "figures", "run"]

_CONCEPTS = (2, 3)
_MOST = 4  # descents told apart; the last count has those above, too
_QUANTILES = (0.1, 0.5, 0.9, 0.99)
_GENERAL = 0.01  # of mu_1^2 / 2
_UNTIL = 1e4  # by then all is learned; what has learned takes no more time
_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Params:
    """A million starts."""

    ratios: tuple[float, ...] = (1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)  # r, at least 1
    sigmas: tuple[float, ...] = (0.02, 0.05, 0.1, 0.3, 1.0)  # a standard deviation
    scales: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)  # tau, ascending
    factors: tuple[int, ...] = (1, 2, 4, 8, 32)  # f, ascending
    starts: int = 420  # in each cell of the grid, for 2 concepts and for 3
    seed: int = 0  # of the starts

    def __post_init__(self) -> None:
        parameter_checks.at_least(16, self, "starts")
        parameter_checks.at_least(0, self, "seed")
        for name, least in (("ratios", 1.0), ("sigmas", 0.0), ("scales", 1e-6), ("factors", 1)):
            values = getattr(self, name)
            if not values or list(values) != sorted(set(values)) or not least <= values[0] <= values[-1] <= 100:
                raise InputError(f"{name} must be ascending, between {least:g} and 100; got {values!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: the corners."""
        return cls(ratios=(1.0, 2.0), sigmas=(0.05,), scales=(0.01, 0.1), factors=(1, 8), starts=64)

    @classmethod
    def paper(cls) -> "Params":
        """Ten million starts, on the same grid; the paper has no such figure."""
        return cls(starts=4200)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Row by row of the grid; a killed run goes on after its last whole row."""
    axes = {"concepts": _CONCEPTS, "ratio": params.ratios, "sigma": params.sigmas}
    made = cached_rows(axes, partial(_row, params), context)
    context.report(1.0, "done")
    return made


def _row(params: Params, k: int, laws: tuple[int, float, float], report: Callable[[float, str], None]) -> xr.Dataset:
    """All scales and widths of one data law."""
    concepts, ratio, sigma = laws
    axes = {"scale": params.scales, "factor": params.factors}
    grid = list(itertools.product(*axes.values()))
    rng, found = np.random.default_rng((params.seed, k)), []
    for n, (scale, factor) in enumerate(grid):
        report(
            n / len(grid), f"{concepts} concepts, ratio {ratio:g}, sigma {sigma:g}, scale {scale:g}, width x {factor}"
        )
        found.append(_cell(rng, concepts, ratio, sigma, scale, factor, params.starts))
    tails = {"counts": ("descents",), "visible": ("descents",), "rise": ("quantile",), "time": ("quantile",)}
    row = labelled(found, axes, tails)
    return row.assign_coords(quantile=list(_QUANTILES), descents=np.arange(_MOST + 1))


def _cell(
    rng: np.random.Generator, concepts: int, ratio: float, sigma: float, scale: float, factor: int, starts: int
) -> dict[str, Any]:
    """The starts of one cell, in numbers."""
    from saddlescope.flow import Ending, symmetric_flows
    from saddlescope.measure import find_descents

    mu = tuple(ratio**k for k in range(concepts))
    a, x = data(mu, concepts * (sigma,))
    U = drawn(rng, "normal", scale, (starts, concepts, concepts * factor))
    level = _GENERAL * mu[0] ** 2 / float(x @ x)
    flows = symmetric_flows(a, U, test_point=x, until=_UNTIL, tolerance=_TOLERANCE, level=level)
    counts, _ = counted(flows, U)
    small = np.linalg.norm(U, 2, axis=(1, 2)) <= 1
    visible = find_descents(flows.turning_losses, hysteresis=VISIBLE).counts
    rises = largest_rises(flows)
    return {
        "counts": np.bincount(np.minimum(counts, _MOST), minlength=_MOST + 1),
        "visible": np.bincount(np.minimum(visible, _MOST), minlength=_MOST + 1),
        "small": np.sum(small),
        "exceptions": np.sum(small & (counts > concepts)),
        "failures": np.sum(flows.endings != Ending.LEARNED),
        "rise": np.quantile(rises, _QUANTILES),
        "largest_rise": rises.max(),
        "time": np.quantile(4 * a[0] * flows.generalized, _QUANTILES),
    }


def _several(counts: xr.DataArray) -> Estimate:
    """The share of starts with two or more descents, of all that are counted."""
    return Estimate.share(float(counts.sel(descents=slice(2, None)).sum()), float(counts.sum()))


def _exceptions(run: xr.Dataset) -> Estimate:
    return Estimate(
        float(run.exceptions.sum()), remark=f"of {int(run.small.sum())} starts, each counted twice if above s"
    )


def _failures(run: xr.Dataset) -> Estimate:
    return Estimate(float(run.failures.sum()), remark=f"of {int(run.counts.sum())} starts")


def _equal(run: xr.Dataset) -> Estimate:
    """Starts with several descents where all strengths are equal, and no eigenvalue of W(0) can be above 1."""
    if 1.0 not in run.ratio:
        return Estimate.unresolved("The run has no ratio of 1.")
    equal = run.sel(ratio=1.0).where(run.small.sel(ratio=1.0) == run.counts.sum("descents").sel(ratio=1.0))
    seen = float(equal.counts.sel(descents=slice(2, None)).sum())
    return Estimate(seen, remark=f"of {int(equal.counts.sum())} starts")


def _wide(run: xr.Dataset) -> Estimate:
    """P(two or more visible) at the largest width over that at the smallest, over all starts of scales up to 0.1."""
    one = run.sel(scale=slice(None, 0.1))
    wide, narrow = (_several(one.visible.isel(factor=k)) for k in (-1, 0))
    ripples = [_several(one.counts.isel(factor=k)).value for k in (-1, 0)]
    told = f"{wide.value:.4f} against {narrow.value:.4f}; with the invisible {ripples[0]:.4f} against {ripples[1]:.4f}"
    return Estimate(wide.value / narrow.value, wide.uncertainty / narrow.value, told)


def _apart(run: xr.Dataset) -> Estimate:
    """P(two or more visible) at the largest ratio less that at the smallest above 1; square start matrices."""
    one = run.isel(factor=0).sel(scale=slice(None, 0.1)).sel(ratio=run.ratio[run.ratio > 1])
    if one.sizes["ratio"] < 2:
        return Estimate.unresolved("The run has no two ratios above 1.")
    far, near = (_several(one.visible.isel(ratio=k)) for k in (-1, 0))
    told = f"{far.value:.3f} against {near.value:.3f}"
    return Estimate(far.value - near.value, (far.uncertainty**2 + near.uncertainty**2) ** 0.5, told)


def _slope(run: xr.Dataset) -> Estimate:
    """What smaller scales add to the median time, over twice their logarithm: the mean over all cells."""
    one = run.time.sel(quantile=0.5, scale=slice(None, 0.011))
    if one.sizes["scale"] < 2:
        return Estimate.unresolved("The run has no two scales up to 0.01.")
    ends = one.isel(scale=0) - one.isel(scale=-1)
    slopes = (ends / (2 * np.log(one.scale[-1] / one.scale[0]))).values.ravel()
    told = f"{len(slopes)} cells from {slopes.min():.3f} to {slopes.max():.3f}"
    return Estimate.mean(slopes, told)


claims = (
    Claim(
        name="conjecture",
        says="There are at most s descents from starts with no eigenvalue of W(0) above 1: exceptions",
        source="a conjecture of this project's, of section 4.2.2's cycle: one descent for each concept",
        statistic=_exceptions,
        high=0.0,
    ),
    Claim(
        name="all-learn",
        says="Every start of full rank generalizes in the end: starts that have not",
        source="d/dt log det W = 4 tr(A (1 - W)), against the trap of appendix E.3",
        statistic=_failures,
        high=0.0,
    ),
    Claim(
        name="equal",
        says="With equal strengths there is one descent, from any W(0) below the identity: starts with more",
        source="exact: W keeps its eigenvectors, and its eigenvalues grow",
        statistic=_equal,
        high=0.0,
    ),
    Claim(
        name="apart",
        says="Concepts far apart make the loss rise more often than near ones: P(two or more visible descents) at the "
        "largest ratio of mu less that at the smallest above 1",
        source="section 4.2.1: the difference of a_1 and a_2 must be large for suppression; the bound: a difference",
        statistic=_apart,
        low=0.0,
    ),
    Claim(
        name="wide",
        says="Wide networks hardly have transient memorization: P(two or more visible descents) at the largest width "
        "over that at d' = d",
        source="appendix E.2; the bound from trial runs at one ratio, on other seeds",
        statistic=_wide,
        high=0.15,
    ),
    Claim(
        name="logarithmic",
        says="The time to generalize grows by log(1 / tau^2) / (4 a_1): slope over this, up to a scale of 0.01",
        source="section 4.2.1's initial growth, with a_1 of the weakest concept; the bound this project's",
        statistic=_slope,
        low=0.98,
        high=1.02,
    ),
)
