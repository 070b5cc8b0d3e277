"""Resolved stages: the number of Algorithm 1's plateaus that a flow has at an initial scale.

The attention head of Figure 2, at several dimensions and from many seeds, is followed from ever smaller initial scales
α. Algorithm 1 gives every plateau of the limit, and the number of e-folds of growth that separate it from its
neighbours at a given α. The flow shows which of them it has.

    efolds   the number that Algorithm 1 gives a plateau at α: the lesser of its length, in e-folds of the slowest rate
             on it, and of the e-folds that the next coordinate to enter lacks when its stage begins
    found    a plateau in whose predicted middle exactly the predicted coordinates have |β_i| > level

Figure 2 counts a plateau as resolved from log(1/level) e-folds on, which is sufficient. This entry asks for the number
that is necessary.
"""

from dataclasses import replace
from functools import partial
from math import log
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Band, Figure, Figures, Line, Mark, Panel
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param
from saddlescope.reproduction.grid import join_cells

if TYPE_CHECKING:
    from saddlescope.theory import IncrementalLearning

_AT_ONCE = 96  # flows: their records take some 100 MB
_SPACING = 0.003  # of the records, in log t, so that flows share them
_FEW = 2.0  # e-folds: the size of a correction to a stage time, on both sides of a plateau


class Params(EntryParams):
    """The head of Figure 2, smaller, from twelve seeds at each of three dimensions."""

    dims: tuple[int, ...] = param((4, 8, 16), "dimensions of a token, increasing", ge=2, le=64, order="increasing")
    log10_scales: tuple[float, ...] = param(
        (-1.0, -2.0, -4.0, -8.0, -16.0, -32.0, -64.0),
        "log10 of the initial scales α, decreasing",
        lt=0,
        order="decreasing",
        ge=-300.0,
    )
    seeds: int = param(12, "number of seeds at each dimension", ge=1)
    seed: int = param(300, "first seed of the tasks and the initial weights", ge=0)
    samples: int = param(100, "number of sequences in a data set", ge=1)
    tokens: int = param(5, "number of tokens in a sequence", ge=1)
    level: float = param(0.01, "|β_i| above which coordinate i counts as learned", ge=1e-6, le=0.1, scale="log")
    tolerance: float = param(1e-4, "relative tolerance of the flow's stage times", ge=1e-10, le=1e-2, scale="log")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow the flows of all seeds and scales at once, dimension by dimension."""
    import jax

    axes = {"dim": params.dims, "seed": range(params.seed, params.seed + params.seeds), "scale": params.log10_scales}
    with jax.enable_x64(True):
        parts = context.cells({"dim": params.dims}, partial(_follow, params))
    plateaus = range(1, 3 * max(params.dims) + 1)
    cells = [part.isel(flow=n).reindex(plateau=plateaus) for part in parts for n in range(part.sizes["flow"])]
    grid = join_cells(cells, axes)
    return grid.assign(plateaus=grid.plateaus.isel(scale=0)).assign_attrs(level=params.level)


def _follow(params: Params, dim: int, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1 for every seed, and all flows, over `flow`: seed by seed, each from every scale."""
    from saddlescope.flow import DiagonalInit, gradient_flow_batched
    from saddlescope.models import attention_teacher_task
    from saddlescope.theory import incremental_learning

    theory, simulation = context.split(0.5, 0.5)
    flows = []
    for seed, step in theory.steps(range(params.seed, params.seed + params.seeds)):
        step.report(0.0, f"seed {seed}: Algorithm 1")
        task = attention_teacher_task(seed, samples=params.samples, tokens=params.tokens, dim=dim)
        learned = incremental_learning(task.network, 2 * dim, max_stages=3 * dim)
        flows += [(task, learned, scale * log(10)) for scale in params.log10_scales]
    parts = []
    batches = [flows[first : first + _AT_ONCE] for first in range(0, len(flows), _AT_ONCE)]
    for some, step in simulation.steps(batches, [float(len(some)) for some in batches]):
        middles = [_middles(learned) for _, learned, _ in some]
        paths = gradient_flow_batched(
            [task.network for task, _, _ in some],
            [DiagonalInit(task.u0, task.v0, log_scale=log_scale) for task, _, log_scale in some],
            until=1.1 * max(learned.stages[-1].time for _, learned, _ in some),
            tolerance=params.tolerance,
            record=np.unique(np.concatenate(middles)),
            report=step.report,
        )
        for (_, learned, log_scale), middle, beta in zip(some, middles, paths.beta, strict=True):
            above = np.abs(beta[np.searchsorted(paths.times, middle)]) > params.level
            parts.append(_plateaus(learned, log_scale, above))
    return xr.concat(parts, "flow", join="outer").reindex(plateau=np.arange(1, 3 * dim + 1))


def _middles(learned: "IncrementalLearning") -> np.ndarray:
    """Return the predicted middle of every plateau between two stages, rounded up to a time that is recorded."""
    begins = np.array([stage.time for stage in learned.stages[1:]])
    return np.exp(_SPACING * np.ceil(np.log((begins[1:] + begins[:-1]) / 2) / _SPACING))


def _plateaus(learned: "IncrementalLearning", log_scale: float, above: np.ndarray) -> xr.Dataset:
    """Return efolds and found of all plateaus between two stages, and their number."""
    efolds = np.full(len(learned.stages), np.inf)
    for tie in learned.near_ties(log_scale, efolds=1e300):
        efolds[tie.stage] = min(efolds[tie.stage], tie.efolds)
    betas = np.stack([stage.beta for stage in learned.stages[1:-1]])
    return xr.Dataset(
        {
            "efolds": ("plateau", efolds[1:-1]),
            "found": ("plateau", (above == (betas != 0)).all(axis=1).astype(float)),
            "plateaus": len(betas),
        },
        {"plateau": np.arange(1, len(betas) + 1)},
    )


