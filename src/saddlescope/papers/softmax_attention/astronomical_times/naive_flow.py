"""The diagonal flow as one would write it down, by SciPy in the logarithm of time, and the balance of its energy.

    autodiff  minus the gradient of the softmax loss by automatic differentiation, times dt/dtau
    formula   the gradient as appendix A.1 has it, with X^T Sigma(g) gamma, times dt/dtau
    stable    rates from their logarithms, folded with ln dt/dtau

The first two multiply sigma_opt by gamma_opt - sum_l gamma_l sigma_l, which is all rounding once the other sigma are
below 1e-16; dt/dtau then blows that up. Where the rounding is rough solvers crawl, where it is 0 or constant for long
they return it as a success.

The balance needs the states alone, whoever made them: along a gradient flow ln(L - L*) changes by the integral of
-|grad L|^2 / (L - L*), both told here without cancellation.
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
class PlainRun:
    """What one run of a solver came to.

    Attributes:
        says: whether the solver called it a success; False where it used up its evaluations.
        beta: xi_k * xi_q at its end, (d,); NaN where it did not get there.
        defect: the largest error of the energy balance, over what ln(L - L*) changed by (at least 1).
        evaluations: of the right-hand side.
    """

    says: bool
    beta: Float[np.ndarray, "d"]
    defect: float
    evaluations: int


class _SpentError(Exception):
    pass


def shifted(data: TokenData, by: float) -> TokenData:
    """The data with every score larger by as much: the flow is the same, but for a factor of time."""
    return TokenData(data.X + by * (data.y[:, None, None] * data.v) / (data.v @ data.v), data.z, data.y, data.v)


def plain_run(
    data: TokenData, kind: str, method: str, *, scale: float, log_time: float, rtol: float, most: int
) -> PlainRun:
    """The flow of xi_k, xi_q from omega_0 = scale to ln t, in tau = ln(1 + t), by one of SciPy's methods."""
    d, B, loss = data.dim, data.features, SelectionLoss(data.optimal_scores, data.gaps)
    start = np.concatenate([np.full(d, scale * 2**0.5), np.zeros(d)])
    spent = 0
    with jax.enable_x64(True), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of the naive kind's overflows
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
            if spent > most:
                raise _SpentError
            keys, queries = state[:d], state[d:]
            pull = force(tau, keys * queries)
            return np.concatenate([pull * queries, pull * keys])

        until = float(np.logaddexp(0.0, log_time))
        try:
            found = solve_ivp(slope, (0, until), start, method, rtol=rtol, atol=rtol * scale, dense_output=True)
        except _SpentError:
            return PlainRun(False, np.full(d, np.nan), np.nan, spent)
        defect = _energy_defect(loss, B, found.t, found.sol)
    return PlainRun(bool(found.success), found.y[:d, -1] * found.y[d:, -1], defect, spent)


def _formula(data: TokenData, beta: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
    """Minus the gradient, (1/n) sum_i exp(-gamma_i^T sigma_i) z_i * X_i^T Sigma_i gamma_i (appendix A.1)."""
    logits = np.einsum("ild,id->il", data.X, data.z * beta)
    sigma = np.exp(logits - logits.max(axis=1, keepdims=True))
    sigma /= sigma.sum(axis=1, keepdims=True)
    Sigma = sigma[:, :, None] * np.eye(data.tokens) - sigma[:, :, None] * sigma[:, None, :]
    push = np.exp(-np.sum(data.scores * sigma, axis=1)) / data.samples
    return np.einsum("i,ild,il,id->d", push, data.X, np.einsum("ikl,il->ik", Sigma, data.scores), data.z)


def _folded_force(
    loss: SelectionLoss, B: Float[np.ndarray, "n m d"], tau: float, margins: Float[np.ndarray, "n m"]
) -> Float[np.ndarray, "d"]:
    """-dL/dbeta dt/dtau."""
    log_rates, signs = loss.log_rates(margins)
    return np.einsum("nm,nmd->d", signs * np.exp(log_rates + tau), B)


def _energy_defect(loss: SelectionLoss, B: Float[np.ndarray, "n m d"], taus: np.ndarray, path: OdeSolution) -> float:
    """Simpson's rule over the solver's steps, on its own interpolation."""
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
