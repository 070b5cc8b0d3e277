"""Diagonal linear networks: the stages in closed form, and the minimum-l1 interpolator at their end   (Section 4)

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.plot import Axis, Figure, Line, Panel, Table, corners
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.metric import Metric

if TYPE_CHECKING:
    from saddlescope.flow import DiagonalInit
    from saddlescope.models.diagonal.linear import DiagonalLinearNetwork
    from saddlescope.theory import IncrementalLearning

_AT_ONCE = 64  # problems whose flows are followed together


@dataclass(frozen=True, kw_only=True)
class Params:
    """Random problems with more coordinates than samples; the paper has no experiment of this kind."""

    problems: int = 20  # random problems
    samples: int = 20  # samples n of each
    coordinates: int = 40  # coordinates p of each, more than samples
    large: int = 0  # coordinates of one more problem, with half as many samples and a sparse teacher; 0 for none
    seed: int = 0  # of the first problem; the others follow
    log10_scale: float = -1024.0  # log10 of the initial scale alpha of the flow
    tolerance: float = 1e-4  # relative, of stage times; see `saddlescope.flow.gradient_flow`

    def __post_init__(self) -> None:
        parameter_checks.at_least(1, self, "problems", "samples")
        parameter_checks.at_least(0, self, "seed")
        parameter_checks.between(-1e5, -0.1, self, "log10_scale")
        parameter_checks.between(1e-10, 1e-2, self, "tolerance")
        if self.coordinates <= self.samples:
            raise InputError(
                f"coordinates must be more than samples={self.samples!r}, so that there are many interpolators; "
                f"got {self.coordinates!r}."
            )
        if self.large and self.large < 40:
            raise InputError(f"large must be 0 or at least 40; got {self.large!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: a few small problems."""
        return cls(problems=3, samples=6, coordinates=12, tolerance=1e-3)

    @classmethod
    def paper(cls) -> "Params":
        """With one large problem; there is no experiment in the paper to follow."""
        return cls(large=2000)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Algorithm 1 on each problem, its checks and the flow; each problem is kept as soon as it is done."""
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
    """The flows of all problems of one size at once; each point's first, whose path is stored, and large ones alone."""
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
    """A run from its problems; those with fewer stages are filled up with NaN."""
    each = [part.drop_dims("moment", errors="ignore") for part in parts]
    together = xr.concat(each, dim="problem", join="outer", combine_attrs="drop")
    return together.assign({name: parts[0][name] for name in parts[0].data_vars if name not in each[0]})


def _problem(params: Params, k: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Gaussian features and the targets of a Gaussian teacher: dense; on p / 40 coordinates in the large problem."""
    rng = np.random.default_rng(params.seed + k)
    n, p, active = params.samples, params.coordinates, params.coordinates
    if k == params.problems:
        n, p, active = params.large // 2, params.large, params.large // 40
    features = rng.standard_normal((n, p))
    teacher = np.zeros(p)
    teacher[rng.choice(p, active, replace=False)] = rng.standard_normal(active)
    return features, features @ teacher, rng


class _Posed(NamedTuple):
    """A problem, Algorithm 1's answer, and the flow to hold against it."""

    features: np.ndarray
    targets: np.ndarray
    network: "DiagonalLinearNetwork"
    learned: "IncrementalLearning"
    start: "DiagonalInit"
    until: float


def _posed(params: Params, k: int, report: Callable[[float, str], None]) -> _Posed:

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
    return _Posed(
        features, targets, network, learned, DiagonalInit(*rng.standard_normal((2, p)), log_scale=-unit), until
    )


def _solve(params: Params, k: int, report: Callable[[float, str], None]) -> xr.Dataset:
    """One problem: the checks of every stage, the end against the linear programme, and the flow's end."""
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
    solved = _solved(posed, flow.beta[-1], flow.losses[-1] / flow.losses[0], flow.evaluations.gradients)
    return solved.assign(_path(posed.learned, times, flow(times))) if k == 0 else solved


def _solve_at_once(problems: "list[tuple[Params, int]]", report: Callable[[float, str], None]) -> xr.Dataset:
    """Problems of one size without their paths, over `problem`."""
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
        _solved(posed, flows.beta[n, at], flows.losses[n, at] / flows.losses[n, 0], flows[n].evaluations.gradients)
        for n, (posed, at) in enumerate(zip(several, places, strict=True))
    ]
    return xr.concat(each, dim="problem", join="outer")


