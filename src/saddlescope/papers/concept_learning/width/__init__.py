"""Width: it is the width d' that makes the loss fall evenly, not the dimension d.

The symmetric two-layer network on two concepts, Figure 5's data, with normal entries of U, (d, d'), of deviation tau.
Directions beyond the second have no data. As W_0 = U U^T has w_ii near d' tau^2 but w_ij near sqrt(d') tau^2 (E.1),
minor entries of a wide network start small against the major ones, and suppression hardly makes the loss rise. And
three descents found by gradient flow are there in minibatch SGD on U, too.
"""

import itertools
from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.width.claims import claims, metrics
from saddlescope.papers.concept_learning.width.figures import figures
from saddlescope.papers.concept_learning.width.simulations import run_sgd, sample_starts
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.grid import join_cells
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Widths, dimensions and scales."""

    widths: tuple[int, ...] = param((2, 4, 8, 16, 64), "d', ascending")
    scales: tuple[float, ...] = param((0.001, 0.03, 0.1), "tau, ascending")
    high: int = param(8, "d of the other sample; the first has d = 2", ge=3)
    starts: int = param(12_000, "for every width and scale, d = 2", ge=16)
    high_starts: int = param(400, "and at the high dimension", ge=16)
    samples: int = param(5000, "of each cluster, for SGD", ge=16)
    runs: int = param(8, "of SGD, from one start", ge=1)
    pool: int = param(3000, "random starts, of which SGD takes the one with the clearest three descents", ge=16)
    seed: int = param(0, "of everything", ge=0)

    def check(self) -> None:
        for name in ("widths", "scales"):
            values = getattr(self, name)
            if len(values) < 2 or list(values) != sorted(set(values)) or not values[0] > 0:
                raise InputError(f"{name} must be two or more, positive and ascending; got {values!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Sample starts for every dimension, scale and width, then run SGD."""
    axes = {"dim": (2, params.high), "scale": params.scales, "width": params.widths}
    grid = list(itertools.product(*axes.values()))
    shares = np.cumsum([0.0, *(1.0 if d == 2 else 2.0 for d, _, _ in grid)])
    shares *= 0.8 / shares[-1]
    made = []
    for k, (d, scale, width) in enumerate(grid):
        context.report(shares[k], f"dimension {d}, scale {scale:g}, width {width}")
        starts = params.starts if d == 2 else params.high_starts
        make = partial(sample_starts, d, width, scale, starts, (params.seed, k))
        made.append(context.cached(f"sample-{k}", make))
    descent = context.cached("sgd", partial(run_sgd, params, context.part(0.8, 1.0)))
    context.report(1.0, "done")
    return xr.merge([join_cells(made, axes), descent], join="exact")


entry = Entry(
    "concept-learning/width",
    "Width: it is the width d' that makes the loss fall evenly, not the dimension d",
    citation=CITATION,
    source="Section 3.3, appendix E.2",
    params=Params,
    quick=dict(widths=(2, 16), scales=(0.001, 0.03), high=4, starts=400, high_starts=48, samples=200, runs=1, pool=400),
    paper=dict(high=64, high_starts=100, runs=32),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
