"""Diagonal linear networks: the stages in closed form, and the minimum-l1 interpolator at their end.

For h(x; beta) = x . beta and the squared error every step of Algorithm 1 is a piece of classical optimisation (Berthier
2022; Pesme and Flammarion 2023), so that the algorithm can be checked against solvers that know no dynamics:

- theta^k minimises the loss over beta_i >= 0 or beta_i <= 0 on the active coordinates: non-negative least squares;
- the slope xi(T), which is the integral of g, stays a subgradient of the l1 norm: xi_i = sgn beta_i where beta_i is not
  0, and |xi_i| <= 1. A coordinate enters when its |xi_i| arrives at 1;
- with more coordinates than samples the end is the interpolator of least l1 norm: a linear programme, and xi = X^T nu
  is its certificate, since |X^T nu| <= 1 makes nu . y a lower bound of the norm.

    X, y    features of shape (n, p) with n < p, and targets; L(beta) = |X beta - y|^2 / n
    g       -dL/dbeta = 2 X^T (y - X beta) / n
    T       time of the gradient flow divided by log(1/alpha)
    nu      the integral over T of 2 (y - X beta) / n

Both papers halve the loss, which doubles all times.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.diagonal_linear.claims import claims, metrics
from saddlescope.papers.gradual_rank.diagonal_linear.figures import figures
from saddlescope.papers.gradual_rank.diagonal_linear.optimality import PosedProblem, compare, path_over_time
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

_AT_ONCE = 64  # problems whose flows are followed together


class Params(EntryParams):
    """Random problems with more coordinates than samples; the paper has no experiment of this kind."""

    problems: int = param(20, "random problems", ge=1)
    samples: int = param(20, "samples n of each", ge=1)
    coordinates: int = param(40, "coordinates p of each, more than samples")
    large: int = param(0, "coordinates of one more problem, with half as many samples and a sparse teacher; 0 for none")
    seed: int = param(0, "of the first problem; the others follow", ge=0)
    log10_scale: float = param(-1024.0, "log10 of the initial scale alpha of the flow", ge=-1e5, le=-0.1)
    tolerance: float = param(1e-4, "relative, of stage times; see `saddlescope.flow.gradient_flow`", ge=1e-10, le=1e-2)

    def check(self) -> None:
        if self.coordinates <= self.samples:
            raise InputError(
                f"coordinates must be more than samples={self.samples!r}, so that there are many interpolators; "
                f"got {self.coordinates!r}."
            )
        if self.large and self.large < 40:
            raise InputError(f"large must be 0 or at least 40; got {self.large!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1, its checks and the flow on each problem; finished problems are cached."""
    import jax

    with jax.enable_x64(True):
        parts: list[xr.Dataset] = []
        count = params.problems + bool(params.large)
        for k in range(count):
            part = context.part(k / count, (k + 1) / count)
            parts.append(context.cached(f"problem{k}", partial(_solve, params, k, part)))
            part(1.0, f"problem {k + 1} of {count} done")
    return _together(parts)


def run_many(points: Sequence[Params], context: RunContext) -> list[xr.Dataset]:
    """Follow the flows of all problems of one size at once; alone: the first, whose path is stored, and large ones."""
    import jax

    alone = [(point, k) for point in points for k in (0, *([point.problems] if point.large else []))]
    sizes: dict[tuple[int, int, float], list[tuple[Params, int]]] = {}
    for point in points:
        size = point.samples, point.coordinates, point.tolerance
        sizes.setdefault(size, []).extend((point, k) for k in range(1, point.problems))
    batches = [some[n : n + _AT_ONCE] for some in sizes.values() for n in range(0, len(some), _AT_ONCE)]
    count = len(alone) + sum(map(len, batches))
    solved: dict[tuple[Params, int], xr.Dataset] = {}
    with jax.enable_x64(True):
        for n, one in enumerate(alone):
            part = context.part(n / count, (n + 1) / count)
            solved[one] = context.cached(f"alone{n}", partial(_solve, *one, part))
        done = len(alone)
        for n, batch in enumerate(batches):
            part = context.part(done / count, (done + len(batch)) / count)
            made = context.cached(f"batch{n}", partial(_solve_at_once, batch, part))
            solved |= {one: made.isel(problem=m).dropna("stage", how="all") for m, one in enumerate(batch)}
            done += len(batch)
    return [_together([solved[point, k] for k in range(point.problems + bool(point.large))]) for point in points]


