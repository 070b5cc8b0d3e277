"""Diagonal linear networks: the last stage, of T = ∞, is the interpolator of least ℓ1 norm.

For h(x; β) = x · β and the squared error, with more coordinates than samples, Algorithm 1 ends at the interpolator of
least ℓ1 norm (Berthier 2022; Pesme and Flammarion 2023), which a linear programme finds without any dynamics. There
every gradient vanishes: no further coordinate ever enters, and Theorem 4.1 holds with T = ∞.

    X, y    features of shape (n, p) with n < p, and targets; L(β) = |Xβ - y|² / n
    g       -dL/dβ = 2 Xᵀ(y - Xβ) / n
    ξ       the integral of g over rescaled time: a subgradient of the ℓ1 norm at every stage

Both papers halve the loss, which doubles all times.
"""

from functools import partial
from typing import Literal

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.plot import Axis, Figure, Figures, Line, Panel, corners
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, Metric, RunContext, param
from saddlescope.reproduction.grid import join_cells


class Params(EntryParams):
    """Random problems with more coordinates than samples; the paper has no experiment of this kind."""

    problems: int = param(20, "number of random problems", ge=1)
    samples: int = param(20, "number of samples n in each problem", ge=1)
    coordinates: int = param(40, "number of coordinates p in each problem, more than samples")
    seed: int = param(0, "seed of the first problem; the next problems use the next seeds", ge=0)
    log10_scale: float = param(-1024.0, "log10 of the initial scale α of the flow", ge=-1e5, le=-0.1)
    tolerance: float = param(1e-4, "relative tolerance of the flow's stage times", ge=1e-10, le=1e-2, scale="log")

    def check(self) -> None:
        if self.coordinates <= self.samples:
            raise InputError(
                f"coordinates must be more than samples={self.samples!r}, so that there are many interpolators; "
                f"got {self.coordinates!r}."
            )


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1 and the flow on each problem; finished problems are cached."""
    import jax

    problems = {"problem": range(params.problems)}
    with jax.enable_x64(True):
        parts = context.cells(problems, partial(_solve, params))
    each = [part.drop_dims("moment", errors="ignore") for part in parts]
    return join_cells(each, problems, join="outer").merge(parts[0].drop_vars(list(each[0].data_vars)))


def _solve(params: Params, k: int, context: RunContext) -> xr.Dataset:
    """Solve one problem of Gaussian features and a Gaussian teacher; the first one with its path."""
    from saddlescope.flow import DiagonalInit, gradient_flow
    from saddlescope.models import diagonal_linear_network
    from saddlescope.theory import incremental_learning

    theory, simulation = context.split(0.6, 0.4)
    rng, p = np.random.default_rng(params.seed + k), params.coordinates
    features = rng.standard_normal((params.samples, p))
    teacher = np.zeros(p)
    teacher[rng.choice(p, p, replace=False)] = rng.standard_normal(p)
    targets = features @ teacher
    network = diagonal_linear_network(features, targets)
    learned = incremental_learning(network, p, report=theory.note("Algorithm 1"))
    # The last plateau settles at the rate of its curvature; stage times are late by O(1 / log(1/alpha)).
    last, unit = learned.stages[-1], -params.log10_scale * np.log(10)
    until = 1.2 * last.time + 40 / (unit * last.curvature)
    # Stages span orders of magnitude.
    times = np.append(0.0, np.geomspace(learned.stages[1].time / 2, until, 600))
    flow = gradient_flow(
        network,
        DiagonalInit(*rng.standard_normal((2, p)), log_scale=-unit),
        until=until,
        tolerance=params.tolerance,
        record=times,
        report=simulation.note("flow"),
    )
    solved = xr.Dataset(
        {
            "stage_time": ("stage", [stage.time for stage in learned.stages[1:]]),
            "converged": learned.status.value == "converged",
            "norm": np.abs(last.beta).sum(),
            "least_norm": np.abs(least_l1_interpolator(features, targets)).sum(),
            "flow_norm": np.abs(flow.beta[-1]).sum(),
        },
        coords={"stage": np.arange(1, len(learned.stages))},
    )
    if k > 0:
        return solved
    stages = [learned.stages[n] for n in np.searchsorted([s.time for s in learned.stages], times, side="right") - 1]
    slope = [
        stage.slope + (time - stage.time) * np.where(stage.beta == 0, stage.gradient, 0)
        for stage, time in zip(stages, times, strict=True)
    ]
    curves = {"flow_beta": flow(times), "predicted_beta": [stage.beta for stage in stages], "predicted_slope": slope}
    return solved.assign({name: (("moment", "coordinate"), np.stack(each)) for name, each in curves.items()}).assign(
        time=("moment", times)
    )


def least_l1_interpolator(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the β of least ℓ1 norm with Xβ = y, by HiGHS."""
    from scipy.optimize import linprog

    p = features.shape[1]
    found = linprog(
        np.ones(2 * p),
        A_eq=np.hstack([features, -features]),
        b_eq=targets,
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if not found.success:
        raise RuntimeError(f"The linear programme was not solved: {found.message}")
    return found.x[:p] - found.x[p:]


def _converged(run: xr.Dataset) -> bool:
    """Algorithm 1 converges on all problems"""
    return bool(run.converged.all())


claims = Claims(
    requires=[_converged],
    limits="Gaussian features of one size, judged once, some 1.2 times as late as the last stage. The norm is "
    "compared, not the weights; with the targets fitted, an equal norm makes them the least interpolator. Woodworth et "
    "al. (2020, Theorem 2) bound the excess by 0.4 % at α = 1e-1024 for weights of 1.",
)


def _excess(run: xr.Dataset) -> xr.DataArray:
    return abs(run.flow_norm / run.least_norm - 1)


@claims.reading(
    "flow",
    "From α = 1e-1024, diagonal linear networks end at the last stage's saddle, the interpolator of least ℓ1 norm",
    "Theorem 4.1, T = ∞; least norm: Berthier 2022, Pesme and Flammarion 2023 (footnote 2); 1 %: this project",
    high=0.01,
)
def _flow_excess(run: xr.Dataset) -> Estimate:
    """Largest relative difference of the flow's final ℓ1 norm of β from the least one of all interpolators."""
    return Estimate.largest(_excess(run), over="problems")


metrics = (
    Metric(
        "stages",
        "stages of Algorithm 1, mean over problems",
        lambda run: float(run.stage_time.notnull().sum("stage").mean()),
    ),
    Metric(
        "excess",
        "relative excess of the flow's ℓ1 norm, mean over problems",
        lambda run: float(_excess(run).mean()),
        scale="log",
    ),
)


def figures(run: xr.Dataset) -> Figures:
    """Draw the first problem's path, and the slopes that certify it."""
    later = slice(1, None)  # a logarithmic axis has no time 0
    time, flow, predicted, slope = (
        run[name].values[later] for name in ("time", "flow_beta", "predicted_beta", "predicted_slope")
    )

    def line(y: np.ndarray, group: str, color: int, width: float, style: Literal["solid", "dashed"] = "solid") -> Line:
        kept = corners(np.log(time), y, 1e-3 * float(np.abs(y).max() or 1))
        return Line(x=time[kept], y=y[kept], group=group, color=color, width=width, style=style)

    betas, slopes = [], []
    for i in range(predicted.shape[1]):
        enters = bool(predicted[:, i].any())
        slopes.append(line(slope[:, i], "enters at some time" if enters else "never enters", i, 1.1 if enters else 0.5))
        if enters:
            betas.append(line(flow[:, i], "gradient flow", i, 1.1))
            betas.append(line(predicted[:, i], "Algorithm 1", i, 0.8, "dashed"))
    least = np.full(2, float(run.least_norm[0]))
    norms = (
        Line(x=time, y=np.abs(predicted).sum(1), label="Algorithm 1", style="dashed"),
        Line(x=time, y=np.abs(flow).sum(1), label="gradient flow"),
        Line(x=time[[0, -1]], y=least, label="least norm of an interpolator", style="dotted"),
    )
    x = Axis("time of the flow / log(1/α)", scale="log")
    yield Figure(
        name="path",
        title="Coordinates, ℓ1 norm and slopes of a diagonal linear network over time",
        caption="The first problem. Coordinates: gradient flow solid, Algorithm 1 dashed. ℓ1 norm: of both, and "
        "the least norm of an interpolator. Slopes: ξ, the integral of the negative gradient g; a coordinate that "
        "is not 0 has slope 1 or −1, all others are between, so that ξ is a subgradient of the ℓ1 norm.",
        panels=(
            Panel(title="coordinates", x=x, y=Axis("β"), marks=tuple(betas)),
            Panel(title="ℓ1 norm", x=x, y=Axis("|β|₁"), marks=norms),
            Panel(title="slopes", x=x, y=Axis("ξ"), marks=tuple(slopes)),
        ),
    )


entry = Entry(
    "gradual-rank/diagonal-linear",
    "Diagonal linear networks: the last stage is the interpolator of least ℓ1 norm",
    source="Section 4",
    quick=dict(problems=3, samples=6, coordinates=12, tolerance=1e-3),
    paper=dict(samples=200, coordinates=400),
)
