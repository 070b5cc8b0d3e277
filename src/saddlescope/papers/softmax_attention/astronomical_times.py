"""Flows to t = 1e300: independent formulations agree, and naive gradients fail.

The theorems are about t → ∞, and directions converge like 1 / ln t: they are visible only at times at which every rate
is below 1e-300. Each parametrisation is followed twice, by methods that share only the logarithms of the rates:

    diagonal  in φ = 2 ∫ r dt, implicitly in ln ln t, and in ξ_k, ξ_q and w₊, w₋, explicitly in ln t
    W alone   in φ = ∫ r dt, and in W
    K, Q      reduced to the moving part, implicitly, and in K and Q

The second method of each pair uses automatic differentiation and DOP853. Naive methods are run as well: the gradient of
the softmax loss by automatic differentiation, and by the formula of appendix A.1, in SciPy's solvers, in ln t, to
t = 1e50. Their reported successes are compared with the true direction, and with the energy balance, which does not
need it.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.shared.curves import flow_curves
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData

_PAIRS = ("diagonal, ξ", "diagonal, w", "W alone", "K, Q")

_GRADIENTS = ("autodiff", "formula", "stable")

_WRONG = 1e-3  # error of a direction above which a run counts as wrong

_ALARM = 0.05  # energy defect above which the balance raises an alarm


class Params(EntryParams):
    """Data, times and solvers."""

    samples: int = param(4, "number of samples n", ge=1)
    tokens: int = param(5, "number of tokens per sample L", ge=2)
    dim: int = param(8, "dimension d, and columns of K and Q", ge=2)
    instances: int = param(2, "number of data sets on which formulations are compared", ge=1)
    log10_times: tuple[float, ...] = param(
        (10.0, 100.0, 300.0), "log10 of the times of the comparison", ge=1, lt=301, order="increasing"
    )
    scale: float = param(0.1, "initial scale ω₀, and deviation of the entries of K and Q", gt=0, scale="log")
    naive_instances: int = param(6, "number of data sets for the naive gradients", ge=1)
    naive_log10_time: float = param(50.0, "log10 of the last time of naive gradients", ge=1, le=300)
    solvers: tuple[Literal["RK45", "DOP853", "LSODA", "BDF", "Radau"], ...] = param(
        ("RK45", "DOP853", "LSODA"), "SciPy's solvers for naive gradients, at rtol 1e-6"
    )
    most: int = param(8000, "largest number of evaluations of a run of these solvers", ge=1000)
    seed: int = param(400, "seed of the first data set of each kind; the others count up", ge=1)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow each parametrisation both ways, and the naive gradients."""
    pairs = [(k, pair) for k in range(params.instances) for pair in range(len(_PAIRS))]
    formulations, naive = context.split(len(pairs), params.naive_instances)
    cases: list[xr.Dataset] = []
    data_sets: list[xr.Dataset] = []
    for (k, pair), step in formulations.steps(pairs):
        step.report(0.0, name := f"agreement-{k}-{pair}")
        cases.append(step.cached(name, partial(_compare_formulations, pair, params.seed + k, params)))
    for k, step in naive.steps(range(params.naive_instances)):
        step.report(0.0, name := f"naive-{k}")
        data_sets.append(step.cached(name, partial(_run_naive_solvers, params.seed + k, params)))
    context.report(1.0, "done")
    join = partial(xr.concat, data_vars="all", coords="minimal", compat="equals", join="exact")
    return xr.merge([join(cases, "case"), join(data_sets, "data_set")], compat="equals", join="exact")


