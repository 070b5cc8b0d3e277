"""Diagonal linear networks: stages in closed form, and the interpolator of least ℓ1 norm at their end.

For h(x; β) = x · β and the squared error, every step of Algorithm 1 is a known optimisation problem (Berthier 2022;
Pesme and Flammarion 2023), so that solvers without any dynamics can check the algorithm:

- β^k minimises the loss over β_i >= 0 or β_i <= 0 on the active coordinates: non-negative least squares;
- the slope ξ(T), the integral of g, is a subgradient of the ℓ1 norm: ξ_i = sgn β_i where β_i is not 0, and |ξ_i| <= 1.
  A coordinate enters when its |ξ_i| reaches 1;
- with more coordinates than samples, the end is the interpolator of least ℓ1 norm. It solves a linear programme, and
  ξ = Xᵀν certifies it, since |Xᵀν| <= 1 makes ν · y a lower bound of the norm.

    X, y    features of shape (n, p) with n < p, and targets; L(β) = |Xβ - y|² / n
    g       -dL/dβ = 2 Xᵀ(y - Xβ) / n
    T       time of the gradient flow divided by log(1/α)
    ν       the integral over T of 2 (y - Xβ) / n

Both papers halve the loss, which doubles all times.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.plot import Axis, Figure, Line, Panel, Table, corners
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.metric import Metric
from saddlescope.reproduction.parameters import EntryParams, param

_AT_ONCE = 64  # problems whose flows are followed together


class Params(EntryParams):
    """Random problems with more coordinates than samples; the paper has no experiment of this kind."""

    problems: int = param(20, "number of random problems", ge=1)
    samples: int = param(20, "number of samples n in each problem", ge=1)
    coordinates: int = param(40, "number of coordinates p in each problem, more than samples")
    large: int = param(0, "number of coordinates of one more problem, with a sparse teacher; 0 for no such problem")
    seed: int = param(0, "seed of the first problem; the next problems use the next seeds", ge=0)
    log10_scale: float = param(-1024.0, "log10 of the initial scale α of the flow", ge=-1e5, le=-0.1)
    tolerance: float = param(1e-4, "relative tolerance of the flow's stage times", ge=1e-10, le=1e-2, scale="log")

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

    count, parts = params.problems + bool(params.large), []
    with jax.enable_x64(True):
        for k, step in context.steps(range(count)):
            parts.append(step.cached(f"problem{k}", partial(_solve, params, k, step)))
            step.report(1.0, f"problem {k + 1} of {count} done")
    return _join(parts)


def run_many(points: Sequence[Params], context: RunContext) -> list[xr.Dataset]:
    """Follow the flows of all problems of one size at once; alone: the first, whose path is stored, and large ones."""
    import jax

    alone = [(point, k) for point in points for k in (0, *([point.problems] if point.large else []))]
    sizes: dict[tuple[int, int, float], list[tuple[Params, int]]] = {}
    for point in points:
        size = point.samples, point.coordinates, point.tolerance
        sizes.setdefault(size, []).extend((point, k) for k in range(1, point.problems))
    batches = [some[n : n + _AT_ONCE] for some in sizes.values() for n in range(0, len(some), _AT_ONCE)]
    counts = [float(len(batch)) for batch in batches]
    solved: dict[tuple[Params, int], xr.Dataset] = {}
    single, batched = context.split(float(len(alone)), sum(counts, 0.0))
    with jax.enable_x64(True):
        for n, (one, step) in enumerate(single.steps(alone)):
            solved[one] = step.cached(f"alone{n}", partial(_solve, *one, step))
        for n, (batch, step) in enumerate(batched.steps(batches, counts)):
            made = step.cached(f"batch{n}", partial(_solve_at_once, batch, step))
            solved |= {one: made.isel(problem=m).dropna("stage", how="all") for m, one in enumerate(batch)}
    return [_join([solved[point, k] for k in range(point.problems + bool(point.large))]) for point in points]


def _join(parts: list[xr.Dataset]) -> xr.Dataset:
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


class _Posed(NamedTuple):
    """A problem, the result of Algorithm 1, and the start and end time of the flow."""

    features: np.ndarray
    targets: np.ndarray
    network: Any
    learned: Any
    start: Any
    until: float


def _pose(params: Params, k: int, report: Report) -> _Posed:
    from saddlescope.flow import DiagonalInit
    from saddlescope.models import diagonal_linear_network
    from saddlescope.theory import incremental_learning

    features, targets, rng = _problem(params, k)
    p = features.shape[1]
    network = diagonal_linear_network(features, targets)
    learned = incremental_learning(network, p, report=report)
    # The last plateau settles at the rate of its curvature; stage times are late by O(1 / log(1/alpha)).
    last, unit = learned.stages[-1], -params.log10_scale * np.log(10)
    until = 1.2 * last.time + 40 / (unit * last.curvature)
    start = DiagonalInit(*rng.standard_normal((2, p)), log_scale=-unit)
    return _Posed(features, targets, network, learned, start, until)


def _solve(params: Params, k: int, context: RunContext) -> xr.Dataset:
    """Solve one problem: the checks of every stage, the end against the linear programme, and the flow's end."""
    from saddlescope.flow import gradient_flow

    theory, simulation = context.split(0.6, 0.4)
    posed = _pose(params, k, theory.note("Algorithm 1"))
    learned = posed.learned
    # Stages span orders of magnitude.
    times = np.append(0.0, np.geomspace(learned.stages[1].time / 2, posed.until, 600))
    flow = gradient_flow(
        posed.network,
        posed.start,
        until=posed.until,
        tolerance=params.tolerance,
        record=times,
        report=simulation.note("flow"),
    )
    solved = _compare(posed, flow.beta[-1], flow.losses[-1] / flow.losses[0], flow.evaluations.gradients)
    if k > 0:
        return solved
    stages = [learned.stages[n] for n in np.searchsorted([s.time for s in learned.stages], times, side="right") - 1]
    slope = [
        stage.slope + (time - stage.time) * np.where(stage.beta == 0, stage.gradient, 0)
        for stage, time in zip(stages, times, strict=True)
    ]
    return solved.assign(
        time=("moment", times),
        flow_beta=(("moment", "coordinate"), flow(times)),
        predicted_beta=(("moment", "coordinate"), np.stack([stage.beta for stage in stages])),
        predicted_slope=(("moment", "coordinate"), np.stack(slope)),
    )


