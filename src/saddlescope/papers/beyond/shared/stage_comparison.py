"""Predicted stages of a network beside those of gradient flow from several initial scales, over seeds.

The loss of plateau k is L_k, that at the origin L_0, and stage k is predicted to begin at T_k as the initial scale α
vanishes. In the flow it begins at t_k, when the loss first falls below (L_{k-1} + L_k) / 2; its level is the loss in
its middle, between t_k and t_{k+1}.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from saddlescope.reproduction import EntryParams, Estimate, RunContext, param
from saddlescope.reproduction.grid import join_cells

if TYPE_CHECKING:
    from saddlescope.flow import FactoredTrajectory

_POINTS = 601  # of a stored curve


class SeedParams(EntryParams):
    """Parameters of an entry that solves one problem per seed."""

    seeds: tuple[int, ...] = param(tuple(range(10)), "seeds of data and initial weights", ge=0, order="distinct")


class StageParams(SeedParams):
    """Parameters of an entry that compares predicted stages with flows from several initial scales."""

    log10_scales: tuple[float, ...] = param(
        (-32.0, -128.0, -512.0), "log10 of the initial scales α", ge=-4096, le=-1, order="decreasing", least=2
    )
    tolerance: float = param(1e-6, "relative tolerance of the flow's stage times", ge=1e-10, le=1e-3, scale="log")


P = TypeVar("P", bound=SeedParams)
F = TypeVar("F")


def over_seeds(solve: Callable[[P, int, RunContext], xr.Dataset]) -> Callable[[P, RunContext], xr.Dataset]:
    """Return a run that solves one problem per seed, each cached, and joins them along `seed`.

    Curves, over `time`, are those of the first seed.
    """

    @wraps(solve)
    def run(params: P, context: RunContext) -> xr.Dataset:
        import jax

        axes = {"seed": params.seeds}
        with jax.enable_x64(True):
            parts = context.cells(axes, partial(solve, params))
        joined = join_cells([part.drop_dims("time", errors="ignore") for part in parts], axes, join="outer")
        return joined.assign({name: of for name, of in parts[0].data_vars.items() if "time" in of.dims})

    return run


def record_times(predicted: Sequence[float], until: float, width: float) -> np.ndarray:
    """Return times at which to record a flow: few on plateaus, many around the predicted ones.

    Args:
        predicted: predicted times.
        until: the last time.
        width: time in which a unit grows by a factor of e, about.
    """
    near = [time + width * np.linspace(-25, 25, 101) for time in predicted]
    times = np.concatenate([np.linspace(0.0, until, 101), *near])
    return np.unique(times[(times >= 0) & (times <= until)])


def follow_scales(
    params: StageParams,
    context: RunContext,
    follow: Callable[..., F],
    predicted: Sequence[float],
    until: float | Callable[[float], float],
    *,
    width: Callable[[float], float] = lambda log_scale: -1 / log_scale,
    more: ArrayLike = (),
) -> dict[float, F]:
    """Return the flow from each initial scale α.

    Args:
        params: scales and tolerance.
        context: receives the progress.
        follow: function from `log_scale`, `until`, `tolerance`, `record` and `report` to the flow.
        predicted: times around which flows are recorded.
        until: the last time, or a function of log α.
        width: function from log α to the time in which a unit grows by a factor of e.
        more: further times to record.
    """
    flows = {}
    for scale, step in context.steps(params.log10_scales):
        log_scale = scale * np.log(10)
        last = until(log_scale) if callable(until) else until
        record = np.union1d(record_times(predicted, last, width(log_scale)), more)
        policies = {"until": last, "tolerance": params.tolerance, "record": record, "report": step.report}
        flows[scale] = follow(log_scale=log_scale, **policies)
    return flows


def random_factors(loss: Any, shape: tuple[int, int], rng: np.random.Generator) -> "Callable[..., FactoredTrajectory]":
    """Return a function that follows B = left rightᵀ, (rows, columns), from random factors, for `follow_scales`."""
    from saddlescope.flow import FactorInit, factored_flow

    pair = rng.standard_normal((shape[0], sum(shape))), rng.standard_normal((shape[1], sum(shape)))
    return lambda log_scale, **policies: factored_flow(loss, FactorInit(pairs=[pair], log_scale=log_scale), **policies)


def compare_stages(learned: Any, flows: Mapping[float, Any], until: float = np.inf) -> xr.Dataset:
    """Compare a prediction with flows of one network.

    Args:
        learned: a prediction with a `staircase`.
        flows: results with `times` and `losses` by log10 of the initial scale.
        until: last time of the flows to compare.

    Returns:
        predicted_time and predicted_loss (stage), found_time and found_loss (scale, stage), for stages 1, 2, ...;
        initial_loss; and the curves, loss (scale, time) with predicted_curve (time).
    """
    times, losses = (np.array([getattr(of, name) for of in learned.staircase.stages]) for name in ("start", "loss"))
    curves = [(flow.times[flow.times <= until], flow.losses[flow.times <= until]) for flow in flows.values()]
    grid = np.linspace(0.0, min(float(at[-1]) for at, _ in curves), _POINTS)
    found = np.array([_found(*curve, losses) for curve in curves])
    return xr.Dataset(
        {
            "predicted_time": ("stage", times[1:]),
            "predicted_loss": ("stage", losses[1:]),
            "initial_loss": losses[0],
            "found_time": (("scale", "stage"), found[:, 0]),
            "found_loss": (("scale", "stage"), found[:, 1]),
            "loss": (("scale", "time"), np.array([np.interp(grid, *curve) for curve in curves])),
            "predicted_curve": ("time", losses[np.searchsorted(times[1:], grid, side="right")]),
        },
        {"scale": list(flows), "stage": np.arange(1, len(losses)), "time": grid},
    )


def _found(times: np.ndarray, losses: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return t_k and the level of each stage k = 1, 2, ..., (2, stages); NaN where the flow does not reach it."""
    begins = np.array([_passage(times, losses, (a + b) / 2) for a, b in pairwise(levels)])
    middle = (begins + np.append(begins[1:], times[-1])) / 2
    seen = np.isfinite(middle)
    found = np.where(seen, np.interp(np.where(seen, middle, times[0]), times, losses), np.nan)
    return np.stack([begins, found])