def _solved(posed: _Posed, end: np.ndarray, left: float, gradients: int) -> xr.Dataset:
    """What is asked of a problem, from the end of its flow and the part of the loss that is left there."""
    learned, last = posed.learned, posed.learned.stages[-1]
    shortest = _least_l1(posed.features, posed.targets)
    return xr.Dataset(
        {
            **_checks(learned, posed.features, posed.targets),
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


def _path(learned: "IncrementalLearning", times: np.ndarray, flow_beta: np.ndarray) -> dict[str, tuple]:
    """The coordinates of one problem over time: of the flow, of Algorithm 1, and its slopes xi."""
    begun = np.searchsorted([stage.time for stage in learned.stages], times, side="right") - 1
    stages = [learned.stages[k] for k in begun]
    slope = [
        stage.slope + (time - stage.time) * np.where(stage.beta == 0, stage.gradient, 0)
        for stage, time in zip(stages, times, strict=True)
    ]
    return {
        "time": ("moment", times),
        "flow_beta": (("moment", "coordinate"), flow_beta),
        "predicted_beta": (("moment", "coordinate"), np.stack([stage.beta for stage in stages])),
        "predicted_slope": (("moment", "coordinate"), np.stack(slope)),
    }


def _checks(learned: "IncrementalLearning", features: np.ndarray, targets: np.ndarray) -> dict[str, tuple]:
    """Over `stage` 1, 2, ...: how far Algorithm 1 is from what defines each stage, with g, xi and nu made anew.

    - least_squares: difference of theta^k from non-negative least squares on the active coordinates;
    - subgradient: how far xi(T_k) is from the subgradients of the l1 norm at theta^k, and from +-1 where one enters.
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
    time, left, least_squares, subgradient = np.array(rows).T
    return {
        "stage_time": ("stage", time),
        "left": ("stage", left),
        "least_squares": ("stage", least_squares),
        "subgradient": ("stage", subgradient),
        "residual": ((), np.abs(features @ before.beta - targets).max()),
        "duality_gap": ((), abs(np.abs(before.beta).sum() - nu @ targets)),
    }


def _least_l1(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The beta of least l1 norm with X beta = y, by HiGHS."""
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


# The bounds. What Algorithm 1 does here is exact, up to rounding through matrices whose condition numbers reach 1e4 to
# 1e6 as the support nears n: 1e-8 leaves room for that. The flow's excess at finite alpha is bounded by Woodworth et
# al. (2020, "Kernel and rich regimes in overparametrized models", Theorem 2): by 0.4 % at 1e-1024 for weights of 1.
def _largest(name: str) -> Callable[[xr.Dataset], Estimate]:
    """The largest value over problems, and over stages where there are any."""

    def measure(run: xr.Dataset) -> Estimate:
        if not run.converged.all():
            return Estimate.unresolved(f"Algorithm 1 did not converge in {int((~run.converged).sum())} problems.")
        stages = int(run.stage_time.notnull().sum())
        return Estimate(float(run[name].max()), remark=f"{run.sizes['problem']} problems, {stages} stages")

    return measure


def _excess(norm: str) -> Callable[[xr.Dataset], Estimate]:
    def measure(run: xr.Dataset) -> Estimate:
        return Estimate(float(abs(run[norm] - run.least_norm).max()))

    return measure


def _flow_excess(run: xr.Dataset) -> Estimate:
    return Estimate(float(abs(run.flow_norm / run.least_norm - 1).max()))


def _leaving(run: xr.Dataset) -> Estimate:
    problems = int((run.left.sum("stage") > 0).sum())
    return Estimate(float(run.left.sum()), remark=f"in {problems} of {run.sizes['problem']} problems")


claims = (
    Claim(
        name="least-squares",
        says="Each theta^k minimises the loss over the active coordinates with their signs: largest difference from "
        "non-negative least squares",
        source="Berthier 2022; Pesme and Flammarion 2023; equation 13",
        statistic=_largest("least_squares"),
        high=1e-8,
    ),
    Claim(
        name="subgradient",
        says="The slope is a subgradient of the l1 norm whenever a stage begins, and +-1 where one enters: largest "
        "violation",
        source="Pesme and Flammarion 2023; equations 10 to 12",
        statistic=_largest("subgradient"),
        high=1e-8,
    ),
    Claim(
        name="interpolates",
        says="Algorithm 1 ends at an interpolator: largest residual",
        source="More coordinates than samples",
        statistic=_largest("residual"),
        high=1e-8,
    ),
    Claim(
        name="least-norm",
        says="Its l1 norm is the least, by linear programming: largest difference",
        source="Pesme and Flammarion 2023; HiGHS with tolerances of 1e-10",
        statistic=_excess("norm"),
        high=1e-8,
    ),
    Claim(
        name="certificate",
        says="The path itself proves it, by a dual solution: largest duality gap",
        source="xi = X^T nu is a subgradient, so that nu . y is a lower bound of the norm",
        statistic=_largest("duality_gap"),
        high=1e-8,
    ),
    Claim(
        name="flow",
        says="The gradient flow ends there too: largest relative excess of its l1 norm",
        source="Woodworth et al. 2020, Theorem 2: at most 0.4 % for weights of 1 at alpha = 1e-1024",
        statistic=_flow_excess,
        high=0.01,
    ),
    Claim(
        name="leaving",
        says="Coordinates leave the support on the way: how many",
        source="Berthier 2022; sparsity need not rise",
        statistic=_leaving,
        low=1.0,
    ),
)

metrics = (
    Metric(
        name="stages",
        says="stages of Algorithm 1, mean over problems",
        statistic=lambda run: float(run.stage_time.notnull().sum("stage").mean()),
    ),
    Metric(
        name="leaving",
        says="coordinates that leave the support, mean over problems",
        statistic=lambda run: float(run.left.sum("stage").mean()),
    ),
    Metric(
        name="excess",
        says="relative excess of the flow's l1 norm, mean over problems",
        statistic=lambda run: float(abs(run.flow_norm / run.least_norm - 1).mean()),
        scale="log",
    ),
    Metric(
        name="final_loss",
        says="final loss of the flow, mean over problems",
        statistic=lambda run: float(run.flow_loss.mean()),
        scale="log",
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """The first problem's path, and the slopes that certify it."""
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
    norms = (
        Line(x=time, y=np.abs(predicted).sum(1), label="Algorithm 1", style="dashed"),
        Line(x=time, y=np.abs(flow).sum(1), label="gradient flow"),
        Line(
            x=time[[0, -1]],
            y=np.full(2, float(run.least_norm[0])),
            label="least norm of an interpolator",
            style="dotted",
        ),
    )
    x = Axis("time of the flow / log(1/alpha)", scale="log")
    rows = tuple(
        (
            int(k),
            int(of.stage_time.notnull().sum()),
            int(of.left.sum()),
            float(of.norm),
            float(of.norm - of.least_norm),
            float(of.duality_gap),
            float(of.flow_norm / of.least_norm - 1),
        )
        for k, of in ((k, run.isel(problem=k)) for k in range(run.sizes["problem"]))
    )
    return [
        Figure(
            name="path",
            title="A diagonal linear network learns towards the interpolator of least l1 norm",
            caption="The first problem. Top: its coordinates over rescaled time, and their l1 norm, which ends at the "
            "least norm of an interpolator. Bottom: the slopes xi, the integral of g. A coordinate that is not 0 "
            "has slope 1 or -1, all others lie between: xi is a subgradient of the l1 norm, and certifies the end.",
            panels=(
                Panel(title="coordinates", x=x, y=Axis("beta"), marks=tuple(betas)),
                Panel(title="l1 norm", x=x, y=Axis("|beta|₁"), marks=norms),
                Panel(title="slopes", x=x, y=Axis("xi"), marks=tuple(slopes)),
            ),
            table=Table(
                columns=(
                    "problem",
                    "stages",
                    "leave",
                    "l1 norm",
                    "minus the least",
                    "duality gap",
                    "excess of the flow, relative",
                ),
                rows=rows,
            ),
        )
    ]
