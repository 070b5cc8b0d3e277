"""KKT residuals of the direction of the diagonal flow, with two choices of multipliers.

The proof of Theorem 4.1 shows that the direction β / μ is an approximate KKT point of the ℓ1 problem (Definition A.3),
with multipliers φ / ln μ. Its ε, ε' and δ are measured here along flows, for these multipliers and for dφ / d ln μ: on
conditioned instances, whose directions converge soon, and on raw Gaussian data, whose directions do not.

    (C1)  ε, the distance of Σ_k λ_k B_k from the subdifferential of |.|₁
    (C2)  holds at every time, since β / μ has margins of 1 and more by definition
    (C3)  δ, the largest λ_k (B_k.β / μ - 1)
    ε'    the length of β / μ off the support of the solution

The project's laws for them follow from u_k = ln t + ln μ + ln s_k + o(1), s_k = C_k / λ_k. With the least s_k called s:

    δ μ of dφ / d ln μ  tends to max_k λ_k ln(s_k / s)
    β - μ β*            tends to β~ with B_k.β~ = ln(s_k / s) on active k
    ε μ of dφ / d ln μ  tends to the length of β~_j / β*_j over the solution's support, the constant of an instance
    ε ln μ of φ / ln μ  tends to the length of ln(2 |β*_j| / ω₀²): ε falls like 1 / ln ln t

Theorem A.2 (of Dutta et al., 2013): if MFCQ holds at a limit of (ε, ε', δ)-KKT points with ε, ε', δ → 0, it is a KKT
point. Here MFCQ holds at every solution, by v = -β*. It is needed in general: for min x over x² <= 0, 0 is an
(ε, ε', 0)-KKT point for all ε and ε', by the multiplier 1 / (2 ε'), but not a KKT point. The theorem is tested on
points that no flow made, solutions of the ℓ1 problem with a random term -e.β in the objective and random excess
margins. Since the problem is convex, its residuals bound the norm of any point: |β|₁ - |β*|₁ <= ε |β - β*| +
Σ_k λ_k (B_k.β - 1).
"""

import math
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.shared.curves import flow_curves
from saddlescope.plot import Axis, Figure, Line, Panel
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData

_KINDS = ("conditioned", "Gaussian")

_MULTIPLIERS = ("paper's", "incremental")  # φ / ln μ and dφ / d ln μ

_T10, _T100 = 10 * math.log(10), 100 * math.log(10)  # ln t at t = 1e10 and 1e100

_MARKS = (_T10, _T100, 1e3, 1e4, 1e5, 1e6)

_PERTURBATIONS = (0.5, 0.1, 1e-2, 1e-3, 1e-4)  # |e| of the objective, and largest excess margin

_POINTS = 3  # random approximate KKT points of each perturbation


