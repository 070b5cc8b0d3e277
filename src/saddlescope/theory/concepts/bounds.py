"""Bounds on every entry of the symmetric two-layer network's map, for gradient flow from any start.

They replace Lemmas D.1, D.2, D.3 and D.5 of the paper, which need assumptions that no start meets once they are
corrected (see `check_assumptions`), and hold without any.

    a_i     strengths, (d,); W0 = U0 U0^T, (d, d)
    t       time of gradient flow, dU/dt = -(A E + E A) U
    L_i     the logistic L' = 4 a_i L (1 - L) from L_i(0) = w_ii(0)

Ceiling.  w_ii(t) <= L_i(t), and so |w_ij(t)| <= sqrt(L_i L_j). Proof: dw_ii/dt = 4 a_i w_ii - 2 a_i (W^2)_ii
          - 2 (W A W)_ii by equation 4.3, where (W^2)_ii >= w_ii^2 and (W A W)_ii >= a_i w_ii^2, since both are sums
          of terms of at least 0. And W stays positive semidefinite.
Growth.   |w_ij(t) - w_ij(0) e^(2 (a_i + a_j) t)| <= sqrt(w_ii(0) w_jj(0)) e^(2 (a_i + a_j) t) sum_k D_ijk,
          D_ijk = w_kk(0) (a_i + a_j + 2 a_k) (e^(4 a_k t) - 1) / (4 a_k). Proof: the quadratic terms of dw_ij/dt are at
          most sum_k |w_ki w_kj| (a_i + a_j + 2 a_k), with |w_ki| <= sqrt(w_kk(0) w_ii(0)) e^(2 (a_k + a_i) t) by the
          ceiling; integrate them against e^(-2 (a_i + a_j) t).

The ceiling is sharp on diagonal starts. The growth is informative until the strongest entry is no longer small.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.reprs import ReprMixin
from saddlescope.theory.concepts.arguments import validate_map, validate_strengths, validate_times
from saddlescope.theory.concepts.closed_forms import logistic


@dataclass(frozen=True, eq=False, repr=False)
class InitialGrowth(ReprMixin):
    """Exponential growth of every entry, with a bound on the distance of W from it.

    Attributes:
        value: (times, d, d), w_ij(0) e^(2 (a_i + a_j) t); infinite where it exceeds float64, as is the error.
        error: (times, d, d), a bound of |w_ij(t) - value|.
    """

    value: Float[np.ndarray, "times d d"]
    error: Float[np.ndarray, "times d d"]


@validate_arguments
def map_ceiling(strengths: ArrayLike, start: ArrayLike, times: ArrayLike) -> Float[np.ndarray, "times d d"]:
    """Return a bound of |w_ij(t)| at all later times: sqrt(L_i L_j).

    Args:
        strengths: a, (d,), at least 0.
        start: W0, symmetric and positive semidefinite, (d, d).
        times: t, (times,), at least 0.

    Raises:
        InputError: values out of their range, or inconsistent shapes.
    """
    a = validate_strengths(strengths)
    W, t = validate_map(start, a, name="start"), validate_times(times)
    roots = np.sqrt(logistic(np.diag(W), 4 * t[:, None] * a))
    return roots[:, :, None] * roots[:, None, :]


@validate_arguments
def initial_growth(strengths: ArrayLike, start: ArrayLike, times: ArrayLike) -> InitialGrowth:
    """Return the growth of every entry as long as W is small, with a bound of the error.

    Args:
        strengths: a, (d,), at least 0.
        start: W0, symmetric and positive semidefinite, (d, d).
        times: t, (times,), at least 0.

    Raises:
        InputError: values out of their range, or inconsistent shapes.
    """
    a = validate_strengths(strengths)
    W, t = validate_map(start, a, name="start"), validate_times(times)
    pair = a[:, None] + a[None, :]
    diagonal = np.diag(W)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        integral = np.where(a > 0, np.expm1(4 * a * t[:, None]) / (4 * a), t[:, None])
        second = np.einsum("tk,ijk->tij", np.where(diagonal > 0, integral * diagonal, 0.0), pair[:, :, None] + 2 * a)
        # In logarithms, so that entries of 0 stay 0 where the growth leaves the range of floats.
        phase = 2 * pair * t[:, None, None]
        logs = np.log(diagonal) / 2
        value = np.sign(W) * np.exp(np.log(np.abs(W)) + phase)
        error = np.exp(logs[:, None] + logs[None, :] + phase + np.log(second))
    return InitialGrowth(value, np.where((diagonal > 0) & (diagonal[:, None] > 0), error, 0.0))
