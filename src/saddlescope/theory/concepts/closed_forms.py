"""Starts from which the symmetric two-layer network has a solution in closed form, or by one quadrature.

    W       U U^T, (d, d); W0 at time 0
    a_p     strengths, the eigenvalues of A, (d,)
    t       time of gradient flow, dU/dt = -(A E + E A) U with E = W - I

A = a I.       W keeps its eigenvectors; each eigenvalue is logistic, v' = 4 a v (1 - v).
W0 diagonal.   W stays diagonal; w_pp is logistic with a_p in place of a.
W0 = u u^T.    W = v v^T with v = sqrt(rho) e^(A tau) u / |e^(A tau) u|: the direction is that of the power method in
               the time tau with d tau/dt = 2 - rho, the square of the norm follows from
               d rho/d tau = 2 rho (1 - rho) / (2 - rho) d log m/d tau,  m = |e^(A tau) u|^2 / |u|^2, so that
               rho^2 / (1 - rho) = m^2 rho0^2 / (1 - rho0), and t is the integral of 1 / (2 - rho) over tau.

In general there is no such form: dW/dt is quadratic in W, but with products of A from both sides and in between.
"""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.models import symmetric_factor
from saddlescope.theory.concepts.update_terms import checked_strengths

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


@validate_arguments
def proportional_map(strength: float, start: ArrayLike, times: ArrayLike) -> Float[np.ndarray, "times d d"]:
    """W(t) where all directions are equally strong, A = a I.

    Args:
        strength: a, at least 0.
        start: W0, symmetric and positive semidefinite, (d, d).
        times: t, (times,), of either sign as long as the solution exists.

    Raises:
        InputError: a value out of its range, a start that is not symmetric or not positive semidefinite.
    """
    (a,), t = checked_strengths([strength]), _checked_times(times)
    # The eigenvalues are squared singular values of U, which keep their digits next to 0; its zero columns, the lack of
    # rank, are left out, since e^(4 a t) would make something of their rounding errors.
    U = symmetric_factor(start, name="start")
    vectors, sizes, _ = np.linalg.svd(U[:, np.any(U != 0, axis=0)], full_matrices=False)
    grown = logistic(sizes**2, 4 * a * t[:, None])
    return (vectors * grown[:, None, :]) @ vectors.T


@validate_arguments
def diagonal_map(strengths: ArrayLike, start: ArrayLike, times: ArrayLike) -> Float[np.ndarray, "times d"]:
    """The diagonal of W(t) from a diagonal W0.

    Args:
        strengths: a, (d,), at least 0.
        start: the diagonal of W0, (d,), at least 0.
        times: t, (times,), of either sign as long as the solution exists.

    Raises:
        InputError: a value out of its range.
    """
    a, t, w = checked_strengths(strengths), _checked_times(times), np.array(start, float)
    if w.shape != a.shape or not np.all((w >= 0) & (w < np.inf)):
        raise InputError(f"start must be {len(a)} finite numbers of at least 0, a diagonal of U U^T; got {start!r}.")
    return logistic(w, 4 * t[:, None] * a)


@validate_arguments
def rank_one_map(strengths: ArrayLike, start: ArrayLike, times: ArrayLike) -> Float[np.ndarray, "times d"]:
    """v(t), with W(t) = v v^T, from W0 = u u^T: by quadrature, to about 1e-13 of 1.

    Args:
        strengths: a, (d,), at least 0.
        start: u, (d,), with 0 < |u|^2 < 2, where the direction moves on.
        times: t, (times,), at least 0.

    Raises:
        InputError: a value out of its range.
    """
    a, t, u = checked_strengths(strengths), _checked_times(times), np.array(start, float)
    if u.shape != a.shape or not np.all(np.isfinite(u)) or not 0 < u @ u < 2:
        raise InputError(
            f"start must be {len(a)} finite numbers, not all 0, with squares that sum to less than 2; got {start!r}."
        )
    if t.size and t.min() < 0:
        raise InputError(f"times must not be negative; got {float(t.min())!r} among them.")
    rho0 = float(u @ u)
    moving = (u != 0) & (a > 0)
    log_shares = 2 * np.log(np.abs(u[u != 0])) - np.log(rho0)
    fast = float(a[u != 0].max())

    def squared_norm(tau: np.ndarray) -> np.ndarray:
        """Rho, from h = m rho0 by rho^2 / (1 - rho) = h^2 / (1 - rho0); h leaves the range of floats on either side."""
        log_h = np.log(rho0) + np.logaddexp.reduce(log_shares + 2 * tau[..., None] * a[u != 0], axis=-1)
        small = np.exp(-np.abs(log_h))
        with np.errstate(invalid="ignore"):  # h >= 1 where rho0 >= 1
            return np.where(
                log_h > 0,
                2 / (1 + np.sqrt(1 + 4 * (1 - rho0) * small**2)),
                2 * small / (small + np.sqrt(small**2 + 4 * (1 - rho0))),
            )

    def passed(start: np.ndarray, width: np.ndarray) -> np.ndarray:
        """The time in which tau goes from start to start + width."""
        tau = start[:, None] + width[:, None] * (_NODES + 1) / 2
        return width / 2 * np.sum(_WEIGHTS / (2 - squared_norm(tau)), axis=1)

    # tau <= 2 t below rho = 1, and <= t above. Where log h > 25, rho is 1 and tau goes as t does.
    end = 2 * float(t.max(initial=0.0))
    if moving.any():
        settled = np.max(25 - np.log(rho0) - log_shares[a[u != 0] > 0]) / (2 * a[moving].min())
        end = min(end, float(settled))
    panels = max(1, int(np.ceil(4 * fast * end)))  # short against 1 / (4 a), the width of a logistic
    edges = np.linspace(0.0, end, panels + 1)
    at_edges = np.concatenate([[0.0], np.cumsum(passed(edges[:-1], np.diff(edges)))])
    panel = np.clip(np.searchsorted(at_edges, t, side="right") - 1, 0, panels - 1)
    tau = np.interp(t, at_edges, edges) + np.maximum(t - at_edges[-1], 0.0)
    for _ in range(8):  # Newton's method on t(tau), convex or concave within a panel, from the secant's answer
        spent = at_edges[panel] + passed(edges[panel], np.minimum(tau, end) - edges[panel]) + np.maximum(tau - end, 0.0)
        tau = np.maximum(tau - (spent - t) * (2 - squared_norm(tau)), 0.0)
    growth = tau[:, None] * (a - fast)
    direction = u * np.exp(np.minimum(growth, 0.0))
    return direction * np.sqrt(squared_norm(tau) / np.sum(direction**2, axis=1))[:, None]


def logistic(start: Float[np.ndarray, "d"], phase: Float[np.ndarray, "times #d"]) -> Float[np.ndarray, "times d"]:
    """v(x) with v' = v (1 - v) at the phases x, from any v(0) of at least 0; exactly 0 from 0."""
    with np.errstate(over="ignore"):
        return np.where(start > 0, start / np.where(start > 0, start + (1 - start) * np.exp(-phase), 1.0), 0.0)


def _checked_times(times: ArrayLike) -> Float[np.ndarray, "times"]:
    t = np.array(times, float)
    if t.ndim != 1 or not np.all(np.isfinite(t)):
        raise InputError(f"times must be a list of finite numbers; got {times!r}.")
    return t