def _solve_at_once(problems: list[tuple[Params, int]], context: RunContext) -> xr.Dataset:
    """Solve problems of one size without their paths, over `problem`."""
    from saddlescope.flow import gradient_flow_batched

    theory, simulation = context.split(0.7, 0.3)
    several = []
    for n, ((params, k), step) in enumerate(theory.steps(problems), start=1):
        step.report(0.0, f"problem {n} of {len(problems)}: Algorithm 1")
        several.append(_pose(params, k, lambda done, note: None))
    ends = np.unique([posed.until for posed in several])
    flows = gradient_flow_batched(
        [posed.network for posed in several],
        [posed.start for posed in several],
        until=float(ends[-1]),
        tolerance=problems[0][0].tolerance,
        record=ends,
        report=simulation.report,
    )
    places = np.searchsorted(flows.times, [posed.until for posed in several])
    each = [
        _compare(posed, flows.beta[n, at], flows.losses[n, at] / flows.losses[n, 0], flows[n].evaluations.gradients)
        for n, (posed, at) in enumerate(zip(several, places, strict=True))
    ]
    return xr.concat(each, dim="problem", join="outer")


def _compare(posed: _Posed, end: np.ndarray, left: float, gradients: int) -> xr.Dataset:
    """Compare Algorithm 1 with the exact solution, and with the flow's end and its share `left` of the loss."""
    learned, last = posed.learned, posed.learned.stages[-1]
    shortest = least_l1_interpolator(posed.features, posed.targets)
    return xr.Dataset(
        {
            **stage_checks(learned, posed.features, posed.targets),
            "converged": learned.status.value == "converged",
            "norm": np.abs(last.beta).sum(),
            "least_norm": np.abs(shortest).sum(),
            "difference": np.abs(last.beta - shortest).max(),
            "flow_norm": np.abs(end).sum(),
            "flow_loss": left,
            "flow_gradients": gradients,
        },
        coords={"stage": np.arange(1, len(learned.stages))},
    )


