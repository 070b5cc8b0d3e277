"""Growth of the norm along an escape direction, and the escape time: Proposition 2.2, corrected and as printed.

    rho      the escape direction: |rho|^2 = L, grad L_0(rho) = -s rho (Definition 2.1)
    theta    weights along it, theta = r rho, so that r = |theta| / sqrt L
    s        the escape speed, -L_0(rho) > 0
    t        time of gradient flow on the localised loss L_0 since |theta| was norm

L_0 is homogeneous of degree L, so that grad L_0(r rho) = -s r^(L-1) rho, and d theta/dt = -grad L_0 gives

    dr/dt = s r^(L-1),        that is,        d|theta|/dt = s L^(1-L/2) |theta|^(L-1).

The paper's proof takes s for -L_0 on the unit sphere, where it is L^(-L/2) times the s of its Definition 2.1, and has
d|theta|/dt = L s |theta|^(L-1), which differs at every depth above 1. The printed escape time also adds r^(2-L) where
it must be subtracted.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.theory.escape.speed import validate_depth

Times = Float[np.ndarray, "..."] | Sequence[float] | float


@validate_arguments
def norm_at(times: Times, *, norm: float, speed: float, depth: int, printed: bool = False) -> Float[np.ndarray, "..."]:
    """Return |theta| at these times: the growth law of Proposition 2.2.

    With r_0 = norm / sqrt L: r = (r_0^(2-L) - (L-2) s t)^(1/(2-L)), and r_0 exp(s t) at L = 2. Above L = 2 the norm is
    infinite at t = r_0^(2-L) / ((L-2) s) and, by convention, after it.

    Args:
        times: t, any shape, not negative.
        norm: |theta| at t = 0, positive.
        speed: s, positive.
        depth: L, at least 2.
        printed: the formula as printed in the paper, which is wrong, for comparison.

    Raises:
        InputError: a value out of its range.
    """
    power, rate, scale = _law(norm, speed, depth, printed)
    t = np.asarray(times, float)
    if not np.all(t >= 0):
        raise InputError(f"times must not be negative; got {float(np.min(t))!r}.")
    if power == 0:
        with np.errstate(over="ignore"):
            quarter = np.exp(rate * t / 4)  # the whole may overflow where the norm does not
            return np.asarray(norm * quarter * quarter * quarter * quarter)
    spent = power * rate * (norm / scale) ** power * t  # the share of the time to infinity
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(norm * np.where(spent < 1, np.exp(-np.log1p(-spent) / power), np.inf))


@validate_arguments
def escape_time(reached: float, *, norm: float, speed: float, depth: int, printed: bool = False) -> float:
    """Return the time t_1(r) - t_0 in which |theta| grows from `norm` to `reached`.

    With r = reached / sqrt L and r_0 = norm / sqrt L: (r_0^(2-L) - r^(2-L)) / ((L-2) s), and log(r / r_0) / s at L = 2.

    Args:
        reached: |theta| at the end, at least `norm`; infinity is reached in a finite time above depth 2.
            The time is infinite where it exceeds float64.
        norm: |theta| at the start, positive.
        speed: s, positive.
        depth: L, at least 2.
        printed: the formula as printed in the paper, which is wrong, for comparison.

    Raises:
        InputError: a value out of its range.
    """
    power, rate, scale = _law(norm, speed, depth, printed)
    if not reached >= norm:
        raise InputError(f"reached must be at least the norm at the start, {norm!r}; got {reached!r}.")
    if power == 0:
        return _log_ratio(reached, norm) / rate
    with np.errstate(over="ignore"):
        start, end = (np.float64(value / scale) ** -power for value in (norm, reached))
        spent = start + end if printed else -start * np.expm1(-power * _log_ratio(reached, norm))
    return float(spent / (power * rate))


def _log_ratio(reached: float, norm: float) -> float:
    """Return log(reached / norm), also where the ratio overflows."""
    ratio = reached / norm
    return math.log(ratio) if ratio < math.inf else math.log(reached) - math.log(norm)


def _law(norm: float, speed: float, depth: int, printed: bool) -> tuple[int, float, float]:
    """Return L - 2, the rate and the unit of the norm in d(|theta|/unit)/dt = rate (|theta|/unit)^(L-1)."""
    for name, value in (("norm", norm), ("speed", speed)):
        if not 0 < value < np.inf:
            raise InputError(f"{name} must be positive and finite; got {value!r}.")
    L = validate_depth(depth)
    return (L - 2, L * speed, 1.0) if printed else (L - 2, speed, float(np.sqrt(L)))