def _compare_formulations(pair: int, seed: int, params: Params) -> xr.Dataset:
    """Follow one parametrisation both ways; record the distance of the directions, relative to the largest entry."""
    import jax.numpy as jnp

    from saddlescope.flow import diagonal_margin_flow, key_query_margin_flow, matrix_margin_flow, weight_flow
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.papers.softmax_attention.shared.separable_tokens import separable_gaussian_tokens

    data = separable_gaussian_tokens(params.samples, params.tokens, params.dim, seed=seed)
    loss, times = SelectionLoss(data.optimal_scores, data.gaps), np.array(params.log10_times) * np.log(10)
    B, D, z, d, scale = data.features, data.differences, data.z, data.dim, params.scale
    tight: dict[str, Any] = {"log_until": times[-1], "record": times, "tolerance": 1e-10}
    follow = partial(weight_flow, loss, log_until=times[-1], record=times, tolerance=1e-11)
    if pair < 2:
        ours = diagonal_margin_flow(loss, B, scale, **tight)
        if pair == 0:
            reference = follow(lambda w: B @ (w[0] * w[1]), (np.full(d, scale * 2**0.5), np.zeros(d)))
            theirs = reference.weights[0] * reference.weights[1]
        else:
            reference = follow(lambda w: B @ ((w[0] ** 2 - w[1] ** 2) / 2), (np.full(d, scale), np.full(d, scale)))
            theirs = (reference.weights[0] ** 2 - reference.weights[1] ** 2) / 2
        directions = ours.direction
    elif pair == 2:
        ours = matrix_margin_flow(loss, D, z, **tight)
        reference = follow(lambda W: jnp.einsum("nmd,nd->nm", D, z @ W.T), np.zeros((d, d)))
        directions, theirs = np.array([ours.direction(k) for k in range(len(times))]), reference.weights
    else:
        start = tuple(scale * np.random.default_rng(seed).standard_normal((2, d, d)))
        ours = key_query_margin_flow(loss, D, z, start, **tight)
        reference = follow(lambda w: jnp.einsum("nmd,nd->nm", D, (z @ w[1]) @ w[0].T), start)
        factors = [ours.direction(k) for k in range(len(times))]
        directions, theirs = np.array([K @ Q.T for K, Q in factors]), reference.weights[0] @ reference.weights[1].mT
    flat = directions.reshape(len(times), -1)
    other = theirs.reshape(len(times), -1) / reference.margin[:, None]
    return xr.Dataset(
        {
            "apart": ("time", np.abs(flat - other).max(axis=1) / np.abs(other).max(axis=1)),
            "evaluations": ours.evaluations,
            "twin_evaluations": reference.evaluations,
            "pair": _PAIRS[pair],
            "energy_defect": float(ours.energy_defects.max()),
        },
        coords={"log10_time": ("time", np.array(params.log10_times)), "case": f"{_PAIRS[pair]}, seed {seed}"},
    )


def _run_naive_solvers(seed: int, params: Params) -> xr.Dataset:
    """Run SciPy's solvers with naive and with stable rates, and compare them with the true direction."""
    from saddlescope.flow import diagonal_margin_flow
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.papers.softmax_attention.shared.naive_flow import run_naive_solver, shift_scores
    from saddlescope.papers.softmax_attention.shared.separable_tokens import separable_gaussian_tokens

    # Scores other than 0, as in real data: a common shift changes only the time of the flow, but also the rounding.
    data = shift_scores(separable_gaussian_tokens(params.samples, params.tokens, params.dim, seed=seed), 1.0)
    log_time = params.naive_log10_time * np.log(10)
    loss = SelectionLoss(data.optimal_scores, data.gaps)
    true = diagonal_margin_flow(
        loss, data.features, params.scale, log_until=log_time, record=[log_time], tolerance=1e-9
    ).direction[0]
    errors, defects, says, evaluations = np.full((4, len(_GRADIENTS), len(params.solvers)), np.nan)
    for i, kind in enumerate(_GRADIENTS):
        for j, solver in enumerate(params.solvers):
            result = run_naive_solver(
                data, kind, solver, scale=params.scale, log_time=log_time, tolerance=1e-6, max_evaluations=params.most
            )
            errors[i, j], defects[i, j] = _direction_error(data, result.beta, true), result.defect
            says[i, j], evaluations[i, j] = result.reported_success, result.evaluations
    axes = ("kind", "solver")
    return xr.Dataset(
        {
            "error": (axes, errors),
            "defect": (axes, defects),
            "says_success": (axes, says),
            "scipy_evaluations": (axes, evaluations),
        },
        coords={"kind": list(_GRADIENTS), "solver": list(params.solvers), "data_set": seed},
    )


def _direction_error(data: "TokenData", beta: np.ndarray, true: np.ndarray) -> float:
    """Return the error relative to the largest entry; 1 if the smallest margin is not positive (no direction)."""
    margin = float(data.margins(beta).min()) if np.all(np.isfinite(beta)) else np.nan
    if not margin > 0:
        return 1.0 if margin <= 0 else np.nan
    return float(np.abs(beta / margin - true).max() / np.abs(true).max())


