"""Assumptions D.1 to D.5 of the two-layer theory, with their numbers, and the largest start that meets them.

    a_k     strengths; alpha the smallest, gamma alpha the largest (D.1)
    omega   the smallest |w_ij(0)|; beta omega the largest (D.1)
    eta     step size; K >= 20 with eta <= 1 / (9 K gamma alpha) (D.2)
    P       entries of up to P beta omega are in the initial phase, P beta omega <= 0.4 (D.3)
    kappa   slack of the growth rates, above 1.1 (D.4)
    C       slack of the differences of strengths, a_i - 3 a_j >= alpha / C for i stronger than j (D.5)

Appendix D allows ratios such as 1e-60 in W(0) and its bounds: here omega is compared by its logarithm, and W(0) may be
given with a factor e^log_scale.

Errors in the assumptions. The proofs take |N_ij| <= 2 P gamma alpha d beta^2 omega^2 from Corollary D.1, but a product
of two entries in the initial phase is at most (P beta omega)^2: it must be P^2. Then D.4 must have P^2, too, and this
contradicts D.5: D.5 needs log P > 5 kappa^2 log(1/(P beta omega)), since (a_i + a_j) / (2 a_i) > 1/2, and D.4 with P^2
needs log(1/(P beta omega)) >= log P + log(K gamma d beta / min(kappa - 1, 1 - kappa^(-1/2))) > log P. So with two or
more concepts no start meets the corrected assumptions (`corrected=True`), and the lemmas are proved for none. As
printed they can be met, by starts up to `largest_start`, but only with all strengths positive, d = s (D.1), and with
the strengths more than a factor 3 apart (D.5), unlike those of Figures 8 and 9.

Equation D.60 drops a factor 1/5: its step needs a_i - 3 a_j >= 5 alpha / C, or kappa <= 1 + K / (10 C) in D.4. The
proof of Lemma D.5 has K <= 10, where D.2 has K >= 20 and any K of at least 2 does.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin, in_line
from saddlescope.theory.concepts.arguments import validate_map, validate_strengths


class Condition(NamedTuple):
    """Inequality value <= bound.

    Attributes:
        assumption: its number, such as "D.4".
        says: the inequality in words.
        value: its left side; a natural logarithm where `says` has one.
        bound: its right side.
    """

    assumption: str
    says: str
    value: float
    bound: float

    @property
    def holds(self) -> bool:
        """True if the value is at most the bound."""
        return bool(self.value <= self.bound)

    def __repr__(self) -> str:
        return in_line("Condition", self._asdict().items())


@dataclass(frozen=True, repr=False)
class Assumptions(ReprMixin):
    """Result of `check_assumptions`.

    Attributes:
        alpha: the smallest strength.
        gamma: the largest strength over alpha; infinite at alpha = 0.
        log_omega: log of the smallest |w_ij(0)|; -infinity with an entry 0.
        beta: the largest |w_ij(0)| over the smallest.
        conditions: the inequalities of D.1 to D.5, in their order.
    """

    alpha: float
    gamma: float
    log_omega: float
    beta: float
    conditions: tuple[Condition, ...]

    @property
    def hold(self) -> bool:
        """True if all conditions hold."""
        return all(condition.holds for condition in self.conditions)

    @property
    def violated(self) -> tuple[Condition, ...]:
        """Conditions that do not hold."""
        return tuple(condition for condition in self.conditions if not condition.holds)


class LargestStart(NamedTuple):
    """Largest omega for which D.3, D.4 and D.5 hold together, and its P, as natural logarithms."""

    log_omega: float
    log_P: float  # noqa: N815 - the paper's P

    def __repr__(self) -> str:
        return in_line("LargestStart", self._asdict().items())


@validate_arguments
def check_assumptions(
    strengths: ArrayLike,
    start: ArrayLike,
    *,
    log_P: float,
    K: float,
    kappa: float,
    C: float,
    step: float = 0.0,
    log_scale: float = 0.0,
    corrected: bool = False,
) -> Assumptions:
    """Test Assumptions D.1 to D.5 for a start.

    Args:
        strengths: a, (d,), in any order.
        start: W(0) without the factor e^log_scale, symmetric and positive semidefinite, (d, d).
        log_P: log P, of any size.
        K: of D.2, positive.
        kappa: of D.4, positive.
        C: of D.5, positive.
        step: eta; 0 for gradient flow.
        log_scale: log of a factor of W(0), such as -150.
        corrected: True for P^2 in D.4, which its use in the proofs needs.

    Raises:
        InputError: a W(0) that is not symmetric or not positive semidefinite or of another size than the strengths,
            or constants out of their range.
    """
    a = np.sort(validate_strengths(strengths))
    W = np.abs(validate_map(start, a, name="start"))
    if W.max() == 0:
        raise InputError("start must not be 0, a stationary point; got a matrix of zeros.")
    _check_constants(log_P=log_P, log_scale=log_scale)
    _check_constants(positive=True, K=K, kappa=kappa, C=C)
    if not 0 <= step < math.inf:
        raise InputError(f"step must be at least 0 and finite; got {step!r}.")
    alpha = float(a[0])
    gamma = float(a[-1]) / alpha if alpha > 0 else math.inf
    log_omega = _log(float(W.min())) + log_scale
    log_top = _log(float(W.max())) + log_scale
    log_beta = log_top - log_omega
    log_phase = log_P + log_top  # of P beta omega
    power = 2 if corrected else 1
    conditions = [
        Condition("D.1", "0 < alpha: no direction without strength", -alpha, -math.ulp(0.0)),
        Condition("D.1", "0 < omega: no entry of W(0) is 0", -float(W.min()), -math.ulp(0.0)),
        Condition("D.2", "K >= 20", -K, -20.0),
        Condition("D.2", "eta <= 1 / (9 K gamma alpha)", step, 1 / (9 * K * float(a[-1])) if a[-1] > 0 else math.inf),
        Condition("D.3", "log(P beta omega) <= log 0.4", log_phase, math.log(0.4)),
        Condition(
            "D.4",
            f"log(omega P{'^2' if corrected else ''} K gamma d beta^2) <= log min(kappa - 1, 1 - kappa^(-1/2))",
            log_top + log_beta + power * log_P + math.log(K * len(a)) + _log(gamma),
            _log_slack(kappa),
        ),
        Condition("D.4", "log omega <= -log(2 beta) / 2", log_omega, -(math.log(2) + log_beta) / 2),
        Condition("D.4", "1.1 < kappa", 1.1, math.nextafter(kappa, 0.0)),
        Condition("D.4", "kappa <= 1 + K / (2 C)", kappa, 1 + K / (2 * C)),
        Condition("D.4", "log P >= log 2", -log_P, -math.log(2)),
    ]
    if len(a) > 1:
        pairs = [(float(a[i]), float(a[j])) for i in range(len(a)) for j in range(i)]
        ratio = max((i + j) / (2 * i) if i > 0 else 1.0 for i, j in pairs)
        needed = 10 * kappa**2 * -log_phase + log_P + log_beta
        conditions += [
            Condition(
                "D.5",
                "(a_i + a_j) / (2 a_i) (10 kappa^2 log(1/(P beta omega)) + log(P beta)) <= log P for a_i > a_j",
                ratio * needed,
                log_P,
            ),
            Condition("D.5", "alpha / C <= a_i - 3 a_j for a_i > a_j", alpha / C, min(i - 3 * j for i, j in pairs)),
            Condition("D.5", "1 < C", 1.0, math.nextafter(C, 0.0)),
        ]
    return Assumptions(alpha, gamma, log_omega, math.exp(min(log_beta, 700.0)), tuple(conditions))


@validate_arguments
def largest_start(strengths: ArrayLike, *, beta: float, K: float = 20.0, kappa: float = 1.11) -> LargestStart:
    """Return the largest omega, and its P, with which D.3, D.4 and D.5 as printed hold together.

    D.3 and D.4 bound P omega from above. With P omega at that bound, D.5 requires the least P; a smaller P omega
    requires a larger P, and so a still smaller omega.

    Args:
        strengths: a, at least two, each more than three times the next weaker one.
        beta: of D.1, at least 1.
        K: of D.2, at least 20.
        kappa: of D.4, above 1.1.

    Raises:
        InputError: a constant out of its range; or strengths so close that D.5 fails at every omega.
    """
    a = np.sort(validate_strengths(strengths))
    if len(a) < 2 or a[0] <= 0 or np.any(a[1:] <= 3 * a[:-1]):
        raise InputError(
            "strengths must be two or more positive numbers, each above three times the next weaker one, or "
            f"Assumption D.5 fails at every start; got {a.tolist()!r}."
        )
    for name, value, least in (("beta", beta, 1.0), ("K", K, 20.0), ("kappa", kappa, math.nextafter(1.1, 2.0))):
        if not least <= value < math.inf:
            raise InputError(f"{name} must be finite and at least {least!r}; got {value!r}.")
    gamma, ratio = float(a[-1] / a[0]), float(np.max((a[1:] + a[:-1]) / (2 * a[1:])))
    log_beta = math.log(beta)
    log_phase = min(math.log(0.4), _log_slack(kappa) - math.log(K * gamma * len(a)) - log_beta)  # of P beta omega
    log_P = max(math.log(2), ratio / (1 - ratio) * (10 * kappa**2 * -log_phase + log_beta))
    log_omega = min(log_phase - log_beta - log_P, -(math.log(2) + log_beta) / 2)
    return LargestStart(log_omega, log_P)


def _log_slack(kappa: float) -> float:
    """Return the log of min(kappa - 1, 1 - kappa^(-1/2)) of D.4."""
    return _log(max(0.0, min(kappa - 1, 1 - kappa**-0.5)))


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _check_constants(*, positive: bool = False, **constants: float) -> None:
    for name, value in constants.items():
        if not math.isfinite(value) or (positive and value <= 0):
            raise InputError(f"{name} must be {'positive and ' if positive else ''}finite; got {value!r}.")
