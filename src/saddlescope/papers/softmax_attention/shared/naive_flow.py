"""The diagonal flow with naive gradients, by SciPy in the logarithm of time, and the balance of its energy.

    autodiff  minus the gradient of the softmax loss by automatic differentiation, times dt/dtau
    formula   the gradient of appendix A.1, with Xᵀ Σ(g) γ, times dt/dtau
    stable    rates from their logarithms, combined with ln dt/dtau

The first two multiply σ_opt by γ_opt - Σ_l γ_l σ_l, which is only rounding once the other σ are below 1e-16; dt/dtau
then amplifies it. Rough rounding makes solvers take tiny steps; if it is 0 or constant for long, they report a success.

The balance needs the states alone, from any solver: along a gradient flow ln(L - L*) changes by the integral of
-|∇L|² / (L - L*). Both are computed here without cancellation.
"""

import warnings
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float
from scipy.integrate import OdeSolution, solve_ivp

from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.losses import SelectionLoss, attention_loss


@dataclass(frozen=True)
class NaiveRun:
    """Outcome of one run of a solver.

    Attributes:
        reported_success: True if the solver reported a success; False if it used up its evaluations.
        beta: ξ_k ⊙ ξ_q at its end, (d,); NaN if the run did not reach it.
        defect: largest error of the energy balance, over the change of ln(L - L*) (at least 1).
        evaluations: number of evaluations of the right-hand side.
    """

    reported_success: bool
    beta: Float[np.ndarray, "d"]
    defect: float
    evaluations: int


class _SpentError(Exception):
    pass


def shift_scores(data: TokenData, by: float) -> TokenData:
    """Return the data with one number added to every score; the flow is the same, up to a factor of time."""
    return TokenData(data.X + by * (data.y[:, None, None] * data.v) / (data.v @ data.v), data.z, data.y, data.v)


def run_naive_solver(
    data: TokenData, kind: str, method: str, *, scale: float, log_time: float, tolerance: float, max_evaluations: int
) -> NaiveRun:
    """Follow ξ_k and ξ_q from ω₀ = scale to ln t, in tau = ln(1 + t), by one of SciPy's methods."""
    d, B, loss = data.dim, data.features, SelectionLoss(data.optimal_scores, data.gaps)
    start = np.concatenate([np.full(d, scale * 2**0.5), np.zeros(d)])
    spent = 0
    with jax.enable_x64(True), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # about overflows of the naive kinds
        gradient = jax.jit(jax.grad(lambda beta: attention_loss(data)(beta)))

        def force(tau: float, beta: np.ndarray) -> np.ndarray:
            if kind == "autodiff":
                return -np.asarray(gradient(beta)) * np.exp(tau)
            if kind == "formula":
                return _formula(data, beta) * np.exp(tau)
            return _folded_force(loss, B, tau, B @ beta)

        def slope(tau: float, state: np.ndarray) -> np.ndarray:
            nonlocal spent
            spent += 1
            if spent > max_evaluations:
                raise _SpentError
            keys, queries = state[:d], state[d:]
            pull = force(tau, keys * queries)
            return np.concatenate([pull * queries, pull * keys])

        until = float(np.logaddexp(0.0, log_time))
        try:
            found = solve_ivp(
                slope, (0, until), start, method, rtol=tolerance, atol=tolerance * scale, dense_output=True
            )
        except _SpentError:
            return NaiveRun(False, np.full(d, np.nan), np.nan, spent)
        defect = _energy_defect(loss, B, found.t, found.sol)
    return NaiveRun(bool(found.success), found.y[:d, -1] * found.y[d:, -1], defect, spent)


def _formula(data: TokenData, beta: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
    """Return minus the gradient, (1/n) sum_i exp(-gamma_i^T sigma_i) z_i * X_i^T Sigma_i gamma_i (appendix A.1)."""
    logits = np.einsum("ild,id->il", data.X, data.z * beta)
    sigma = np.exp(logits - logits.max(axis=1, keepdims=True))
    sigma /= sigma.sum(axis=1, keepdims=True)
    Sigma = sigma[:, :, None] * np.eye(data.tokens) - sigma[:, :, None] * sigma[:, None, :]
    push = np.exp(-np.sum(data.scores * sigma, axis=1)) / data.samples
    return np.einsum("i,ild,il,id->d", push, data.X, np.einsum("ikl,il->ik", Sigma, data.scores), data.z)


def _folded_force(
    loss: SelectionLoss, B: Float[np.ndarray, "n m d"], tau: float, margins: Float[np.ndarray, "n m"]
) -> Float[np.ndarray, "d"]:
    """Return -dL/dbeta dt/dtau."""
    log_rates, signs = loss.log_rates(margins)
    return np.einsum("nm,nmd->d", signs * np.exp(log_rates + tau), B)


def _energy_defect(loss: SelectionLoss, B: Float[np.ndarray, "n m d"], taus: np.ndarray, path: OdeSolution) -> float:
    """Return the largest error of the energy balance, by Simpson's rule on the solver's own interpolation."""
    d = B.shape[2]
    middles = (taus[1:] + taus[:-1]) / 2
    excess, slopes = np.empty(2 * len(taus) - 1), np.empty(2 * len(taus) - 1)
    for k, tau in enumerate([*np.stack([taus[:-1], middles], axis=1).ravel(), taus[-1]]):
        keys, queries = np.split(path(tau), [d])
        margins = B @ (keys * queries)
        excess[k] = loss.log_excess(margins)
        pull = _folded_force(loss, B, tau, margins)
        slopes[k] = -np.sum(pull**2 * (keys**2 + queries**2)) * np.exp(-tau - excess[k])
    gained = np.cumsum(np.diff(taus) / 6 * (slopes[:-2:2] + 4 * slopes[1::2] + slopes[2::2]))
    off = np.abs(excess[2::2] - excess[0] - gained)
    return float(np.max(off) / max(1.0, abs(excess[-1] - excess[0])))
