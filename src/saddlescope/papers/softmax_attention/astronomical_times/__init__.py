"""Times up to 1e300: formulations that share nothing agree; naive gradients fail.

The theorems are about t to infinity, and directions converge like 1 / ln t: they are visible only at times at which
every rate is below 1e-300. Each parametrisation is followed twice, by methods that share only the logarithms of the
rates:

    diagonal  in phi = 2 int r dt, implicitly in ln ln t, and in xi_k, xi_q and w_+, w_- themselves, explicitly in ln t
    W alone   in phi = int r dt, and in W itself
    K, Q      reduced to the moving part, implicitly, and in K and Q themselves

"Themselves" means automatic differentiation and DOP853. Beside them are naive methods: the gradient of the softmax loss
by automatic differentiation, and by the formula of appendix A.1, in SciPy's solvers, in ln t, to t = 1e50. The results
that they report as a success are compared with the true direction, and with the energy balance, which does not need it.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.astronomical_times.claims import PAIRS, claims
from saddlescope.papers.softmax_attention.astronomical_times.figures import figures
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData

_KINDS = ("autodiff", "formula", "stable")


class Params(EntryParams):
    """Data, times and solvers."""

    samples: int = param(4, "n", ge=1)
    tokens: int = param(5, "L", ge=2)
    dim: int = param(8, "d, and the columns of K and Q", ge=2)
    instances: int = param(2, "data sets on which formulations are compared", ge=1)
    log10_times: tuple[float, ...] = param((10.0, 100.0, 300.0), "log10 t at which they are")
    scale: float = param(0.1, "omega_0, and the deviation of the entries of K and Q", gt=0)
    naive_instances: int = param(6, "data sets for the naive gradients", ge=1)
    naive_log10_time: float = param(50.0, "log10 t that they are followed to", ge=1.0, le=300.0)
    solvers: tuple[str, ...] = param(("RK45", "DOP853", "LSODA"), "of SciPy, at rtol 1e-6")
    most: int = param(8000, "evaluations that each of them may use", ge=1000)
    seed: int = param(400, "of the first data set of each kind; the others follow", ge=1)

    def check(self) -> None:
        times, known = self.log10_times, ("RK45", "DOP853", "LSODA", "BDF", "Radau")
        if not times or not all(1 <= a < b for a, b in zip(times, (*times[1:], 301.0), strict=True)):
            raise InputError(f"log10_times must ascend, from 1 to 300; got {times!r}.")
        if not self.solvers or any(solver not in known for solver in self.solvers):
            raise InputError(f"solvers must be among {', '.join(known)}; got {self.solvers!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow each parametrisation both ways, and the naive gradients."""
    jobs: list[tuple[str, Callable[[], xr.Dataset]]] = [
        (f"agreement-{k}-{name}", partial(_compare_formulations, name, params.seed + k, params))
        for k in range(params.instances)
        for name in range(len(PAIRS))
    ]
    jobs += [
        (f"naive-{k}", partial(_run_naive_solvers, params.seed + k, params)) for k in range(params.naive_instances)
    ]
    parts: list[xr.Dataset] = []
    for k, (name, make) in enumerate(jobs):
        context.report(k / len(jobs), name)
        parts.append(context.cached(name, make))
    context.report(1.0, "done")
    join = partial(xr.concat, data_vars="all", coords="minimal", compat="equals", join="exact")
    split = params.instances * len(PAIRS)
    return xr.merge([join(parts[:split], "case"), join(parts[split:], "data_set")], compat="equals", join="exact")