def _distance_of_pair(pair: str, run: xr.Dataset) -> Estimate:
    cases = run.isel(case=[name == pair for name in run.pair.values.tolist()])
    each = ", ".join(
        f"{float(row.max()):.1e} at 1e{row.log10_time.item():g}" for row in cases.apart.transpose("time", ...)
    )
    ours, theirs = int(cases.evaluations.max()), int(cases.twin_evaluations.max())
    return Estimate.largest(cases.apart.max("time"), f"{each}; {ours} evaluations against {theirs}")


def _is_wrong(run: xr.Dataset) -> np.ndarray:
    """Return True for each run that was reported as a success and is wrong."""
    return (run.says_success.values == 1) & (run.error.values > _WRONG)


def _silent_failures(kind: str, run: xr.Dataset) -> Estimate:
    of_kind = run.sel(kind=kind)
    wrong = _is_wrong(of_kind)
    called = int(np.sum(of_kind.says_success.values == 1))
    worst = float(np.max(of_kind.error.values[wrong], initial=0.0))
    remark = f"of {wrong.size} runs, {called} called a success; worst {worst:.2g}"
    return Estimate(float(wrong.sum()), remark=remark, n=len(wrong))


claims = Claims()

for _name, _flow, _methods, _direction, _pair in (
    ("xi", "diagonal attention weights", "in rate integrals or in their key-query factors", "β", _PAIRS[0]),
    ("w", "diagonal attention weights", "in rate integrals or as a difference of squares", "β", _PAIRS[1]),
    ("matrix", "the attention matrix W", "in rate integrals or in its entries", "W", _PAIRS[2]),
    ("keys-queries", "key and query weights", "in reduced or in full form", "K Qᵀ", _PAIRS[3]),
):
    claims.add(
        f"agree-{_name}", f"Solving the gradient flow of {_flow} {_methods} gives one direction",
        quantity=f"largest entry of the difference of both directions of {_direction}, relative to the largest "
            "entry, over recorded times and data sets",
        kind="own", source="This project's bar at t = 1e10, 1e100 and 1e300", high=1e-9,
        evidence="identity", over="data sets",
        why=f"Solving {_methods} shares only the logarithms of the rates, so one direction of {_direction} is unlikely "
            "by error",
        doubt=f"Both ways, {_methods}, share the logarithms of the rates, and an error there would show in neither",
    )(partial(_distance_of_pair, _pair))  # fmt: skip

# The quick size has one naive run of each gradient, too few to count failures and alarms.
for _kind, _gradients, _source in (
    (
        "autodiff",
        "automatic differentiation",
        "This project's question; trial runs on seeds 1 and 2 had 8 of 10 on the second, all wrong by 16 %",
    ),
    (
        "formula",
        "the analytic gradient",
        "This project's question, posed after the one on automatic differentiation was refuted; trial runs on seeds 10 "
        "to 15 had 5 of 18, wrong by 1 to 11 %",
    ),
):
    claims.add(
        f"{_kind}-is-silent",
        f"Some SciPy solutions of the attention flow with {_gradients} report success with directions wrong by over "
            "0.1 %",
        quantity="number of SciPy runs reported as successes whose diagonal attention weights have a relative "
            "direction error above 1e-3", kind="own",
        source=f"{_source}; exact count over the runs of SciPy's solvers", low=1.0, sizes=("default", "paper"),
        evidence="cases", over="data sets",
        why=f"A solver that reports success with {_gradients} and is wrong gives its user no sign of the error",
        doubt=f"SciPy's tolerance, time limit and shift of scores are ours; {_gradients} fails otherwise elsewhere",
    )(partial(_silent_failures, _kind))  # fmt: skip


