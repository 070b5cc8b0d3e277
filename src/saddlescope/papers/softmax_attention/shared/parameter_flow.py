"""Gradient flow of diagonal weights in their parameters, by an explicit solver, without Lemmas 4.1 and A.1.

    keys and queries   β = ξ_k ⊙ ξ_q:          dξ_k/dt = p ⊙ ξ_q,  dξ_q/dt = p ⊙ ξ_k
    squares            β = (w₊² - w₋²) / 2:    dw₊/dt = p ⊙ w₊,    dw₋/dt = -p ⊙ w₋
    pull               p = -∇L(β) = Σ_il r_il B_il; φ = 2 ∫ r dt may be integrated as well

The solver is DOP853 in tau = ln(1 + t/s). The derivative of t by tau is part of the rates, which are computed from
their logarithms.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp

from saddlescope.models import SelectionLoss, TokenData, gaussian_tokens

_HUGE = 20.0  # largest logarithm of the rates per unit of tau in a step; along the flow they stay near 1

_LONGEST = 1.0  # step in tau, over which rates may rise e-fold; longer first steps overflow

Parts = tuple[np.ndarray, np.ndarray]
"""ξ_k and ξ_q, or w₊ and w₋, each (d,)."""


@dataclass(frozen=True)
class Parametrisation:
    """Map from two vectors to β, and their velocities under a pull."""

    beta: Callable[[np.ndarray, np.ndarray], np.ndarray]
    motion: Callable[[np.ndarray, np.ndarray, np.ndarray], Parts]


KEYS_AND_QUERIES = Parametrisation(lambda k, q: k * q, lambda p, k, q: (p * q, p * k))

SQUARES = Parametrisation(lambda plus, minus: (plus**2 - minus**2) / 2, lambda p, plus, minus: (p * plus, -p * minus))


@dataclass(frozen=True, eq=False)
class ParameterFlow:
    """Gradient flow of the two vectors at its recorded times.

    Attributes:
        first, second: the two vectors, (k, d).
        beta: β, (k, d).
        phi: φ = 2 ∫ r dt, (k, n, m), or None.
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
    """Follow the gradient flow from a start at t = 0, and record it at the times e^log_times, in rising order.

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
        # In a trial step that is far too long, rates overflow; kept finite, they make the solver reject the step.
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


@dataclass(frozen=True, eq=False)
class Case:
    """One instance with a loss and a start.

    Attributes:
        name: unique name.
        data: Gaussian tokens.
        loss: loss of the data, exponential or logistic.
        squares: w₊(0) and w₋(0), each about the chosen scale, unequal unless β(0) is to be 0.
        keys: ξ_k(0) and ξ_q(0) of the same β(0) and sum of squares (equation 4), with random signs and order.
    """

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
        signs = rng.choice((-1.0, 1.0), (2, data.dim))
        one, other = signs[0] * plus, signs[1] * minus
        yield Case(
            name=f"{size}, instance {number}, {kind}",
            data=data,
            loss=SelectionLoss(data.optimal_scores, data.gaps, kind),
            squares=(plus, minus),
            keys=((one + other) / 2**0.5, (one - other) / 2**0.5),
        )
