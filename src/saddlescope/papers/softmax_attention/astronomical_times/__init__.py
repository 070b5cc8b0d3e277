"""Times up to 1e300: formulations that share nothing agree; naive gradients fail   (Theorem 4.1)

The theorems are about t to infinity, and directions converge like 1 / ln t: to look at them takes times at which every
rate is below 1e-300. Each parametrisation is followed twice, by ways that share the rates' logarithms and nothing else:

    diagonal  in phi = 2 int r dt, implicitly in ln ln t, and in xi_k, xi_q and w_+, w_- themselves, explicitly in ln t
    W alone   in phi = int r dt, and in W itself
    K, Q      reduced to what moves, implicitly, and in K and Q themselves

"Themselves" is automatic differentiation and DOP853. Beside them the plain ways: the gradient of the softmax loss by
automatic differentiation, and by the formula of appendix A.1, in SciPy's solvers, in ln t, to t = 1e50. What they
return as a success is held against the true direction, and against the energy balance, which needs no truth.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData

_PAIRS = ("diagonal, ξ", "diagonal, w", "W alone", "K, Q")
_KINDS = ("autodiff", "formula", "stable")
_WRONG = 1e-3  # error of a direction beyond which a run counts as wrong
_ALARM = 0.05  # energy defect beyond which a run is refused


@dataclass(frozen=True, kw_only=True)
class Params:
    """Data, times and solvers."""

    samples: int = 4  # n
    tokens: int = 5  # L
    dim: int = 8  # d, and the columns of K and Q
    instances: int = 2  # data sets on which formulations are compared
    log10_times: tuple[float, ...] = (10.0, 100.0, 300.0)  # log10 t at which they are
    scale: float = 0.1  # omega_0, and the deviation of the entries of K and Q
    naive_instances: int = 6  # data sets for the naive gradients
    naive_log10_time: float = 50.0  # log10 t that they are followed to
    solvers: tuple[str, ...] = ("RK45", "DOP853", "LSODA")  # of SciPy, at rtol 1e-6
    most: int = 8000  # evaluations that each of them may use
    seed: int = 400  # of the first data set of each kind; the others follow

    def __post_init__(self) -> None:
        parameter_checks.at_least(1, self, "samples", "instances", "naive_instances", "seed")
        parameter_checks.at_least(2, self, "tokens", "dim")
        parameter_checks.at_least(1000, self, "most")
        parameter_checks.positive(self, "scale")
        parameter_checks.between(1.0, 300.0, self, "naive_log10_time")
        times, known = self.log10_times, ("RK45", "DOP853", "LSODA", "BDF", "Radau")
        if not times or not all(1 <= a < b for a, b in zip(times, (*times[1:], 301.0), strict=True)):
            raise InputError(f"log10_times must ascend, from 1 to 300; got {times!r}.")
        if not self.solvers or any(solver not in known for solver in self.solvers):
            raise InputError(f"solvers must be among {', '.join(known)}; got {self.solvers!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: to t = 1e4, the naive gradients once."""
        return cls(
            instances=1,
            log10_times=(4.0,),
            naive_instances=1,
            solvers=("RK45",),
            most=6000,
        )

    @classmethod
    def paper(cls) -> "Params":
        """More instances; the paper has none."""
        return cls(instances=5, naive_instances=20)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Both ways of each parametrisation, and the naive gradients."""
    jobs: list[tuple[str, Callable[[], xr.Dataset]]] = [
        (f"agreement-{k}-{name}", partial(_agreement, name, params.seed + k, params))
        for k in range(params.instances)
        for name in range(len(_PAIRS))
    ]
    jobs += [(f"naive-{k}", partial(_naive, params.seed + k, params)) for k in range(params.naive_instances)]
    parts: list[xr.Dataset] = []
    for k, (name, make) in enumerate(jobs):
        context.report(k / len(jobs), name)
        parts.append(context.cached(name, make))
    context.report(1.0, "done")
    join = partial(xr.concat, data_vars="all", coords="minimal", compat="equals", join="exact")
    split = params.instances * len(_PAIRS)
    return xr.merge([join(parts[:split], "case"), join(parts[split:], "data_set")], compat="equals", join="exact")


def _agreement(pair: int, seed: int, params: Params) -> xr.Dataset:
    """One parametrisation both ways: how far the directions are apart, relative to the largest entry."""
    import jax.numpy as jnp

    from saddlescope.flow import diagonal_margin_flow, key_query_margin_flow, matrix_margin_flow, weight_flow
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.papers.softmax_attention.shared.gaussian_tokens import separable_gaussian

    data = separable_gaussian(params.samples, params.tokens, params.dim, seed=seed)
    loss, times = SelectionLoss(data.optimal_scores, data.gaps), np.array(params.log10_times) * np.log(10)
    B, D, z, d = data.features, data.differences, data.z, data.dim
    scale, tolerance, every = params.scale, 1e-10, range(len(times))
    if pair < 2:
        ours = diagonal_margin_flow(loss, B, scale, times, tolerance=tolerance)
        if pair == 0:
            twin = weight_flow(loss, lambda w: B @ (w[0] * w[1]), (np.full(d, scale * 2**0.5), np.zeros(d)), times)
            theirs = twin.weights[0] * twin.weights[1]
        else:
            start = (np.full(d, scale), np.full(d, scale))
            twin = weight_flow(loss, lambda w: B @ ((w[0] ** 2 - w[1] ** 2) / 2), start, times)
            theirs = (twin.weights[0] ** 2 - twin.weights[1] ** 2) / 2
        directions = ours.direction
    elif pair == 2:
        ours = matrix_margin_flow(loss, D, z, times, tolerance=tolerance)
        twin = weight_flow(loss, lambda W: jnp.einsum("nmd,nd->nm", D, z @ W.T), np.zeros((d, d)), times)
        directions, theirs = np.array([ours.direction(k) for k in every]), twin.weights
    else:
        start = tuple(scale * np.random.default_rng(seed).standard_normal((2, d, d)))
        ours = key_query_margin_flow(loss, D, z, start, times, tolerance=tolerance)
        twin = weight_flow(loss, lambda w: jnp.einsum("nmd,nd->nm", D, (z @ w[1]) @ w[0].T), start, times)
        factors = [ours.direction(k) for k in every]
        directions, theirs = np.array([K @ Q.T for K, Q in factors]), twin.weights[0] @ twin.weights[1].mT
    flat = directions.reshape(len(times), -1)
    other = theirs.reshape(len(times), -1) / twin.margin[:, None]
    return xr.Dataset(
        {
            "apart": ("time", np.abs(flat - other).max(axis=1) / np.abs(other).max(axis=1)),
            "evaluations": ours.evaluations,
            "twin_evaluations": twin.evaluations,
            "pair": _PAIRS[pair],
            "energy_defect": float(ours.energy_defects.max()),
        },
        coords={"log10_time": ("time", np.array(params.log10_times)), "case": f"{_PAIRS[pair]}, seed {seed}"},
    )


def _naive(seed: int, params: Params) -> xr.Dataset:
    """SciPy's solvers with naive and with stable rates, beside the true direction."""
    from saddlescope.flow import diagonal_margin_flow
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.papers.softmax_attention.astronomical_times.naive_flow import plain_run, shifted
    from saddlescope.papers.softmax_attention.shared.gaussian_tokens import separable_gaussian

    # Of scores other than 0, as data have them: a common shift changes the flow's time alone, but also the rounding.
    data = shifted(separable_gaussian(params.samples, params.tokens, params.dim, seed=seed), 1.0)
    log_time = params.naive_log10_time * np.log(10)
    loss = SelectionLoss(data.optimal_scores, data.gaps)
    true = diagonal_margin_flow(loss, data.features, params.scale, [log_time], tolerance=1e-9).direction[0]
    errors, defects, says, evaluations = np.full((4, len(_KINDS), len(params.solvers)), np.nan)
    for i, kind in enumerate(_KINDS):
        for j, solver in enumerate(params.solvers):
            made = plain_run(data, kind, solver, scale=params.scale, log_time=log_time, rtol=1e-6, most=params.most)
            errors[i, j], defects[i, j] = _direction_error(data, made.beta, true), made.defect
            says[i, j], evaluations[i, j] = made.says, made.evaluations
    axes = ("kind", "solver")
    return xr.Dataset(
        {
            "error": (axes, errors),
            "defect": (axes, defects),
            "says_success": (axes, says),
            "scipy_evaluations": (axes, evaluations),
        },
        coords={"kind": list(_KINDS), "solver": list(params.solvers), "data_set": seed},
    )


