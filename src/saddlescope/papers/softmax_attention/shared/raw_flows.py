"""Diagonal weights followed as they are parametrised, by an explicit solver: nothing of Lemmas 4.1 and A.1 is used.

    keys and queries   beta = xi_k * xi_q:            d xi_k / dt = p * xi_q,  d xi_q / dt = p * xi_k
    squares            beta = (w_+^2 - w_-^2) / 2:    d w_+ / dt = p * w_+,    d w_- / dt = -p * w_-
    pull               p = -grad_beta L = sum_il r_il B_il; phi = 2 int r dt may be carried along

DOP853 in tau = ln(1 + t/s), with the scale of time folded into the rates, which come in logarithms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.integrate import solve_ivp

if TYPE_CHECKING:
    from saddlescope.models import SelectionLoss, TokenData

_HUGE = 20.0  # logarithm of the rates per unit of tau that a step may see; along the flow they stay near 1
_LONGEST = 1.0  # step in tau, over which rates may rise e-fold: longer first steps end in infinities

Parts = tuple[np.ndarray, np.ndarray]
"""xi_k and xi_q, or w_+ and w_-, each (d,)."""


@dataclass(frozen=True)
class Parametrisation:
    """How beta depends on two vectors, and how a pull moves them."""

    beta: Callable[[np.ndarray, np.ndarray], np.ndarray]
    motion: Callable[[np.ndarray, np.ndarray, np.ndarray], Parts]


KEYS_AND_QUERIES = Parametrisation(lambda k, q: k * q, lambda p, k, q: (p * q, p * k))
SQUARES = Parametrisation(lambda plus, minus: (plus**2 - minus**2) / 2, lambda p, plus, minus: (p * plus, -p * minus))


@dataclass(frozen=True, eq=False)
class RawFlow:
    """A flow at its recorded times.

    Attributes:
        first, second: the two vectors, (k, d).
        beta: (k, d).
        phi: 2 int r dt, (k, n, m), or None.
        evaluations: of the right-hand side.
    """

    first: np.ndarray
    second: np.ndarray
    beta: np.ndarray
    phi: np.ndarray | None
    evaluations: int


def raw_flow(
    data: "TokenData",
    loss: "SelectionLoss",
    how: Parametrisation,
    start: Parts,
    log_times: np.ndarray,
    *,
    with_phi: bool = False,
    rtol: float = 3e-14,
) -> RawFlow:
    """The gradient flow from a start at t = 0, at the ascending times e^log_times.

    Raises:
        RuntimeError: the solver did not reach the last time.
    """
    B, d = data.features.reshape(-1, data.dim), data.dim
    shape, size = data.gaps.shape, len(B) if with_phi else 0
    at_start = B @ how.beta(*start)
    log_unit = -float(loss.log_rates(at_start.reshape(shape))[0].max())

    def moved(tau: float, state: np.ndarray) -> np.ndarray:
        first, second = state[:d], state[d : 2 * d]
        log_rates, signs = loss.log_rates((B @ how.beta(first, second)).reshape(shape))
        # A trial step that is far too long sees rates beyond float64; held finite, they make the solver reject it.
        rates = (signs * np.exp(np.minimum(log_rates + (log_unit + tau), _HUGE))).ravel()
        return np.concatenate([*how.motion(rates @ B, first, second), 2 * rates[:size]])

    state, tau, evaluations, states = np.concatenate([*start, np.zeros(size)]), 0.0, 0, []
    floor = rtol * 1e-3 * max(float(np.abs(np.concatenate(start)).max()), 1e-300)
    for until in np.logaddexp(0.0, log_times - log_unit):
        options = {"method": "DOP853", "rtol": rtol, "atol": floor, "max_step": _LONGEST}
        answer = solve_ivp(moved, (tau, until), state, t_eval=[until], **options)
        if answer.status != 0:
            raise RuntimeError(f"The flow stopped after ln t = {tau + log_unit:.6g}: {answer.message}")
        state, tau = answer.y[:, -1], until
        evaluations += answer.nfev
        states.append(state)
    table = np.array(states)
    first, second = table[:, :d], table[:, d : 2 * d]
    phi = table[:, 2 * d :].reshape(-1, *shape) if with_phi else None
    return RawFlow(first, second, how.beta(first, second), phi, evaluations)
