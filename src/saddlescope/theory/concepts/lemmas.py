"""Lemmas D.1 to D.8 as printed, in the time of the true gradient flow, for comparison with it.

    a_i     strength; w_ij entries of W; alpha, gamma, omega, beta, P, K, kappa as in `check_assumptions`
    t       time of dU/dt = -(A E + E A) U; the paper's eta t is 2 t, so that its exponents double

Lemma D.5 bounds w_ii by 1 + 2/K, D.6 bounds it by 1 - 2/K from below after it has reached this value, D.7 bounds |w_ij|
by max(|w_ij(t_0)|, omega) once the stronger entry w_ii is above 0.8, and D.8 (Assertion D.1) bounds it by P beta omega
at all times: these are numbers. The functions here are the bounds that change with time, and the times.

Statements that fail at starts that meet the assumptions as printed: Corollary D.1 (P must be P^2); with it Lemma D.3,
where the start is nearly singular, since w_ii(0) may be almost entirely along a stronger concept; and the step
w_ii(t_0) >= P beta omega of D.8's proof, since t_0 is when the upper bound reaches it. `map_ceiling` and
`initial_growth` always hold.
"""

import math

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError

Values = ArrayLike | float


@validate_arguments
def lemma_d1_ceiling(start: Values, rate: Values, times: Values, *, kappa: float) -> Float[np.ndarray, "..."]:
    """Return Lemma D.1's upper bound of |w_ij(t)|, |w_ij(0)| e^(2 (a_i + a_j) kappa t), or infinity.

    Args:
        start: w_ij(0).
        rate: a_i + a_j.
        times: t; the three broadcast.
        kappa: at least 1.

    Raises:
        InputError: a kappa below 1.
    """
    return _grown(start, rate, times, _checked_kappa(kappa))


@validate_arguments
def lemma_d2_floor(start: Values, rate: Values, times: Values, *, kappa: float) -> Float[np.ndarray, "..."]:
    """Return |w_ij(0)| e^(2 (a_i + a_j) t / kappa): a lower bound of |w_ij(t)| until `lemma_d2_time`.

    On the diagonal, with the rate 2 a_i, it is also that of Lemma D.3 until `lemma_d3_time`; and with the rate
    2 a_i (1 - lambda) and w_ii(t_0) in place of w_ij(0) that of Lemma D.4, while w_ii(t_0 + t) < lambda.

    Args:
        start: w_ij(0).
        rate: a_i + a_j.
        times: t; the three broadcast.
        kappa: at least 1.

    Raises:
        InputError: a kappa below 1.
    """
    return _grown(start, rate, times, 1 / _checked_kappa(kappa))


@validate_arguments
def lemma_d2_time(strongest: float, *, log_P: float, kappa: float) -> float:
    """Return T_1 = log P / (4 gamma alpha kappa), the end of the initial phase of every entry in Lemma D.2.

    Args:
        strongest: gamma alpha, the largest strength, positive.
        log_P: log P.
        kappa: at least 1.

    Raises:
        InputError: a value out of its range.
    """
    return log_P / (4 * _checked_strength(strongest) * _checked_kappa(kappa))


@validate_arguments
def lemma_d3_time(log_start: float, strength: float, *, log_phase: float, kappa: float) -> float:
    """Return T_1^(i) = log(P beta omega / w_ii(0)) / (4 a_i kappa), the end of w_ii's initial phase in Lemma D.3.

    Args:
        log_start: log w_ii(0).
        strength: a_i, positive.
        log_phase: log(P beta omega).
        kappa: at least 1.

    Raises:
        InputError: a value out of its range.
    """
    return (log_phase - log_start) / (4 * _checked_strength(strength) * _checked_kappa(kappa))


@validate_arguments
def lemma_d8_time(log_start: float, strength: float, *, log_phase: float, kappa: float) -> float:
    """Return t* by which w_ii exceeds 0.8 in the proof of Lemma D.8: T_1^(i) and a growth from P beta omega.

    Args:
        log_start: log w_ii(0).
        strength: a_i, positive.
        log_phase: log(P beta omega), at most log 0.8.
        kappa: at least 1.

    Raises:
        InputError: a value out of its range.
    """
    if not log_phase <= math.log(0.8):
        raise InputError(f"log_phase must be at most log(0.8); got {log_phase!r}.")
    first = lemma_d3_time(log_start, strength, log_phase=log_phase, kappa=kappa)
    return first + kappa * (math.log(0.8) - log_phase) / (0.6 * strength)


def _grown(start: Values, rate: Values, times: Values, factor: float) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(np.abs(start) * np.exp(2 * factor * np.asarray(rate, float) * np.asarray(times, float)))


def _checked_kappa(kappa: float) -> float:
    if not 1 <= kappa < math.inf:
        raise InputError(f"kappa must be finite and at least 1; got {kappa!r}.")
    return kappa


def _checked_strength(strength: float) -> float:
    if not 0 < strength < math.inf:
        raise InputError(f"strength must be positive and finite; got {strength!r}.")
    return strength
