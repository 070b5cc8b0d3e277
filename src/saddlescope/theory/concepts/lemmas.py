"""Times of Lemmas D.2 and D.3 as printed, in the time of the true gradient flow, for comparison with it.

    a_i     strength; w_ij entries of W; alpha, gamma, omega, beta, P, K, kappa as in `check_assumptions`
    t       time of dU/dt = -(A E + E A) U; the paper's eta t is 2 t, so that its exponents double

Statements that fail at starts that meet the assumptions as printed: Corollary D.1 (P must be P^2); with it Lemma D.3,
where the start is nearly singular, since w_ii(0) may be almost entirely along a stronger concept; and the step
w_ii(t_0) >= P beta omega of D.8's proof, since t_0 is when the upper bound reaches it.
"""

import math

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError


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
    return log_P / _rate(strongest, kappa)


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
    return (log_phase - log_start) / _rate(strength, kappa)


def _rate(strength: float, kappa: float) -> float:
    """Return 4 a kappa, the growth rate of w_ii."""
    if not 1 <= kappa < math.inf:
        raise InputError(f"kappa must be finite and at least 1; got {kappa!r}.")
    if not 0 < strength < math.inf:
        raise InputError(f"strength must be positive and finite; got {strength!r}.")
    return 4 * strength * kappa
