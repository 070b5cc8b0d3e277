"""Width: it is the width d' that makes the loss fall evenly, not the dimension d   (Section 3.3, appendix E.2)

The symmetric two-layer network on two concepts, Figure 5's data, with normal entries of U, (d, d'), of deviation tau.
Directions beyond the second have no data. As W_0 = U U^T has w_ii near d' tau^2 but w_ij near sqrt(d') tau^2 (E.1),
minor entries of a wide network start small against the major ones, and suppression hardly makes the loss rise. And
three descents found by gradient flow are there in minibatch SGD on U, too.
"""

import itertools
from dataclasses import dataclass
from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.width.claims import claims, metrics
from saddlescope.papers.concept_learning.width.figures import figures
from saddlescope.papers.concept_learning.width.simulations import run_sgd, sample_starts
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.grid import join_cells

__all__ = ["Params", "claims", "figures", "metrics", "run"]


@dataclass(frozen=True, kw_only=True)
class Params:
    """Widths, dimensions and scales."""

    widths: tuple[int, ...] = (2, 4, 8, 16, 64)  # d', ascending
    scales: tuple[float, ...] = (0.001, 0.03, 0.1)  # tau, ascending
    high: int = 8  # d of the other sample; the first has d = 2
    starts: int = 12_000  # for every width and scale, d = 2
    high_starts: int = 400  # and at the high dimension
    samples: int = 5000  # of each cluster, for SGD
    runs: int = 8  # of SGD, from one start
    pool: int = 3000  # random starts, of which SGD takes the one with the clearest three descents
    seed: int = 0  # of everything

    def __post_init__(self) -> None:
        parameter_checks.require_at_least(16, self, "starts", "high_starts", "samples", "pool")
        parameter_checks.require_at_least(3, self, "high")
        parameter_checks.require_at_least(1, self, "runs")
        parameter_checks.require_at_least(0, self, "seed")
        for name in ("widths", "scales"):
            values = getattr(self, name)
            if len(values) < 2 or list(values) != sorted(set(values)) or not values[0] > 0:
                raise InputError(f"{name} must be two or more, positive and ascending; got {values!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Return parameters for a run of seconds: the smallest width and a large one."""
        return cls(
            widths=(2, 16), scales=(0.001, 0.03), high=4, starts=400, high_starts=48, samples=200, runs=1, pool=400
        )

    @classmethod
    def paper(cls) -> "Params":
        """Return the width and dimension of the paper's wide networks; slow, and with fewer starts there."""
        return cls(high=64, high_starts=100, runs=32)


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