def _direction_error(data: "TokenData", beta: np.ndarray, true: np.ndarray) -> float:
    """Relative to the largest entry; 1 where no margin is positive, so that there is no direction."""
    margin = float(data.margins(beta).min()) if np.all(np.isfinite(beta)) else np.nan
    if not margin > 0:
        return 1.0 if margin <= 0 else np.nan
    return float(np.abs(beta / margin - true).max() / np.abs(true).max())


def _apart(pair: str, run: xr.Dataset) -> Estimate:
    cases = run.isel(case=[name == pair for name in run.pair.values.tolist()])
    each = ", ".join(
        f"{float(row.max()):.1e} at 1e{row.log10_time.item():g}" for row in cases.apart.transpose("time", ...)
    )
    ours, theirs = int(cases.evaluations.max()), int(cases.twin_evaluations.max())
    return Estimate(float(cases.apart.max()), remark=f"{each}; {ours} evaluations against {theirs}")


def _wrong(run: xr.Dataset) -> np.ndarray:
    """Which runs were called a success and are wrong."""
    return (run.says_success.values == 1) & (run.error.values > _WRONG)


def _silent(kind: str, run: xr.Dataset) -> Estimate:

    of_kind = run.sel(kind=kind)
    wrong = _wrong(of_kind)
    called = int(np.sum(of_kind.says_success.values == 1))
    worst = float(np.max(of_kind.error.values[wrong], initial=0.0))
    return Estimate(float(wrong.sum()), remark=f"of {wrong.size} runs, {called} called a success; worst {worst:.2g}")