class Params(EntryParams):
    """Instances of both kinds, each followed from every scale."""

    samples: int = param(4, "number of samples n", ge=2)
    tokens: int = param(5, "number of tokens per sample L", ge=2)
    dim: int = param(8, "dimension d", ge=4)
    instances: int = param(20, "number of instances of each kind", ge=2)
    scales: tuple[float, ...] = param((0.3, 0.03), "initial scales ω₀ of the weights", gt=0, scale="log")
    times: int = param(41, "number of recorded times from ln t = 10 to 1e6", ge=2)
    seed: int = param(600, "first seed of the instances", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow all flows, and compute the residuals at the recorded times."""
    parts = [step.cached(kind, partial(_follow_kind, kind, params, step)) for kind, step in context.steps(_KINDS)]
    context.report(1.0, "done")
    return xr.concat(parts, "kind")


def _follow_kind(kind: str, params: Params, context: RunContext) -> xr.Dataset:
    log_times = np.union1d(np.geomspace(10.0, 1e6, params.times), _MARKS)
    histories = []
    for (k, data), step in context.steps(enumerate(_draw_instances(kind, params))):
        step.report(0.0, f"{kind}, instance {k + 1}")
        of = xr.concat([_follow_instance(data, scale, log_times) for scale in params.scales], "scale")
        histories.append(of.merge(_draw_approximate_points(data, params.seed + k)))
    return xr.concat(histories, "instance").assign_coords(kind=kind)


def _draw_instances(kind: str, params: Params) -> "list[TokenData]":
    """Return the first instances that diagonal weights separate; conditioned ones all are."""
    from saddlescope.models.tokens.generators import conditioned_tokens, gaussian_tokens
    from saddlescope.models.tokens.separability import separability

    draw = conditioned_tokens if kind == _KINDS[0] else gaussian_tokens
    found, seed = [], params.seed
    while len(found) < params.instances:
        data = draw(params.samples, params.tokens, params.dim, seed=seed)
        if separability(data, diagonal=True).separable:
            found.append(data)
        elif seed > params.seed + 20 * params.instances:
            raise InputError(f"dim must be large enough for separable data; got {params.dim!r}.")
        seed += 1
    return found


def _follow_instance(data: "TokenData", scale: float, log_times: np.ndarray) -> xr.Dataset:
    """Compute the residuals of one flow, and their limits."""
    from saddlescope.flow import diagonal_margin_flow
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.theory.attention.asymptotics import product_law
    from saddlescope.theory.attention.kkt_residuals import averaged_multipliers, incremental_multipliers, kkt_residuals
    from saddlescope.theory.attention.svm import l1_svm

    B, solution = data.features, l1_svm(data)
    loss = SelectionLoss(data.optimal_scores, data.gaps)
    # Rates are exponentials of margins of order μ, and ε μ reads them to 1 / μ: its error is about tolerance × μ²,
    # 0.01 at ln t = 1e4.
    flow = diagonal_margin_flow(loss, B, scale, log_until=log_times[-1], record=log_times, tolerance=1e-10)
    residuals = np.full((len(_MULTIPLIERS), 3, len(log_times)), np.nan)
    norm_share = np.full(len(log_times), np.nan)
    for k, (beta, mu) in enumerate(zip(flow.beta, flow.margin, strict=True)):
        if mu <= 1:  # the paper's multiplier needs ln mu > 0
            continue
        offered = [averaged_multipliers(flow.phi[k], float(np.log(mu)))]
        rates = np.exp(flow.log_rates[k] - flow.log_rates[k].max())
        with suppress(InputError):  # the smallest margin may fall for a while
            offered.append(incremental_multipliers(B, beta, rates, offsets=scale**2))
        for row, multipliers in zip(residuals, offered, strict=False):
            found = kkt_residuals(B, beta, multipliers, solution.support)
            row[:, k] = found.stationarity, found.slackness, found.distance
        norm_share[k] = norm_over_bound(B, beta / mu, offered[-1], solution.beta)
    active, on = solution.multipliers > 0, solution.support
    offsets = product_law(data, solution.multipliers).offsets[active]
    behind = offsets - offsets.min()
    correction = np.linalg.lstsq(B[active][:, on], behind, rcond=None)[0]
    return xr.Dataset(
        {
            "stationarity": (("multiplier", "log_time"), residuals[:, 0]),
            "slackness": (("multiplier", "log_time"), residuals[:, 1]),
            "distance": ("log_time", residuals[0, 2]),
            "norm_share": ("log_time", norm_share),
            "margin": ("log_time", flow.margin),
            "paper_constant": np.linalg.norm(np.log(2 * np.abs(solution.beta[on]) / scale**2)),
            "incremental_constant": np.linalg.norm(correction / solution.beta[on]),
            "slackness_constant": np.max(solution.multipliers[active] * behind),
        },
        coords={"multiplier": list(_MULTIPLIERS), "log_time": log_times, "scale": scale},
    )


def _draw_approximate_points(data: "TokenData", seed: int) -> xr.Dataset:
    """Draw approximate KKT points of the l1 problem without a flow, and decide MFCQ at its solution."""
    from scipy.optimize import linprog

    from saddlescope.theory.attention.svm import l1_svm

    rng, d = np.random.default_rng((seed, 3)), data.dim
    B, solution = data.features.reshape(-1, d), l1_svm(data).beta
    norm = np.abs(solution).sum()
    excess, share = np.zeros((2, len(_PERTURBATIONS), _POINTS))
    for k, point in np.ndindex(excess.shape):
        e = rng.standard_normal(d)
        e *= _PERTURBATIONS[k] / np.linalg.norm(e)
        margins = 1 + _PERTURBATIONS[k] * rng.random(len(B))
        found = linprog(np.concatenate([1 - e, 1 + e]), A_ub=np.concatenate([-B, B], axis=1), b_ub=-margins)
        beta, multipliers = found.x[:d] - found.x[d:], -found.ineqlin.marginals
        excess[k, point] = np.abs(beta).sum() / norm - 1
        share[k, point] = norm_over_bound(B, beta, multipliers, solution)
    active = B[B @ solution < 1 + 1e-7]
    rises = np.concatenate([active, np.ones((len(active), 1))], axis=1)  # B_k.v + t <= 0: <-B_k, v> is t at least
    steepest = linprog(np.append(np.zeros(d), -1.0), A_ub=rises, b_ub=np.zeros(len(active)), bounds=(-1, 1))
    axes = ("perturbation", "point")
    return xr.Dataset(
        {"point_excess": (axes, excess), "point_norm_share": (axes, share), "mfcq": steepest.x[-1]},
        coords={"perturbation": list(_PERTURBATIONS)},
    )


def norm_over_bound(features: np.ndarray, beta: np.ndarray, multipliers: np.ndarray, solution: np.ndarray) -> float:
    """Return the excess of |beta|_1 over that of the solution, as a share of what its KKT residuals allow.

    Args:
        features: B_k, (..., d).
        beta: a point with margins B_k.beta of at least 1, (d,).
        multipliers: lambda_k >= 0, (...).
        solution: of the l1 problem, (d,).
    """
    pull = np.tensordot(multipliers, features, multipliers.ndim)
    subgradient = np.where(beta == 0, np.clip(pull, -1, 1), np.sign(beta))
    allowed = np.linalg.norm(pull - subgradient) * np.linalg.norm(beta - solution)
    allowed += np.sum(multipliers * (features @ beta - 1))
    rounding = 1e-12 * np.abs(solution).sum()
    return float((np.abs(beta).sum() - np.abs(solution).sum()) / (allowed + rounding))


def _stationarity_at(run: xr.Dataset, kind: str, log_time: float, multiplier: str) -> np.ndarray:
    """Return ε of all flows of a kind at one time."""
    chosen = run.stationarity.sel(kind=kind, multiplier=multiplier).sel(log_time=log_time, method="nearest")
    return chosen.values.ravel()


def _largest_stationarity(log_time: float, well: bool, run: xr.Dataset) -> Estimate:
    """Return the incremental multiplier's largest ε, of all conditioned instances or of well-conditioned ones."""
    values = _stationarity_at(run, _KINDS[0], log_time, _MULTIPLIERS[1])
    constants = run.incremental_constant.sel(kind=_KINDS[0]).values.ravel()
    chosen = values[constants <= 1] if well else values
    if not len(chosen):
        return Estimate.unresolved("No instance of the run has a constant of at most 1; use more instances.")
    remark = f"{len(chosen)} of {len(values)} flows; median {np.median(chosen):.2g}"
    remark = f"{remark}; the largest constant is {float(constants.max()):.3g}"
    return Estimate(float(chosen.max()), remark=remark, n=min(len(chosen), run.sizes["instance"]))


def _since(run: xr.Dataset, since: float, kind: str, multiplier: str) -> xr.Dataset:
    """Return the flows of a kind with one multiplier, from a time on."""
    of = run.sel(kind=kind, multiplier=multiplier)
    return of.isel(log_time=of.log_time.values > 0.999 * since)


def _largest_by_instance(values: xr.DataArray, remark: str = "") -> Estimate:
    """Return the largest of the worst values of each instance."""
    return Estimate.largest(values.max([dim for dim in values.dims if dim != "instance"], skipna=False), remark)


def _paper_law_error(kind: str, since: float, run: xr.Dataset) -> Estimate:
    """Return the largest relative error of the law of the paper's multiplier, from a time on."""
    of = _since(run, since, kind, _MULTIPLIERS[0])
    return _largest_by_instance(abs(of.stationarity * np.log(of.margin) / of.paper_constant - 1))


def _slackness_law_error(since: float, run: xr.Dataset) -> Estimate:
    """Return the largest relative error of the law of δ, from a time on."""
    of = _since(run, since, _KINDS[0], _MULTIPLIERS[1])
    return _largest_by_instance(abs(of.slackness * of.margin / of.slackness_constant - 1))


_BAR = "Theorem 4.1, which has no rate; the bound is this project's bar"

# The bounds were written down before the run. Trial runs: instances of seeds 1000 to 1007, from ω₀ = 0.3 and 0.03.
claims = Claims()

for _name, _kind, _time, _since_time, _bound, _source in (
    (
        "paper-law",
        "conditioned",
        "t = 1e100 on, on well-conditioned",
        _T100,
        0.01,
        "(C1) with equation 37 of appendix A.5, which has no rate; this project's law, 1 %",
    ),
    (
        "paper-law-raw",
        "Gaussian",
        "t = 1e100 on, on Gaussian",
        _T100,
        0.3,
        "(C1) with equation 37; 30 %, from the trial run (11 %)",
    ),
    (
        "paper-law-late",
        "conditioned",
        "ln t = 1e5 on, on well-conditioned",
        1e5,
        0.01,
        "This project's law, posed again after paper-law was refuted for small entries of the solution; 1 %",
    ),
):
    claims.add(
        _name,
        f"From {_time} data, time-averaged KKT multipliers of diagonal attention yield the predicted stationarity "
            "residual",
        quantity="largest relative deviation of residual times log smallest margin from its predicted constant, over "
            "these times and flows", kind="own", source=_source, high=_bound,
        evidence="cases", over="data sets",
        why=f"If the law holds from {_time} data, residual times ln μ stays at the constant that the solution fixes",
        doubt=f"From {_time} data ln μ grows so slowly that few of its values are seen; the law and its bar are ours",
    )(partial(_paper_law_error, _kind, _since_time))  # fmt: skip


@claims.add(
    "paper-useless",
    "On well-conditioned data, time-averaged KKT multipliers of diagonal attention yield a stationarity residual "
        "above 0.1 at ln t = 1e6",
    quantity="smallest distance of the multiplier-weighted feature sum from the ℓ1 subdifferential at ln t = 1e6, "
        "over flows", kind="own", source="This project's: by its law ε falls like 1 / ln ln t", low=0.1,
    evidence="cases", over="data sets",
    why="A residual above 0.1 at a time beyond any computation means that the proof's multipliers certify nothing in "
        "practice",
    doubt="The proof needs the limit alone, so this is about practice and not about an error",
)  # fmt: skip
def _smallest_stationarity(run: xr.Dataset) -> Estimate:
    values = _stationarity_at(run, _KINDS[0], 1e6, _MULTIPLIERS[0])
    remark = f"{len(values)} flows, up to {float(values.max()):.2g}"
    return Estimate(float(values.min()), remark=remark, n=run.sizes["instance"])


def _incremental_claim(name: str, well: bool, time: str, log_time: float, bound: float, source: str) -> None:
    data, among = (
        (
            "With residual-margin products predicted up to 1, instantaneous KKT multipliers keep stationarity "
            "residuals",
            " where residual times smallest margin has a predicted limit up to 1",
        )
        if well
        else (
            "On well-conditioned data, instantaneous KKT multipliers of diagonal attention keep the stationarity "
            "residual",
            "",
        )
    )
    claims.add(
        name, f"{data} within {bound:g} at {time}",
        quantity=f"largest KKT stationarity residual of diagonal attention at {time}, over well-conditioned "
            f"data{among}", kind="own", source=source, high=bound,
        evidence="cases", over="data sets",
        why=f"Where the constant is at most 1, a residual of constant over μ is far below {bound:g} at {time}"
            if well else f"A residual of at most {bound:g} at {time} would make the multipliers a usable certificate",
        doubt=f"Data are chosen by the constant of the law, which leaves the hard ones out of the bar at {time}"
            if well else f"One data set with a small entry of its solution decides, and the bar at {time} is ours",
    )(partial(_largest_stationarity, log_time, well))  # fmt: skip


_incremental_claim("incremental-1e100", False, "t = 1e100", _T100, 1e-2, _BAR)
_incremental_claim("incremental-1e5", False, "ln t = 1e5", 1e5, 1e-4, _BAR)


@claims.add(
    "incremental-law",
    "On well-conditioned data, instantaneous KKT multipliers of diagonal attention yield the predicted stationarity "
        "residual at ln t = 1e4",
    quantity="largest relative deviation of residual times smallest margin from its predicted constant at ln t = "
        "1e4, over flows", kind="own", source="This project's law; 5 %, from the trial run (1.6 %)", high=0.05,
    evidence="cases", over="data sets",
    why="Residual times smallest margin tends to a constant that solution and score gaps fix",
    doubt="Solver errors at a single time are a good part of the five percent",
)  # fmt: skip
def _incremental_law_error(run: xr.Dataset) -> Estimate:
    of = run.sel(kind=_KINDS[0], multiplier=_MULTIPLIERS[1]).sel(log_time=1e4, method="nearest")
    return _largest_by_instance(abs(of.stationarity * of.margin / of.incremental_constant - 1))


_AGAIN = "was refuted where an entry of the solution is small"

_incremental_claim("well-1e100", True, "t = 1e100", _T100, 1e-2, f"{_BAR}; posed after incremental-1e100 {_AGAIN}")
_incremental_claim("well-1e5", True, "ln t = 1e5", 1e5, 1e-4, f"{_BAR}; posed after incremental-1e5 {_AGAIN}")

for _name, _time, _source in (
    ("slackness", 1e3, "(C3), with this project's law; 1 %"),
    ("slackness-late", 1e5, f"(C3), with this project's law, posed again after slackness {_AGAIN}; 1 %"),
):
    _when = f"ln t = 1e{math.log10(_time):g}"
    claims.add(
        _name, f"On well-conditioned data, instantaneous KKT multipliers of diagonal attention yield the predicted "
            f"complementary slackness from {_when} on",
        quantity="largest relative deviation of slackness (multiplier × excess margin) times smallest margin from "
            "its predicted constant, over these times and flows", kind="own", source=_source, high=0.01,
        evidence="cases", over="data sets",
        why=f"From {_when} on, the slack of active margins times μ tends to a constant that the solution fixes",
        doubt=f"The law is this project's; one small entry of a solution delays it past {_when}",
    )(partial(_slackness_law_error, _time))  # fmt: skip


@claims.add(
    "distance",
    "On well-conditioned data, the diagonal attention weights' direction nearly vanishes off the ℓ1 max-margin "
        "support by ln t = 1e3",
    quantity="largest norm of the direction (weights over smallest margin) off the solution's support at ln t = 1e3, "
        "over flows", kind="own", source="Theorem 4.1; the bound is this project's bar on directions", high=1e-3,
    evidence="cases", over="data sets",
    why="Theorem 4.1 lets all weights off the support vanish relative to the margin, and ε' is their length",
    doubt="Conditioned data are selected for early convergence, and the bar is ours",
)  # fmt: skip
def _largest_distance(run: xr.Dataset) -> Estimate:
    return _largest_by_instance(run.distance.sel(kind=_KINDS[0]).sel(log_time=1e3, method="nearest"))


@claims.add(
    "raw-certified",
    "At t = 1e100, instantaneous multipliers of diagonal attention reach stationarity residuals within 0.01 on "
    "under half of Gaussian data",
    quantity="share of Gaussian data sets with a KKT stationarity residual of at most 0.01 at t = 1e100, from the "
    "first initial scale",
    kind="own",
    source="This project's, from the trial run (0 of 8)",
    high=0.5,
    sizes=("default", "paper"),  # the quick size has two instances
    evidence="sample", over="Gaussian data sets",
    why="If fewer than half reach a residual of a percent by t = 1e100, the multipliers do not certify ordinary data "
        "in time",
    doubt="The share is for one small size, one scale and a threshold of ours",
)  # fmt: skip
def _certified_share(run: xr.Dataset) -> Estimate:
    values = _stationarity_at(run.isel(scale=[0]), _KINDS[1], _T100, _MULTIPLIERS[1])
    return Estimate.share((values <= 1e-2).sum(), len(values))


@claims.add(
    "raw-falls",
    "On Gaussian data, the KKT stationarity residual with instantaneous multipliers falls between t = 1e10 and ln t "
        "= 1e6",
    quantity="number of diagonal attention flows with a KKT stationarity residual no smaller at ln t = 1e6 than at t "
        "= 1e10", kind="own", source="Theorem 4.1, if the limit exists; exact count", high=0.0,
    evidence="cases", over="Gaussian data sets",
    why="Multipliers of a direction that converges become stationary, so their residual should be lower at the end",
    doubt="The residual of an instantaneous multiplier need not fall between two times, and one flow decides",
)  # fmt: skip
def _gaussian_exceptions(run: xr.Dataset) -> Estimate:
    early, late = (_stationarity_at(run, _KINDS[1], log_time, _MULTIPLIERS[1]) for log_time in (_T10, 1e6))
    remark = f"of {len(early)} flows; medians {np.nanmedian(early):.2g} and {np.nanmedian(late):.2g}"
    return Estimate(float(np.sum(~(late < early))), remark=remark, n=run.sizes["instance"])


@claims.add(
    "mfcq",
    "The Mangasarian–Fromovitz constraint qualification holds at the ℓ1 max-margin solution of every drawn data set",
    quantity="number of solutions at which no direction raises all active constraints, over conditioned and Gaussian "
        "data", kind="printed", source="Appendix A.5, below Theorem A.2; exact, as -β* is such a direction", high=0.0,
    evidence="cases", over="data sets",
    why="A linear programme over all directions of a box decides Definition A.2 without using that -β* is one",
    doubt="A proof of one line covers all data, so that this can only test definition and code",
)  # fmt: skip
def _solutions_without_direction(run: xr.Dataset) -> Estimate:
    slopes = run.mfcq.values.ravel()
    return Estimate.number(~(slopes > 1e-9), f"of {slopes.size}; the least rise per unit is {slopes.min():.2g}")


@claims.add(
    "theorem-a-2",
    "Random approximate KKT points of the ℓ1 problem reach its least norm as their residuals vanish",
    quantity="largest relative excess of the ℓ1 norm of such points over the least one, at perturbations of 1e-4, over "
        "data sets", kind="reading",
    source="Theorem A.2, which has no rate; by convexity and Σ λ = |β*|₁ the excess is at most twice the perturbation",
    high=2e-4, evidence="cases", over="data sets", needs=("mfcq",),
    why="A KKT point of this convex problem has the least norm, so points with vanishing residuals must lose their "
        "excess",
    doubt="Points are drawn by perturbed linear programmes, which may miss the worst approximate KKT points",
)  # fmt: skip
def _excess_of_points(run: xr.Dataset) -> Estimate:
    worst = run.point_excess.max(("kind", "instance", "point"))
    each = ", ".join(f"{float(value):.1g} at {float(value.perturbation):g}" for value in worst)
    return _largest_by_instance(run.point_excess.isel(perturbation=-1), each)


@claims.add(
    "residuals-bound-the-norm",
    "KKT residuals bound the ℓ1 norm of flows' directions and of random points above the least one",
    quantity="largest excess of the ℓ1 norm relative to ε |β − β*| + Σ λ (B.β − 1), over random points, flows and "
        "times",
    kind="own", source="Convexity, exact; it gives Theorem A.2 a rate for this problem. The bound allows for rounding",
    high=1 + 1e-6, evidence="cases", over="data sets",
    why="If the inequality holds with the measured ε and δ, vanishing residuals force the least norm without any "
        "qualification",
    doubt="It is a theorem of one line; a failure would be one of residuals or solutions, not of mathematics",
)  # fmt: skip
def _norm_share(run: xr.Dataset) -> Estimate:
    flows, points = float(run.norm_share.max()), float(run.point_norm_share.max())
    return Estimate(max(flows, points), remark=f"flows {flows:.6g}, points {points:.6g}", n=run.sizes["instance"])


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the residuals over time, for both kinds, from the first scale."""
    first, x = run.isel(scale=0), run.log_time.values

    def stationarity(kind: str) -> Panel:
        of = first.sel(kind=kind)
        marks: list[Line] = []
        for color, name in enumerate(_MULTIPLIERS):
            values = of.stationarity.sel(multiplier=name).values
            marks += flow_curves(x, values, f"{name} multiplier", color, opacity=0.45)
        law = np.median(of.paper_constant.values / np.log(of.margin.values.T), axis=1)
        law = np.where(law > 0, law, np.nan)
        marks.append(Line(x=x, y=law, label="|ln(2 |β*| / ω₀²)| / ln μ", color=2, style="dashed"))
        if kind == _KINDS[0]:
            bars = np.array([_T100, 1e5]), np.array([1e-2, 1e-4])
            marks.append(Line(x=bars[0], y=bars[1], label="bars", color=3, style="points"))
        y = Axis("ε", scale="log", range=(1e-8, 10.0))
        return Panel(title=kind, x=Axis("ln t", scale="log"), y=y, marks=tuple(marks))

    def conditions(kind: str) -> Panel:
        of = first.sel(kind=kind)
        slackness = of.slackness.sel(multiplier=_MULTIPLIERS[1]).values
        marks = flow_curves(x, slackness, "δ", 0, opacity=0.45) + flow_curves(
            x, of.distance.values, "ε'", 1, opacity=0.45
        )
        y = Axis("residual", scale="log", range=(1e-9, 10.0))
        return Panel(title=kind, x=Axis("ln t", scale="log"), y=y, marks=tuple(marks))

    return [
        Figure(
            name="residuals",
            title="Stationarity of the direction with two multipliers",
            caption="ε of (C1), the distance of Σ λ B from the subgradients of |β|₁, along diagonal flows: with the "
            "paper's multiplier φ / ln μ and with dφ / d ln μ. Each line is one flow. Dashed: the law of the paper's "
            "multiplier, median over flows. Points: the bars at t = 1e100 and ln t = 1e5. "
            f"From ω₀ = {float(run.scale[0]):g}.",
            panels=tuple(stationarity(kind) for kind in _KINDS),
        ),
        Figure(
            name="conditions",
            title="Slackness, and entries off the support",
            caption="δ of (C3) with the incremental multiplier, the largest λ times the slack of its constraint, and "
            "ε', the length of the direction off the solution's support. Each line is one flow.",
            panels=tuple(conditions(kind) for kind in _KINDS),
        ),
    ]


entry = Entry(
    "softmax-attention/kkt-residuals",
    "KKT residuals of the direction of the diagonal flow, with two choices of multipliers", citation=CITATION,
    source="Appendix A.5", params=Params, quick=dict(instances=2, scales=(0.3,), times=9, seed=3),
    paper=dict(samples=10, dim=50, instances=50), run=run, claims=claims, figures=figures,
)  # fmt: skip