def stage_checks(learned: Any, features: np.ndarray, targets: np.ndarray) -> dict[str, tuple]:
    """Return Algorithm 1's errors over `stage` 1, 2, ..., with g, ξ and ν computed independently.

    - least_squares: difference of β^k from non-negative least squares on the active coordinates;
    - subgradient: distance of ξ(T_k) from the subgradients of the ℓ1 norm at β^k, and from ±1 where one enters.
    """
    from scipy.optimize import nnls

    n = len(targets)
    nu, rows = np.zeros(n), []
    before = learned.stages[0]
    for stage in learned.stages[1:]:
        rate = 2 / n * (targets - features @ before.beta)
        nu += (stage.time - before.time) * rate
        xi = features.T @ nu
        (entered,) = stage.entered
        signs = np.sign(before.beta)
        signs[entered] = np.sign(rate @ features[:, entered])
        active = np.flatnonzero(signs)
        exact = np.zeros_like(xi)
        exact[active] = signs[active] * nnls(features[:, active] * signs[active], targets)[0]
        subgradient = max(
            np.abs(xi - np.sign(exact))[exact != 0].max(initial=0.0),
            (np.abs(xi) - 1).max(initial=0.0),
            abs(xi[entered] - signs[entered]),
        )
        rows.append((stage.time, len(stage.left), np.abs(stage.beta - exact).max(), subgradient))
        before = stage
    names = "stage_time", "left", "least_squares", "subgradient"
    return {
        **{name: ("stage", values) for name, values in zip(names, np.array(rows).T, strict=True)},
        "residual": ((), np.abs(features @ before.beta - targets).max()),
        "duality_gap": ((), abs(np.abs(before.beta).sum() - nu @ targets)),
    }


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


# The bounds. Algorithm 1 is exact here, up to rounding through matrices whose condition numbers reach 1e4 to 1e6 as the
# support nears n: 1e-8 allows for that. The flow's excess at finite alpha is bounded by Woodworth et al. (2020, "Kernel
# and rich regimes in overparametrized models", Theorem 2): by 0.4 % at 1e-1024 for weights of 1.
claims = Claims()


def _largest(name: str, run: xr.Dataset) -> Estimate:
    """Return a variable's largest value over problems, and over stages where it has any."""
    if not run.converged.all():
        unsolved = int((~run.converged).sum())
        return Estimate.unresolved(f"Algorithm 1 did not converge on {unsolved} of the problems; choose another seed.")
    stages = int(run.stage_time.notnull().sum())
    worst = run[name].max([dim for dim in run[name].dims if dim != "problem"])
    return Estimate.largest(worst, f"{run.sizes['problem']} problems, {stages} stages")


claims.add(
    "least-squares",
    "For diagonal linear networks, each plateau of Algorithm 1 solves sign-constrained least squares over its active "
        "coefficients",
    quantity="largest absolute difference of a plateau's coefficient from SciPy's non-negative least squares, over "
        "stages and problems", kind="own",
    source="Equation 13 for a linear model; Berthier 2022; Pesme and Flammarion 2023; the bound allows for rounding",
    high=1e-8,
    evidence="cases", over="problems",
    why="For a linear model the end of a transition is a convex problem with fixed signs, which another solver "
        "solves without dynamics",
    doubt="The active set and its signs are taken from Algorithm 1, so that only the end of each transition is "
        "independent",
)(partial(_largest, "least_squares"))  # fmt: skip

claims.add(
    "subgradient",
    "When Algorithm 1 lets a coefficient enter, the time-integrated negative loss gradient is a subgradient of the "
        "ℓ1 norm",
    quantity="largest distance of an entry of this integral from the subgradients, and from ±1 where a coefficient "
        "enters, for diagonal linear networks",
    kind="own", source="Equations 10 to 12; Pesme and Flammarion 2023; the bound allows for rounding", high=1e-8,
    evidence="cases", over="problems",
    why="The rule of entering is that a slope reaches one; the slopes are recomputed here from residuals alone",
    doubt="Gaussian features of one size are drawn; degenerate designs, where two slopes reach one together, do not "
        "occur",
)(partial(_largest, "subgradient"))  # fmt: skip