def _together(parts: list[xr.Dataset]) -> xr.Dataset:
    """Join the problems to a run; those with fewer stages are filled up with NaN."""
    each = [part.drop_dims("moment", errors="ignore") for part in parts]
    together = xr.concat(each, dim="problem", join="outer", combine_attrs="drop")
    return together.assign({name: parts[0][name] for name in parts[0].data_vars if name not in each[0]})


def _problem(params: Params, k: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Draw Gaussian features and targets of a Gaussian teacher: dense; on p / 40 coordinates in the large problem."""
    rng = np.random.default_rng(params.seed + k)
    n, p, active = params.samples, params.coordinates, params.coordinates
    if k == params.problems:
        n, p, active = params.large // 2, params.large, params.large // 40
    features = rng.standard_normal((n, p))
    teacher = np.zeros(p)
    teacher[rng.choice(p, active, replace=False)] = rng.standard_normal(active)
    return features, features @ teacher, rng


def _posed(params: Params, k: int, report: Report) -> PosedProblem:
    from saddlescope.flow import DiagonalInit
    from saddlescope.models import diagonal_linear_network
    from saddlescope.theory import incremental_learning

    features, targets, rng = _problem(params, k)
    p = features.shape[1]
    network = diagonal_linear_network(features, targets)
    learned = incremental_learning(network, p, report=lambda done, note: report(done, f"Algorithm 1, {note}"))
    # The last plateau settles at the rate of its curvature; stage times are late by O(1 / log(1/alpha)).
    last, unit = learned.stages[-1], -params.log10_scale * np.log(10)
    until = 1.2 * last.time + 40 / (unit * last.curvature)
    return PosedProblem(
        features, targets, network, learned, DiagonalInit(*rng.standard_normal((2, p)), log_scale=-unit), until
    )


def _solve(params: Params, k: int, report: Report) -> xr.Dataset:
    """Solve one problem: the checks of every stage, the end against the linear programme, and the flow's end."""
    from saddlescope.flow import gradient_flow

    posed = _posed(params, k, lambda done, note: report(0.6 * done, note))
    # Stages span orders of magnitude.
    times = np.append(0.0, np.geomspace(posed.learned.stages[1].time / 2, posed.until, 600))
    flow = gradient_flow(
        posed.network,
        posed.start,
        until=posed.until,
        tolerance=params.tolerance,
        record=times,
        report=lambda done, note: report(0.6 + 0.4 * done, f"flow, {note}"),
    )
    solved = compare(posed, flow.beta[-1], flow.losses[-1] / flow.losses[0], flow.evaluations.gradients)
    return solved.assign(path_over_time(posed.learned, times, flow(times))) if k == 0 else solved


def _solve_at_once(problems: "list[tuple[Params, int]]", report: Report) -> xr.Dataset:
    """Solve problems of one size without their paths, over `problem`."""
    from saddlescope.flow import gradient_flow_batched

    several = []
    for n, (params, k) in enumerate(problems):
        report(0.7 * n / len(problems), f"problem {n + 1} of {len(problems)}: Algorithm 1")
        several.append(_posed(params, k, lambda done, note: None))
    ends = np.unique([posed.until for posed in several])
    flows = gradient_flow_batched(
        [posed.network for posed in several],
        [posed.start for posed in several],
        until=float(ends[-1]),
        tolerance=problems[0][0].tolerance,
        record=ends,
        report=lambda done, note: report(0.7 + 0.3 * done, note),
    )
    places = np.searchsorted(flows.times, [posed.until for posed in several])
    each = [
        compare(posed, flows.beta[n, at], flows.losses[n, at] / flows.losses[n, 0], flows[n].evaluations.gradients)
        for n, (posed, at) in enumerate(zip(several, places, strict=True))
    ]
    return xr.concat(each, dim="problem", join="outer")


entry = Entry(
    "gradual-rank/diagonal-linear",
    "Diagonal linear networks: the stages in closed form, and the minimum-l1 interpolator at their end",
    citation=CITATION,
    source="Section 4",
    params=Params,
    quick=dict(problems=3, samples=6, coordinates=12, tolerance=1e-3),
    paper=dict(large=2000),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
    run_many=run_many,
)