def _passage(times: np.ndarray, losses: np.ndarray, level: float) -> float:
    """Return the first time at which the loss falls to a level, between two records by a straight line."""
    below = np.flatnonzero(losses <= level)
    if not len(below) or below[0] == 0:
        return np.nan
    after = int(below[0])
    share = (losses[after - 1] - level) / (losses[after - 1] - losses[after])
    return float(times[after - 1] + share * (times[after] - times[after - 1]))


def over_stages(run: xr.Dataset, errors: xr.DataArray) -> Estimate:
    """Return the largest error over stages and seeds, of which the seeds are the cases; NaN if the flow missed one."""
    stages = run.predicted_time.notnull()
    each = errors.where(stages, -np.inf).max("stage", skipna=False)
    return Estimate.largest(each, f"{int(stages.sum())} stages", over="seeds")


def slopes(run: xr.Dataset) -> xr.DataArray:
    """Return for each seed the slope of log error over log log(1/α); the error is the root mean square over stages."""
    stages = run.predicted_time.notnull()
    squares = ((run.found_time - run.predicted_time) ** 2).where(stages, 0.0)
    error = np.sqrt(squares.sum("stage", skipna=False) / stages.sum("stage"))
    x = np.log(-run.scale * np.log(10))
    x = x - x.mean("scale")
    return (x * np.log(error)).sum("scale", skipna=False) / (x**2).sum("scale")


def level_errors(run: xr.Dataset) -> xr.DataArray:
    """Return the distance of each plateau of the flow at the smallest scale from L_k, in units of L_0."""
    return abs(run.found_loss.isel(scale=-1) - run.predicted_loss) / run.initial_loss


def time_errors(run: xr.Dataset) -> xr.DataArray:
    """Return the relative error of each predicted time at the smallest scale."""
    return abs(run.found_time.isel(scale=-1) / run.predicted_time - 1)
