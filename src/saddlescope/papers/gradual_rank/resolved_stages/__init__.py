"""Resolved stages: how many of Algorithm 1's plateaus a flow has at an initial scale   (Section 4, beyond)

The attention head of Figure 2, at several dimensions and from many seeds, is followed from ever smaller initial weights
alpha. Algorithm 1 gives every plateau of the limit, and by how many e-folds of growth it is separated from its
neighbours at a given alpha. The flow shows which of them it has.

    efolds   the number that Algorithm 1 gives a plateau at alpha: the lesser of how long it lasts, in e-folds of the
             slowest rate on it, and of how many the next coordinate to enter lacks when its stage begins
    found    a plateau in whose predicted middle just the predicted coordinates have |beta_i| > level
    least    the smallest |beta_i| on a plateau that is not 0: below the level no scale makes it count as found
    held     plateaus counted without any theory: spans between two changes of the set of coordinates above the level
             in whose second half none of these moves by more than 2 % of the largest; a leaving coordinate does
    L        log(1/alpha)

Figure 2 counts a plateau as resolved from log(1/level) e-folds on, which is enough. How many does it take?
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank.resolved_stages.claims import claims, metrics
from saddlescope.papers.gradual_rank.resolved_stages.figures import figures
from saddlescope.papers.gradual_rank.resolved_stages.simulations import Flow, Kind, followed
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.grid import join_cells

__all__ = ["Params", "claims", "figures", "metrics", "run", "run_many"]


@dataclass(frozen=True, kw_only=True)
class Params:
    """The head of Figure 2, smaller, from twelve seeds at each of three dimensions."""

    dims: tuple[int, ...] = (4, 8, 16)  # of a token, increasing
    log10_scales: tuple[float, ...] = (-1.0, -2.0, -4.0, -8.0, -16.0, -32.0, -64.0)  # log10 alpha, decreasing
    seeds: int = 12  # tasks and starts at each dimension
    seed: int = 0  # the first of them
    samples: int = 100  # sequences in a data set
    tokens: int = 5  # tokens in a sequence
    level: float = 0.01  # |beta_i| above which coordinate i counts as learned
    tolerance: float = 1e-4  # relative, of stage times

    def __post_init__(self) -> None:
        parameter_checks.require_log10_scales(self, "log10_scales", lowest=-300.0)
        parameter_checks.require_at_least(1, self, "seeds", "samples", "tokens")
        parameter_checks.require_at_least(0, self, "seed")
        parameter_checks.require_between(1e-6, 0.1, self, "level")
        parameter_checks.require_between(1e-10, 1e-2, self, "tolerance")
        if not self.dims or list(self.dims) != sorted(set(self.dims)) or not 2 <= self.dims[0] <= self.dims[-1] <= 64:
            raise InputError(f"dims must be increasing, between 2 and 64, such as 4,8; got {self.dims!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: one small head, three scales."""
        return cls(dims=(3,), log10_scales=(-2.0, -16.0, -64.0), seeds=2, samples=20, tokens=4)

    @classmethod
    def paper(cls) -> "Params":
        """More seeds; the paper has one, of dimension 50."""
        return cls(dims=(4, 8, 16, 32), seeds=50)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow the flows of all seeds and scales at once, dimension by dimension."""
    return run_many((params,), context)[0]


def run_many(points: Sequence[Params], context: RunContext) -> list[xr.Dataset]:
    """Follow the flows of all points together that share dimension, data size and tolerance."""
    import jax

    batches: dict[Kind, set[Flow]] = {}
    for point in points:
        for dim in point.dims:
            batches.setdefault(_kind(point, dim), set()).update(_flows(point))
    made: dict[Kind, dict[Flow, xr.Dataset]] = {}
    with jax.enable_x64(True):
        for k, (kind, several) in enumerate(batches.items()):
            flows, report = sorted(several), context.part(k / len(batches), (k + 1) / len(batches))
            batch = context.cached(f"batch-{k}", partial(followed, kind, flows, report))
            made[kind] = {flow: batch.isel(flow=n) for n, flow in enumerate(flows)}
    context.report(1.0, "done")
    return [_together(point, [made[_kind(point, dim)] for dim in point.dims]) for point in points]


def _kind(point: Params, dim: int) -> Kind:
    return Kind(dim, point.samples, point.tokens, point.tolerance)


def _flows(point: Params) -> list[Flow]:
    """Return all flows of a point at one dimension, the scale running fastest."""
    seeds = range(point.seed, point.seed + point.seeds)
    return [Flow(seed, scale, point.level) for seed in seeds for scale in point.log10_scales]


def _together(point: Params, made: list[dict[Flow, xr.Dataset]]) -> xr.Dataset:
    """Return the run of one point, from the flows of each of its dimensions."""
    axes = {
        "dim": point.dims,
        "seed": range(point.seed, point.seed + point.seeds),
        "scale": point.log10_scales,
    }
    stages = 3 * max(point.dims)
    parts = [one[flow].reindex(plateau=range(1, stages + 1)) for one in made for flow in _flows(point)]
    grid = join_cells(parts, axes)
    return grid.assign(plateaus=grid.plateaus.isel(scale=0)).assign_attrs(level=point.level)