def predicted(run: xr.Dataset, efolds: float) -> xr.DataArray:
    """Return the number of plateaus with so many e-folds, over dim, seed and scale."""
    return (run.efolds >= efolds).sum("plateau")


def found(run: xr.Dataset) -> xr.DataArray:
    """Return the number of plateaus found, over dim, seed and scale."""
    return run.found.sum("plateau")


claims = Claims(
    limits="The theory says that the e-folds a plateau needs are of order one, no more; two e-folds, one of "
    "correction on either side, and the bars come from a pilot on seeds 101 to 106 at dimensions 4 and 8, so "
    "other teachers may need another number, and errors of both kinds may cancel. Entries below the level, which no "
    "scale makes visible, weaken the power."
)


@claims.extension(
    "number-two",
    "From α = 1e-4 down, small heads show as many plateaus, within 10 %, as Algorithm 1 separates by two e-folds",
    "One e-fold of correction on either side of a plateau",
    low=0.9,
    high=1.1,
)
def _found_over_predicted(run: xr.Dataset) -> Estimate:
    """Ratio of plateaus found in the flow to those so separated, at initial scales up to 1e-4, mean over tasks."""
    late = run.sel(scale=run.scale <= -3.9)  # before, hardly a plateau exists
    over, under = (number.sum("scale").values.ravel().astype(float) for number in (found(late), predicted(late, _FEW)))
    some = under > 0
    remark = f"{int(over.sum())} against {int(under.sum())} plateaus"
    return Estimate.mean(over[some] / under[some], remark, over="tasks (a dimension and a seed)")


@claims.extension(
    "one-over-log",
    "From α = 1e-8 to 1e-64, the number of predicted plateaus that flow of small heads lacks falls as 1 / log(1/α)",
    "A density of plateau lengths that is finite at 0; a bar set before the pilot",
    low=-1.15,
    high=-0.85,
)
def _unresolved_power(run: xr.Dataset) -> Estimate:
    """Fitted power of log(1/α) in the number of plateaus not found, from α = 1e-8 down, with a jackknife over seeds."""
    from scipy.stats import t

    late = run.sel(scale=run.scale <= -7.9)
    if late.sizes["scale"] < 2 or run.sizes["seed"] < 2:
        return Estimate.unresolved("The power needs two scales of at most 1e-8, and two seeds; add them.")
    lost = (late.plateaus - found(late)).sum("dim").transpose("seed", "scale").values.astype(float)
    if not lost.sum(0).all():
        return Estimate.unresolved("At one of these scales all plateaus are found; add seeds or dimensions.")

    def slope(counts: np.ndarray) -> float:
        return float(np.polyfit(np.log(-late.scale.values * log(10)), np.log(np.maximum(counts, 0.5)), 1)[0])

    slopes = np.array([slope(lost.sum(0) - one) for one in lost])
    error = float(t.ppf(0.975, len(lost) - 1)) * (len(lost) - 1) ** 0.5 * float(slopes.std())
    remark = f"{lost.sum(0).astype(int).tolist()} of {int(run.plateaus.sum())}"
    return replace(Estimate.mean(slopes, remark, over="seeds"), value=slope(lost.sum(0)), uncertainty=error)


def figures(run: xr.Dataset) -> Figures:
    """Draw numbers of plateaus against the scale."""
    yield Figure(
        name="numbers",
        title="Number of plateaus by initial scale",
        caption=f"Plateaus between two stages against log(1/α), mean over {run.sizes['seed']} seeds: found by the "
        "flow with the predicted coordinates learned (with Student's 95 % interval), and predicted from Algorithm "
        f"1 with {_FEW:g} e-folds or with log(1/level). Horizontal line: all plateaus of the limit.",
        panels=tuple(_numbers(run.sel(dim=dim)) for dim in run.dim.values),
    )


def _numbers(one: xr.Dataset) -> Panel:
    from scipy.stats import t

    x, n = -one.scale.values * log(10), one.sizes["seed"]
    mean, marks = found(one).mean("seed").values, []
    if n > 1:
        error = t.ppf(0.975, n - 1) * found(one).std("seed", ddof=1).values / n**0.5
        marks.append(Band(x=x, low=mean - error, high=mean + error, group="found", color=0))
    marks.append(Line(x=x, y=mean, group="found", color=0))
    needed = {f"{_FEW:g} e-folds": _FEW, "log(1/level) e-folds": log(1 / one.attrs["level"])}
    for color, (name, efolds) in enumerate(needed.items(), 2):
        count = predicted(one, efolds).mean("seed").values.astype(float)
        marks.append(Line(x=x, y=count, group=name, color=color, style="dashed"))
    marks.append(Mark(at=float(one.plateaus.mean()), axis="y", group="all plateaus", color=7))
    axes = {"x": Axis("log(1/α)", scale="log"), "y": Axis("number of plateaus")}
    return Panel(title=f"dimension {int(one.dim)}", marks=tuple(marks), **axes)


entry = Entry(
    "gradual-rank/resolved-stages",
    "Resolved stages: the number of Algorithm 1's plateaus that a flow has at an initial scale",
    source="Section 4, beyond",
    quick=dict(dims=(3,), log10_scales=(-2.0, -16.0, -64.0), seeds=2, samples=20, tokens=4),
    paper=dict(dims=(4, 8, 16, 32), seeds=50),
)