claims.add(
    "interpolates",
    "For diagonal linear networks with fewer samples than coefficients, Algorithm 1 ends at coefficients that fit "
        "all targets",
    quantity="largest absolute residual of a regression target at the last stage of Algorithm 1, over problems",
    kind="own", source="Pesme and Flammarion 2023; the bound allows for rounding", high=1e-8,
    evidence="cases", over="problems",
    why="Without remaining residuals no coordinate has a gradient, which is what the last stage of the algorithm "
        "means",
    doubt="With twice as many coefficients as samples an interpolator always exists, which a smaller model need not "
        "have",
)(partial(_largest, "residual"))  # fmt: skip


@claims.add(
    "least-norm",
    "For underdetermined diagonal linear networks, Algorithm 1 ends at the least ℓ1 norm of all interpolating "
        "coefficients",
    quantity="largest absolute difference over problems of the final ℓ1 norm from the least one, computed by linear "
        "programming", kind="own", source="Pesme and Flammarion 2023; HiGHS with tolerances of 1e-10", high=1e-8,
    evidence="cases", over="problems",
    why="The linear programme knows nothing of stages or times, and equal norms make the end a minimiser",
    doubt="The literature proves it for this loss; the agreement tests the implementation more than the theory",
)  # fmt: skip
def _norm_difference(run: xr.Dataset) -> Estimate:
    return Estimate.largest(abs(run.norm - run.least_norm))


claims.add(
    "certificate",
    "The time-integrated residuals of Algorithm 1 are a dual solution that proves its final coefficients have least "
        "ℓ1 norm",
    quantity="largest absolute gap between the final ℓ1 norm of a diagonal linear network's coefficients and the "
        "dual objective, over problems", kind="own",
    source="ξ = Xᵀν is a subgradient, so that ν · y is a lower bound of the norm; the bound allows for rounding",
    high=1e-8,
    evidence="cases", over="problems",
    why="A dual solution of equal value proves optimality without trusting any solver of the primal problem",
    doubt="Dual feasibility is judged by another claim, subgradient, to rounding errors only",
)(partial(_largest, "duality_gap"))  # fmt: skip


@claims.add(
    "flow",
    "Gradient flow of diagonal linear networks from tiny weights ends within 1 % of the least interpolating ℓ1 norm",
    quantity="largest relative difference over problems of the flow's final ℓ1 norm of coefficients from the least "
        "one",
    kind="own", source="Woodworth et al. 2020, Theorem 2: at most 0.4 % for weights of 1 at α = 1e-1024", high=0.01,
    evidence="cases", over="problems",
    why="The flow runs at a finite initial scale, so that its excess norm tests the limit on actual dynamics",
    doubt="At α = 1e-1024 the bar of 1 % is far above the excess found, and larger scales are not judged",
)  # fmt: skip
def _flow_excess(run: xr.Dataset) -> Estimate:
    return Estimate.largest(abs(run.flow_norm / run.least_norm - 1))


@claims.add(
    "leaving",
    "In at least one diagonal linear regression problem, a learned coefficient becomes zero again during Algorithm 1",
    quantity="number of coefficients that leave the support during Algorithm 1, summed over problems", kind="own",
    source="Berthier 2022: sparsity need not rise", low=1.0,
    evidence="cases", over="problems",
    why="One coefficient that becomes zero again suffices to show that the support need not grow in every stage",
    doubt="It is an existence statement, and twenty problems of one law say little on how common leaving is elsewhere",
)  # fmt: skip
def _number_leaving(run: xr.Dataset) -> Estimate:
    problems = int((run.left.sum("stage") > 0).sum())
    remark = f"in {problems} of {run.sizes['problem']} problems"
    return Estimate(float(run.left.sum()), remark=remark, n=run.sizes["problem"])