def _compare_formulations(pair: int, seed: int, params: Params) -> xr.Dataset:
    """Follow one parametrisation both ways; record the distance of the directions, relative to the largest entry."""
    import jax.numpy as jnp

    from saddlescope.flow import diagonal_margin_flow, key_query_margin_flow, matrix_margin_flow, weight_flow
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.papers.softmax_attention.shared.separable_tokens import separable_gaussian_tokens

    data = separable_gaussian_tokens(params.samples, params.tokens, params.dim, seed=seed)
    loss, times = SelectionLoss(data.optimal_scores, data.gaps), np.array(params.log10_times) * np.log(10)
    B, D, z, d = data.features, data.differences, data.z, data.dim
    scale, tolerance, every = params.scale, 1e-10, range(len(times))
    if pair < 2:
        ours = diagonal_margin_flow(loss, B, scale, log_until=times[-1], record=times, tolerance=tolerance)
        if pair == 0:
            reference = weight_flow(
                loss,
                lambda w: B @ (w[0] * w[1]),
                (np.full(d, scale * 2**0.5), np.zeros(d)),
                log_until=times[-1],
                record=times,
                tolerance=1e-11,
            )
            theirs = reference.weights[0] * reference.weights[1]
        else:
            start = (np.full(d, scale), np.full(d, scale))
            reference = weight_flow(
                loss,
                lambda w: B @ ((w[0] ** 2 - w[1] ** 2) / 2),
                start,
                log_until=times[-1],
                record=times,
                tolerance=1e-11,
            )
            theirs = (reference.weights[0] ** 2 - reference.weights[1] ** 2) / 2
        directions = ours.direction
    elif pair == 2:
        ours = matrix_margin_flow(loss, D, z, log_until=times[-1], record=times, tolerance=tolerance)
        reference = weight_flow(
            loss,
            lambda W: jnp.einsum("nmd,nd->nm", D, z @ W.T),
            np.zeros((d, d)),
            log_until=times[-1],
            record=times,
            tolerance=1e-11,
        )
        directions, theirs = np.array([ours.direction(k) for k in every]), reference.weights
    else:
        start = tuple(scale * np.random.default_rng(seed).standard_normal((2, d, d)))
        ours = key_query_margin_flow(loss, D, z, start, log_until=times[-1], record=times, tolerance=tolerance)
        reference = weight_flow(
            loss,
            lambda w: jnp.einsum("nmd,nd->nm", D, (z @ w[1]) @ w[0].T),
            start,
            log_until=times[-1],
            record=times,
            tolerance=1e-11,
        )
        factors = [ours.direction(k) for k in every]
        directions, theirs = np.array([K @ Q.T for K, Q in factors]), reference.weights[0] @ reference.weights[1].mT
    flat = directions.reshape(len(times), -1)
    other = theirs.reshape(len(times), -1) / reference.margin[:, None]
    return xr.Dataset(
        {
            "apart": ("time", np.abs(flat - other).max(axis=1) / np.abs(other).max(axis=1)),
            "evaluations": ours.evaluations,
            "twin_evaluations": reference.evaluations,
            "pair": PAIRS[pair],
            "energy_defect": float(ours.energy_defects.max()),
        },
        coords={"log10_time": ("time", np.array(params.log10_times)), "case": f"{PAIRS[pair]}, seed {seed}"},
    )


def _run_naive_solvers(seed: int, params: Params) -> xr.Dataset:
    """Run SciPy's solvers with naive and with stable rates, and compare them with the true direction."""
    from saddlescope.flow import diagonal_margin_flow
    from saddlescope.models.tokens.losses import SelectionLoss
    from saddlescope.papers.softmax_attention.astronomical_times.naive_flow import run_naive_solver, shift_scores
    from saddlescope.papers.softmax_attention.shared.separable_tokens import separable_gaussian_tokens

    # Scores other than 0, as in real data: a common shift changes the flow's time alone, but also the rounding.
    data = shift_scores(separable_gaussian_tokens(params.samples, params.tokens, params.dim, seed=seed), 1.0)
    log_time = params.naive_log10_time * np.log(10)
    loss = SelectionLoss(data.optimal_scores, data.gaps)
    true = diagonal_margin_flow(
        loss, data.features, params.scale, log_until=log_time, record=[log_time], tolerance=1e-9
    ).direction[0]
    errors, defects, says, evaluations = np.full((4, len(_KINDS), len(params.solvers)), np.nan)
    for i, kind in enumerate(_KINDS):
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
        coords={"kind": list(_KINDS), "solver": list(params.solvers), "data_set": seed},
    )


def _direction_error(data: "TokenData", beta: np.ndarray, true: np.ndarray) -> float:
    """Return the error relative to the largest entry; 1 where no margin is positive, so that there is no direction."""
    margin = float(data.margins(beta).min()) if np.all(np.isfinite(beta)) else np.nan
    if not margin > 0:
        return 1.0 if margin <= 0 else np.nan
    return float(np.abs(beta / margin - true).max() / np.abs(true).max())


entry = Entry(
    "softmax-attention/astronomical-times",
    "Times up to 1e300: formulations that share nothing agree; naive gradients fail",
    citation=CITATION,
    source="Theorem 4.1",
    params=Params,
    quick=dict(instances=1, log10_times=(4.0,), naive_instances=1, solvers=("RK45",), most=6000),
    paper=dict(instances=5, naive_instances=20),
    run=run,
    claims=claims,
    figures=figures,
)
