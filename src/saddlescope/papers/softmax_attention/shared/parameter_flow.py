"""Gradient flow of diagonal weights in their parameters, by an explicit solver, without Lemmas 4.1 and A.1.

    keys and queries   β = ξ_k ⊙ ξ_q:          dξ_k/dt = p ⊙ ξ_q,  dξ_q/dt = p ⊙ ξ_k
    squares            β = (w₊² - w₋²) / 2:    dw₊/dt = p ⊙ w₊,    dw₋/dt = -p ⊙ w₋
    pull               p = -∇L(β) = Σ_il r_il B_il; φ = 2 ∫ r dt is integrated as well

The solver is DOP853 in tau = ln(1 + t/s). The derivative of t by tau is part of the rates, which are computed from
their logarithms.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.integrate import solve_ivp

from saddlescope.models import SelectionLoss, TokenData, gaussian_tokens

_HUGE = 20.0  # largest logarithm of the rates per unit of tau in a step; along the flow they stay near 1

_LONGEST = 1.0  # step in tau, over which rates may rise e-fold; longer first steps overflow

_TOLERANCE = 3e-14

Parts = tuple[np.ndarray, np.ndarray]
"""ξ_k and ξ_q, or w₊ and w₋, each (d,)."""


class Parametrisation(NamedTuple):
    """Map from two vectors to β, and their velocities under a pull."""

    beta: Callable[[np.ndarray, np.ndarray], np.ndarray]
    motion: Callable[[np.ndarray, np.ndarray, np.ndarray], Parts]


KEYS_AND_QUERIES = Parametrisation(lambda k, q: k * q, lambda p, k, q: (p * q, p * k))

SQUARES = Parametrisation(lambda plus, minus: (plus**2 - minus**2) / 2, lambda p, plus, minus: (p * plus, -p * minus))


class ParameterFlow(NamedTuple):
    """The two vectors and β, each (k, d), and φ, (k, n, m), at k recorded times."""

    first: np.ndarray
    second: np.ndarray
    beta: np.ndarray
    phi: np.ndarray


def parameter_flow(
    data: TokenData, loss: SelectionLoss, form: Parametrisation, start: Parts, log_times: np.ndarray
) -> ParameterFlow:
    """Follow the gradient flow from a start at t = 0, and record it at the times e^log_times, in rising order.

    Raises:
        RuntimeError: the solver did not reach the last time.
    """
    B, d, shape = data.features.reshape(-1, data.dim), data.dim, data.gaps.shape
    log_unit = -float(loss.log_rates((B @ form.beta(*start)).reshape(shape))[0].max())

    def moved(tau: float, state: np.ndarray) -> np.ndarray:
        first, second = state[:d], state[d : 2 * d]
        log_rates, signs = loss.log_rates((B @ form.beta(first, second)).reshape(shape))
        # In a trial step that is far too long, rates overflow; kept finite, they make the solver reject the step.
        rates = (signs * np.exp(np.minimum(log_rates + (log_unit + tau), _HUGE))).ravel()
        return np.concatenate([*form.motion(rates @ B, first, second), 2 * rates])

    state, tau, states = np.concatenate([*start, np.zeros(len(B))]), 0.0, []
    floor = _TOLERANCE * 1e-3 * max(float(np.abs(np.concatenate(start)).max()), 1e-300)
    for until in np.logaddexp(0.0, log_times - log_unit):
        options = {"method": "DOP853", "rtol": _TOLERANCE, "atol": floor, "max_step": _LONGEST}
        solution = solve_ivp(moved, (tau, until), state, t_eval=[until], **options)
        if solution.status != 0:
            raise RuntimeError(f"The flow stopped after ln t = {tau + log_unit:.6g}: {solution.message}")
        state, tau = solution.y[:, -1], until
        states.append(state)
    first, second, phi = np.split(np.array(states), [d, 2 * d], axis=1)
    return ParameterFlow(first, second, form.beta(first, second), phi.reshape(-1, *shape))


class Case(NamedTuple):
    """One instance with a loss and starts of equal β(0) and sum of squares (equation 4)."""

    name: str
    data: TokenData
    loss: SelectionLoss
    squares: Parts
    keys: Parts


def draw_cases(
    sizes: list[tuple[int, int, int]], instances: int, scale: float, seed: int, from_zero: bool
) -> Iterator[Case]:
    """Draw the cases of every size, instance and loss; `from_zero` starts them at β = 0."""
    for size, number, kind in itertools.product(sizes, range(instances), ("exponential", "logistic")):
        data = gaussian_tokens(*size, seed=seed + number)
        rng = np.random.default_rng((seed + number, *size))
        plus = scale * np.exp(0.3 * rng.normal(size=data.dim))
        minus = plus if from_zero else scale * np.exp(0.3 * rng.normal(size=data.dim))
        signs = rng.choice((-1.0, 1.0), (2, data.dim))  # of the keys and queries, and their order
        one, other = signs[0] * plus, signs[1] * minus
        loss = SelectionLoss(data.optimal_scores, data.gaps, kind)
        keys = ((one + other) / 2**0.5, (one - other) / 2**0.5)
        yield Case(f"{size}, instance {number}, {kind}", data, loss, (plus, minus), keys)
