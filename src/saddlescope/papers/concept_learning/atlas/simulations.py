"""Random starts over the grid of the entry `atlas`, row by row."""

import itertools
from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.concept_learning.shared.random_starts import (
    VISIBLE,
    draw_starts,
    largest_rises,
    verified_descent_counts,
)
from saddlescope.papers.concept_learning.shared.two_layer_runs import strengths_and_test_point
from saddlescope.reproduction.grid import grid_dataset

CONCEPTS = (2, 3)

_MOST = 4  # largest count of descents; higher counts are added to it

_QUANTILES = (0.1, 0.5, 0.9, 0.99)

_GENERAL = 0.01  # of mu_1^2 / 2

_UNTIL = 1e4  # by then all is learned; what has learned takes no more time

_TOLERANCE = 1e-6


def run_row(params: Any, k: int, laws: tuple[int, float, float], report: Report) -> xr.Dataset:
    """Run all scales and widths of one data law."""
    concepts, ratio, sigma = laws
    axes = {"scale": params.scales, "factor": params.factors}
    grid = list(itertools.product(*axes.values()))
    rng, found = np.random.default_rng((params.seed, k)), []
    for n, (scale, factor) in enumerate(grid):
        report(
            n / len(grid), f"{concepts} concepts, ratio {ratio:g}, sigma {sigma:g}, scale {scale:g}, width x {factor}"
        )
        found.append(_run_cell(rng, concepts, ratio, sigma, scale, factor, params.starts))
    tails = {"counts": ("descents",), "visible": ("descents",), "rise": ("quantile",), "time": ("quantile",)}
    row = grid_dataset(found, axes, tails)
    return row.assign_coords(quantile=list(_QUANTILES), descents=np.arange(_MOST + 1))


def _run_cell(
    rng: np.random.Generator, concepts: int, ratio: float, sigma: float, scale: float, factor: int, starts: int
) -> dict[str, Any]:
    """Follow the starts of one cell, and summarise their descents, rises and times."""
    from saddlescope.flow import Ending, symmetric_flows
    from saddlescope.measure import find_descents

    mu = tuple(ratio**k for k in range(concepts))
    a, x = strengths_and_test_point(mu, concepts * (sigma,))
    U = draw_starts(rng, "normal", scale, (starts, concepts, concepts * factor))
    level = _GENERAL * mu[0] ** 2 / float(x @ x)
    flows = symmetric_flows(a, U, test_point=x, until=_UNTIL, tolerance=_TOLERANCE, level=level)
    counts, _ = verified_descent_counts(flows, U)
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