metrics = (
    Metric(
        name="stages", quantity="stages of Algorithm 1, mean over problems",
        statistic=lambda run: float(run.stage_time.notnull().sum("stage").mean()),
    ),
    Metric(
        name="leaving", quantity="coordinates that leave the support, mean over problems",
        statistic=lambda run: float(run.left.sum("stage").mean()),
    ),
    Metric(
        name="excess", quantity="relative excess of the flow's ℓ1 norm, mean over problems",
        statistic=lambda run: float(abs(run.flow_norm / run.least_norm - 1).mean()), scale="log",
    ),
    Metric(
        name="final_loss", quantity="final loss of the flow over its initial loss, mean over problems",
        statistic=lambda run: float(run.flow_loss.mean()), scale="log",
    ),
)  # fmt: skip


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the first problem's path, and the slopes that certify it."""
    later = slice(1, None)  # a logarithmic axis has no time 0
    time, flow, predicted, slope = (
        run[name].values[later] for name in ("time", "flow_beta", "predicted_beta", "predicted_slope")
    )

    def line(y: np.ndarray, group: str, color: int, width: float, style: Any = "solid") -> Line:
        kept = corners(np.log(time), y, 1e-3 * float(np.abs(y).max() or 1))
        return Line(x=time[kept], y=y[kept], group=group, color=color, width=width, style=style)

    betas, slopes = [], []
    for i in range(predicted.shape[1]):
        enters = bool(predicted[:, i].any())
        slopes.append(line(slope[:, i], "enters at some time" if enters else "never enters", i, 1.1 if enters else 0.5))
        if enters:
            betas.append(line(flow[:, i], "gradient flow", i, 1.1))
            betas.append(line(predicted[:, i], "Algorithm 1", i, 0.8, "dashed"))
    least, excess = np.full(2, float(run.least_norm[0])), abs(run.flow_norm / run.least_norm - 1)
    norms = (
        Line(x=time, y=np.abs(predicted).sum(1), label="Algorithm 1", style="dashed"),
        Line(x=time, y=np.abs(flow).sum(1), label="gradient flow"),
        Line(x=time[[0, -1]], y=least, label="least norm of an interpolator", style="dotted"),
    )
    columns: dict[str, list[int] | list[float]] = {
        "problem": list(range(run.sizes["problem"])),
        "stages": run.stage_time.notnull().sum("stage").values.tolist(),
        "leave": run.left.sum("stage").values.astype(int).tolist(),
        "ℓ1 norm": run.norm.values.tolist(),
        "minus the least": (run.norm - run.least_norm).values.tolist(),
        "duality gap": run.duality_gap.values.tolist(),
        "excess of the flow, relative": (run.flow_norm / run.least_norm - 1).values.tolist(),
    }
    x = Axis("time of the flow / log(1/α)", scale="log")
    return [
        Figure(
            name="path",
            title="Coordinates, ℓ1 norm and slopes of a diagonal linear network over time",
            caption="The first problem. Coordinates: gradient flow solid, Algorithm 1 dashed. ℓ1 norm: of both, and "
            "the least norm of an interpolator. Slopes: ξ, the integral of the negative gradient g; a coordinate that "
            "is not 0 has slope 1 or −1, all others are between, so that ξ is a subgradient of the ℓ1 norm. In this "
            f"run the flow's final norm differs from the least one by at most {float(excess.max()):.1e}, relatively.",
            panels=(
                Panel(title="coordinates", x=x, y=Axis("β"), marks=tuple(betas)),
                Panel(title="ℓ1 norm", x=x, y=Axis("|β|₁"), marks=norms),
                Panel(title="slopes", x=x, y=Axis("ξ"), marks=tuple(slopes)),
            ),
            table=Table(columns=tuple(columns), rows=tuple(zip(*columns.values(), strict=True))),
        )
    ]


entry = Entry(
    "gradual-rank/diagonal-linear",
    "Diagonal linear networks: stages in closed form, ending at the interpolator of least ℓ1 norm", citation=CITATION,
    source="Section 4", params=Params, quick=dict(problems=3, samples=6, coordinates=12, tolerance=1e-3),
    paper=dict(large=2000), run=run, claims=claims, figures=figures, metrics=metrics, run_many=run_many,
)  # fmt: skip