@claims.add(
    "balance-catches",
    "Energy-balance defects above 5 % expose every SciPy run of the attention flow that reports success with a "
        "wrong direction",
    quantity="share of SciPy runs with reported success and relative direction error above 1e-3 whose loss decrease "
        "misses the energy balance by over 5 %",
    kind="own", source="Trial runs on seeds 1 and 2, where it was off by 50 % or more; exact count over the runs",
    low=1.0, sizes=("default", "paper"),
    evidence="cases", over="data sets with such runs",
    why="A check that needs no reference must raise an alarm for every wrong run to be of use",
    doubt="All wrong runs are of one gradient, and solvers on the same data fail alike",
)  # fmt: skip
def _caught_share(run: xr.Dataset) -> Estimate:
    wrong = _is_wrong(run)
    if not wrong.any():
        return Estimate.unresolved("No run reported a success and was wrong; use more naive_instances.")
    defects = run.defect.values[wrong]
    remark = f"{len(defects)} runs; least defect {defects.min():.2g}"
    return Estimate(float((~(defects <= _ALARM)).mean()), remark=remark, n=int(wrong.any((1, 2)).sum()))


@claims.add(
    "no-false-alarm",
    "No SciPy run of the attention flow that succeeds with a correct direction has an energy-balance defect above 5 "
        "%",
    quantity="number of SciPy runs with reported success and relative direction error up to 1e-3 whose loss "
        "decrease misses the energy balance by over 5 %",
    kind="own", source="Trial runs on seeds 1 and 2, where it was off by 0.12 % at most; exact count over the runs",
    high=0.0, sizes=("default", "paper"),
    evidence="cases", over="data sets with such runs",
    why="An alarm on a correct run would make the check useless in practice",
    doubt="Few correct runs of one kind of rates, at one tolerance",
)  # fmt: skip
def _false_alarms(run: xr.Dataset) -> Estimate:
    right = (run.says_success.values == 1) & (run.error.values <= _WRONG)
    if not right.any():
        return Estimate.unresolved("No run reported a success and was correct; use a larger `most`.")
    defects = run.defect.values[right]
    remark = f"{len(defects)} runs; largest defect {defects.max():.2g}"
    return Estimate(float((defects > _ALARM).sum()), remark=remark, n=int(right.any((1, 2)).sum()))


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the distance of both ways over time, and errors against energy defects."""
    apart, points, rows = [], [], []
    for name, values in zip(run.pair.values.tolist(), np.maximum(run.apart.values, 1e-17), strict=True):
        apart += flow_curves(run.log10_time.values, values, name, _PAIRS.index(name), width=1.4, opacity=1.0)
    wrong, ended = _is_wrong(run), run.says_success.values == 1
    for color, kind in zip((4, 1, 5), run.kind.values.tolist(), strict=True):
        of_kind = ended & (run.kind.values == kind)[None, :, None]
        x, y = (np.maximum(values[of_kind], 1e-12) for values in (run.defect.values, run.error.values))
        points.append(Line(x=x, y=y, label=f"{kind}, reported success", color=color, style="points"))
    for j, kind in enumerate(run.kind.values.tolist()):
        for k, solver in enumerate(run.solver.values.tolist()):
            rows.append((kind, solver, int(ended[:, j, k].sum()), int(wrong[:, j, k].sum())))
    return [
        Figure(
            name="agreement",
            title="Two formulations of each flow, and naive gradients in SciPy's solvers",
            caption="Left: distance between two formulations of one flow against time, relative to the largest entry "
            "of the direction. Right: all runs of SciPy's solvers in ln t that report a success: error of the "
            "direction against the defect of the energy balance, which does not need the true direction. The balance "
            "refuses runs right of the vertical line; runs above the horizontal line are wrong.",
            panels=(
                Panel(
                    title="two formulations of each flow",
                    x=Axis("time, log10 t"),
                    y=Axis("distance of directions", scale="log"),
                    marks=(*apart, Mark(at=1e-9, label="bar", axis="y")),
                ),
                Panel(
                    title="runs that report a success",
                    x=Axis("energy defect", scale="log"),
                    y=Axis("error of the direction", scale="log"),
                    marks=(*points, Mark(at=_ALARM, label="refused"), Mark(at=_WRONG, label="wrong", axis="y")),
                ),
            ),
            table=Table(columns=("gradient", "solver", "reported successes", "of these wrong"), rows=tuple(rows)),
        )
    ]


entry = Entry(
    "softmax-attention/astronomical-times",
    "Flows to t = 1e300: independent formulations agree, and naive gradients fail", citation=CITATION,
    source="Theorem 4.1", params=Params,
    quick=dict(instances=1, log10_times=(4.0,), naive_instances=1, solvers=("RK45",), most=6000),
    paper=dict(instances=5, naive_instances=20), run=run, claims=claims, figures=figures,
)  # fmt: skip