def _caught(run: xr.Dataset) -> Estimate:
    wrong = _wrong(run)
    if not wrong.any():
        return Estimate.unresolved("No run of this size was called a success and wrong.")
    defects = run.defect.values[wrong]
    return Estimate(
        float((~(defects <= _ALARM)).mean()), remark=f"{len(defects)} runs; least defect {defects.min():.2g}"
    )


def _false_alarms(run: xr.Dataset) -> Estimate:
    right = (run.says_success.values == 1) & (run.error.values <= _WRONG)
    if not right.any():
        return Estimate.unresolved("No run of this size was right.")
    defects = run.defect.values[right]
    return Estimate(float((defects > _ALARM).sum()), remark=f"{len(defects)} runs; largest defect {defects.max():.2g}")


claims = (
    *(
        Claim(
            name=f"agree-{name}",
            says=f"Both ways of following {what} agree on the direction: largest relative distance",
            source="This project's bar at t = 1e10, 1e100 and 1e300",
            statistic=partial(_apart, pair),
            high=1e-9,
        )
        for name, what, pair in (
            ("xi", "diagonal weights, xi_k and xi_q against phi,", "diagonal, ξ"),
            ("w", "diagonal weights, w_+ and w_- against phi,", "diagonal, w"),
            ("matrix", "W alone, itself against phi,", "W alone"),
            ("keys-queries", "K and Q, themselves against reduced,", "K, Q"),
        )
    ),
    Claim(
        name="autodiff-is-silent",
        says="As first posed: automatic differentiation ends in successes off by more than 1e-3: number of runs",
        source="Pilots on seeds 1 and 2: 8 of 10 on the second, all off by 16 %; counted over the runs here, exact",
        statistic=partial(_silent, "autodiff"),
        low=1.0,
    ),
    Claim(
        name="formula-is-silent",
        says="Posed after that failed: the formula of appendix A.1 does: number of runs",
        source="Pilots on seeds 10 to 15: 5 of 18, off by 1 to 11 %; counted over the runs here, exact",
        statistic=partial(_silent, "formula"),
        low=1.0,
    ),
    Claim(
        name="balance-catches",
        says="The energy balance is off by more than 5 % in every run that was called a success and is wrong: part",
        source="Pilots on seeds 1 and 2, where it was off by 50 % or more; counted over the runs here, exact",
        statistic=_caught,
        low=1.0,
    ),
    Claim(
        name="no-false-alarm",
        says="And in no run that is right, at the same rtol: number of alarms",
        source="Pilots on seeds 1 and 2, where it was off by 0.12 % at most; counted over the runs here, exact",
        statistic=_false_alarms,
        high=0.0,
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """How far the ways are apart over time, and errors against energy defects."""
    apart = [
        Line(
            x=run.log10_time.values,
            y=np.maximum(run.apart.values[k], 1e-17),
            group=str(run.pair.values[k]),
            color=_PAIRS.index(str(run.pair.values[k])),
            width=1.4,
        )
        for k in range(run.sizes["case"])
    ]
    ended = run.says_success.values == 1
    points = []
    for color, kind in enumerate(run.kind.values.tolist()):
        of_kind = ended & (run.kind.values == kind)[None, :, None]
        points.append(
            Line(
                x=np.maximum(run.defect.values[of_kind], 1e-12),
                y=np.maximum(run.error.values[of_kind], 1e-12),
                label=f"{kind}, called a success",
                color=(4, 1, 5)[color],
                style="points",
            )
        )
    spent = [
        (kind, solver, int(one.says_success.sum()), int((~(one.error <= _WRONG) & (one.says_success == 1)).sum()))
        for kind in run.kind.values.tolist()
        for solver in run.solver.values.tolist()
        for one in (run.sel(kind=kind, solver=solver),)
    ]
    return [
        Figure(
            name="agreement",
            title="At t = 1e300 independent formulations agree; naive gradients fail, and some do not say so",
            caption="Left: distance between two ways of following one flow, relative to the largest entry of the "
            "direction. Right: all runs of SciPy's solvers in ln t that were called a success: error of the direction "
            "against the defect of the energy balance, which knows nothing of the true direction. The balance refuses "
            "what is right of the line across.",
            panels=(
                Panel(
                    title="two ways of following a flow",
                    x=Axis("time, log10 t"),
                    y=Axis("distance of directions", scale="log"),
                    marks=(*apart, Mark(at=1e-9, label="bar", axis="y")),
                ),
                Panel(
                    title="called a success",
                    x=Axis("energy defect", scale="log"),
                    y=Axis("error of the direction", scale="log"),
                    marks=(*points, Mark(at=_ALARM, label="refused"), Mark(at=_WRONG, label="wrong", axis="y")),
                ),
            ),
            table=Table(columns=("gradient", "solver", "called a success", "of these wrong"), rows=tuple(spent)),
        )
    ]
