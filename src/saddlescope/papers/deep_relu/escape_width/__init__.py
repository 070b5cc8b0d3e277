"""Escape and width: how often descent finds a fast escape direction, against width and depth.

ReLU networks descend the localised loss of Example 1, eight points on a circle, on the sphere |theta|^2 = L from random
starts, at many widths and several depths L; at L = 3 the two hidden layers have unequal widths, too.

    faster  a run whose speed exceeds tan(pi/8) = sqrt 2 - 1, the best of rank-one networks of any depth
    optimal a run whose speed is 1/2, the certified largest one at L = 3, up to .001: descent is slow at the very end
    law     the odds of success, p / (1 - p), grow as a power of the width
"""

from functools import partial
from itertools import pairwise

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.escape_width.claims import BASE_DEPTH, SAMPLES, claims
from saddlescope.papers.deep_relu.escape_width.figures import figures
from saddlescope.papers.deep_relu.escape_width.metrics import metrics
from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle
from saddlescope.papers.deep_relu.shared.sequence_checks import require_increasing
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.grid import cached_rows
from saddlescope.reproduction.parameters import EntryParams, param

_RATE = 0.03  # of the first step of a descent


class Params(EntryParams):
    """Error bars of about three per cent."""

    widths: tuple[int, ...] = param((3, 4, 6, 8, 12, 16, 24, 32), "of all hidden layers, increasing")
    depths: tuple[int, ...] = param((3, 4, 6), "L, increasing from 3 on")
    unequal: tuple[int, ...] = param((4, 8, 16, 32), "of each hidden layer, every pair of them, L = 3")
    starts: int = param(256, "of each network", ge=2)
    steps: int = param(4000, "of each descent", ge=100)
    seed: int = param(0, "of the starts", ge=0)

    def check(self) -> None:
        for name in ("widths", "depths", "unequal"):
            require_increasing(1, self, name, example="4,8,16")
        if self.depths[0] != BASE_DEPTH:
            raise InputError(f"depths must begin with {BASE_DEPTH}, whose optimum is certified; got {self.depths!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Descend network by network; a killed run resumes after the last complete one."""
    equal, unequal = context.subtask(0.0, 0.8), context.subtask(0.8, 1.0)
    axes = {"depth": params.depths, "width": params.widths}
    square = cached_rows(axes, partial(_descend_equal_widths, params), equal, name="equal")
    pairs = {"first": params.unequal, "second": params.unequal}
    oblong = cached_rows(pairs, partial(_descend_unequal_widths, params), unequal, name="unequal")
    context.report(1.0, "done")
    return xr.merge([square, oblong])


def _descend_equal_widths(params: Params, k: int, cell: tuple[int, int], report: Report) -> xr.Dataset:
    depth, width = cell
    report(0.0, f"depth {depth}, width {width}")
    return xr.Dataset({"speed": ("start", _descend((width,) * (depth - 1), params, (0, k)))})


def _descend_unequal_widths(params: Params, k: int, cell: tuple[int, int], report: Report) -> xr.Dataset:
    report(0.0, f"widths {cell[0]} and {cell[1]}")
    return xr.Dataset({"unequal_speed": ("start", _descend(cell, params, (1, k)))})


def _descend(hidden: tuple[int, ...], params: Params, place: tuple[int, int]) -> np.ndarray:
    """Return the speeds at which descents of networks with these hidden widths end, (starts,)."""
    from saddlescope.theory.escape.sphere_descent import sphere_descent

    X, G = alternating_circle(SAMPLES)
    rng, shape = np.random.default_rng((params.seed, *place)), (X.shape[1], *hidden, G.shape[1])
    weights = tuple(rng.standard_normal((params.starts, out, into)) for into, out in pairwise(shape))
    record = np.array([params.steps])
    return sphere_descent(weights, X, G, steps=params.steps, learning_rate=_RATE, record=record)[1][:, -1]


entry = Entry(
    "deep-relu/escape-width",
    "Escape and width: how often descent finds a fast escape direction, against width and depth",
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
