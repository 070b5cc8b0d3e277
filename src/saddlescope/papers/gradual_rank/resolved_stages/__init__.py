"""Resolved stages: how many of Algorithm 1's plateaus a flow has at an initial scale.

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
from functools import partial

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.resolved_stages.claims import claims, metrics
from saddlescope.papers.gradual_rank.resolved_stages.figures import figures
from saddlescope.papers.gradual_rank.resolved_stages.simulations import Flow, Kind, followed
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.grid import join_cells
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """The head of Figure 2, smaller, from twelve seeds at each of three dimensions."""

    dims: tuple[int, ...] = param((4, 8, 16), "of a token, increasing")
    log10_scales: tuple[float, ...] = param(
        (-1.0, -2.0, -4.0, -8.0, -16.0, -32.0, -64.0), "log10 alpha, decreasing", lt=0, order="decreasing", ge=-300.0
    )
    seeds: int = param(12, "tasks and starts at each dimension", ge=1)
    seed: int = param(0, "the first of them", ge=0)
    samples: int = param(100, "sequences in a data set", ge=1)
    tokens: int = param(5, "tokens in a sequence", ge=1)
    level: float = param(0.01, "|beta_i| above which coordinate i counts as learned", ge=1e-6, le=0.1)
    tolerance: float = param(1e-4, "relative, of stage times", ge=1e-10, le=1e-2)

    def check(self) -> None:
        if not self.dims or list(self.dims) != sorted(set(self.dims)) or not 2 <= self.dims[0] <= self.dims[-1] <= 64:
            raise InputError(f"dims must be increasing, between 2 and 64, such as 4,8; got {self.dims!r}.")


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


entry = Entry(
    "gradual-rank/resolved-stages",
    "Resolved stages: how many of Algorithm 1's plateaus a flow has at an initial scale",
    citation=CITATION,
    source="Section 4, beyond",
    params=Params,
    quick=dict(dims=(3,), log10_scales=(-2.0, -16.0, -64.0), seeds=2, samples=20, tokens=4),
    paper=dict(dims=(4, 8, 16, 32), seeds=50),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
    run_many=run_many,
)
