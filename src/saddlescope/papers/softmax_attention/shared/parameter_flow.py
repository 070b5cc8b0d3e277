"""Gradient flow of diagonal weights in their parameters, by an explicit solver, without Lemmas 4.1 and A.1.

    keys and queries   beta = xi_k * xi_q:            d xi_k / dt = p * xi_q,  d xi_q / dt = p * xi_k
    squares            beta = (w_+^2 - w_-^2) / 2:    d w_+ / dt = p * w_+,    d w_- / dt = -p * w_-
    pull               p = -grad_beta L = sum_il r_il B_il; phi = 2 int r dt may be carried along

DOP853 in tau = ln(1 + t/s), with the scale of time folded into the rates, which come in logarithms.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp

from saddlescope.models import SelectionLoss, TokenData

_HUGE = 20.0  # logarithm of the rates per unit of tau that a step may see; along the flow they stay near 1

_LONGEST = 1.0  # step in tau, over which rates may rise e-fold: longer first steps end in infinities

Parts = tuple[np.ndarray, np.ndarray]
"""xi_k and xi_q, or w_+ and w_-, each (d,)."""


@dataclass(frozen=True)
class Parametrisation:
    """Map from two vectors to beta, and the velocities that a pull gives them."""

    beta: Callable[[np.ndarray, np.ndarray], np.ndarray]
    motion: Callable[[np.ndarray, np.ndarray, np.ndarray], Parts]


KEYS_AND_QUERIES = Parametrisation(lambda k, q: k * q, lambda p, k, q: (p * q, p * k))

SQUARES = Parametrisation(lambda plus, minus: (plus**2 - minus**2) / 2, lambda p, plus, minus: (p * plus, -p * minus))


@dataclass(frozen=True, eq=False)
class ParameterFlow:
    """Gradient flow of the two vectors at its recorded times.

    Attributes:
        first, second: the two vectors, (k, d).
        beta: (k, d).
        phi: 2 int r dt, (k, n, m), or None.
        evaluations: number of evaluations of the right-hand side.
    """

    first: np.ndarray
    second: np.ndarray
    beta: np.ndarray
    phi: np.ndarray | None
    evaluations: int


def parameter_flow(
    data: TokenData,
    loss: SelectionLoss,
    parametrisation: Parametrisation,
    start: Parts,
    log_times: np.ndarray,
    *,
    with_phi: bool = False,
    tolerance: float = 3e-14,
) -> ParameterFlow:
    """Follow the gradient flow from a start at t = 0, and record it at the ascending times e^log_times.

    Raises:
        RuntimeError: the solver did not reach the last time.
    """
    B, d = data.features.reshape(-1, data.dim), data.dim
    shape, size = data.gaps.shape, len(B) if with_phi else 0
    at_start = B @ parametrisation.beta(*start)
    log_unit = -float(loss.log_rates(at_start.reshape(shape))[0].max())

    def moved(tau: float, state: np.ndarray) -> np.ndarray:
        first, second = state[:d], state[d : 2 * d]
        log_rates, signs = loss.log_rates((B @ parametrisation.beta(first, second)).reshape(shape))
        # A trial step that is far too long sees rates beyond float64; held finite, they make the solver reject it.
        rates = (signs * np.exp(np.minimum(log_rates + (log_unit + tau), _HUGE))).ravel()
        return np.concatenate([*parametrisation.motion(rates @ B, first, second), 2 * rates[:size]])

    state, tau, evaluations, states = np.concatenate([*start, np.zeros(size)]), 0.0, 0, []
    floor = tolerance * 1e-3 * max(float(np.abs(np.concatenate(start)).max()), 1e-300)
    for until in np.logaddexp(0.0, log_times - log_unit):
        options = {"method": "DOP853", "rtol": tolerance, "atol": floor, "max_step": _LONGEST}
        solution = solve_ivp(moved, (tau, until), state, t_eval=[until], **options)
        if solution.status != 0:
            raise RuntimeError(f"The flow stopped after ln t = {tau + log_unit:.6g}: {solution.message}")
        state, tau = solution.y[:, -1], until
        evaluations += solution.nfev
        states.append(state)
    table = np.array(states)
    first, second = table[:, :d], table[:, d : 2 * d]
    phi = table[:, 2 * d :].reshape(-1, *shape) if with_phi else None
    return ParameterFlow(first, second, parametrisation.beta(first, second), phi, evaluations)
