"""Bounds on every entry of the symmetric two-layer network's map, for gradient flow from any start whatever.

They take the place of Lemmas D.1, D.2, D.3 and D.5 of the paper, which need assumptions that nothing meets once they
are corrected (see `check_assumptions`), and hold without any.

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

The ceiling is sharp on diagonal starts. The growth is worth something until the strongest entry is no longer small.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.models import symmetric_factor
from saddlescope.theory.concepts.closed_forms import diagonal_map
from saddlescope.theory.concepts.update_terms import checked_strengths


@dataclass(frozen=True, eq=False, repr=False)
class InitialGrowth(ReprMixin):
    """Exponential growth of every entry, and how far W can be from it.

    Attributes:
        value: (times, d, d), w_ij(0) e^(2 (a_i + a_j) t); infinite where float64 ends, as is the error.
        error: (times, d, d), a bound of |w_ij(t) - value|.
    """

    value: Float[np.ndarray, "times d d"]
    error: Float[np.ndarray, "times d d"]


@validate_arguments
def map_ceiling(strengths: ArrayLike, start: ArrayLike, times: ArrayLike) -> Float[np.ndarray, "times d d"]:
    """A bound of |w_ij(t)| at all later times: sqrt(L_i L_j).

    Args:
        strengths: a, (d,), at least 0.
        start: W0, symmetric and positive semidefinite, (d, d).
        times: t, (times,), at least 0.

    Raises:
        InputError: values out of their range, or shapes that do not fit.
    """
    a, W, t = _checked(strengths, start, times)
    roots = np.sqrt(diagonal_map(a, np.diag(W), t))
    return roots[:, :, None] * roots[:, None, :]


@validate_arguments
def initial_growth(strengths: ArrayLike, start: ArrayLike, times: ArrayLike) -> InitialGrowth:
    """The growth of every entry as long as W is small, with a bound of the error.

    Args:
        strengths: a, (d,), at least 0.
        start: W0, symmetric and positive semidefinite, (d, d).
        times: t, (times,), at least 0.

    Raises:
        InputError: values out of their range, or shapes that do not fit.
    """
    a, W, t = _checked(strengths, start, times)
    pair = a[:, None] + a[None, :]
    diagonal = np.diag(W)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        passed = np.where(a > 0, np.expm1(4 * a * t[:, None]) / (4 * a), t[:, None])
        second = np.einsum("tk,ijk->tij", np.where(diagonal > 0, passed * diagonal, 0.0), pair[:, :, None] + 2 * a)
        # In logarithms, so that what is 0 stays 0 where the growth leaves the range of floats.
        phase = 2 * pair * t[:, None, None]
        logs = np.log(diagonal) / 2
        value = np.sign(W) * np.exp(np.log(np.abs(W)) + phase)
        error = np.exp(logs[:, None] + logs[None, :] + phase + np.log(second))
    return InitialGrowth(value, np.where((diagonal > 0) & (diagonal[:, None] > 0), error, 0.0))


def _checked(strengths: ArrayLike, start: ArrayLike, times: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a = checked_strengths(strengths)
    symmetric_factor(start, name="start")
    W, t = np.array(start, float), np.array(times, float)
    if len(W) != len(a):
        raise InputError(
            f"start must have shape {(len(a), len(a))!r}, as there are {len(a)} strengths; got {W.shape!r}."
        )
    if t.ndim != 1 or not np.all((t >= 0) & (t < np.inf)):
        raise InputError(f"times must be a list of finite numbers of at least 0; got {times!r}.")
    return a, W, t
