"""Solutions of the symmetric two-layer network in closed form, or by one quadrature, from special starts.

    W       U U^T, (d, d); W0 at time 0
    a_p     strengths, the eigenvalues of A, (d,)
    t       time of gradient flow, dU/dt = -(A E + E A) U with E = W - I

A = a I.       W keeps its eigenvectors; each eigenvalue is logistic, v' = 4 a v (1 - v).
W0 diagonal.   W stays diagonal; w_pp is logistic with a_p in place of a.
W0 = u u^T.    W = v v^T with v = sqrt(rho) e^(A tau) u / |e^(A tau) u|: the direction is that of the power method in
               the time tau with d tau/dt = 2 - rho, the square of the norm follows from
               d rho/d tau = 2 rho (1 - rho) / (2 - rho) d log m/d tau,  m = |e^(A tau) u|^2 / |u|^2, so that
               rho^2 / (1 - rho) = m^2 rho0^2 / (1 - rho0), and t is the integral of 1 / (2 - rho) over tau.

In general no such form is known: dW/dt is quadratic in W, but with products of A from both sides and in between.
"""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.models import symmetric_factor
from saddlescope.theory.concepts.arguments import validate_strengths, validate_times

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


@validate_arguments
def proportional_map(strength: float, start: ArrayLike, times: ArrayLike) -> Float[np.ndarray, "times d d"]:
    """Return W(t) where all directions are equally strong, A = a I.

    Args:
        strength: a, at least 0.
        start: W0, symmetric and positive semidefinite, (d, d).
        times: t, (times,), of either sign as long as the solution exists.

    Raises:
        InputError: a value out of its range, a start that is not symmetric or not positive semidefinite.
    """
    (a,), t = validate_strengths([strength]), validate_times(times, negative=True)
    # The eigenvalues are squared singular values of U, which are accurate next to 0; its zero columns, from a deficient
    # rank, are omitted, since e^(4 a t) would amplify their rounding errors.
    U = symmetric_factor(start, name="start")
    vectors, sizes, _ = np.linalg.svd(U[:, np.any(U != 0, axis=0)], full_matrices=False)
    grown = logistic(sizes**2, 4 * a * t[:, None])
    return (vectors * grown[:, None, :]) @ vectors.T


@validate_arguments
def diagonal_map(strengths: ArrayLike, start: ArrayLike, times: ArrayLike) -> Float[np.ndarray, "times d"]:
    """Return the diagonal of W(t) from a diagonal W0.

    Args:
        strengths: a, (d,), at least 0.
        start: the diagonal of W0, (d,), at least 0.
        times: t, (times,), of either sign as long as the solution exists.

    Raises:
        InputError: a value out of its range.
    """
    a, t, w = validate_strengths(strengths), validate_times(times, negative=True), np.array(start, float)
    if w.shape != a.shape or not np.all((w >= 0) & (w < np.inf)):
        raise InputError(f"start must be {len(a)} finite numbers of at least 0, a diagonal of U U^T; got {start!r}.")
    return logistic(w, 4 * t[:, None] * a)


@validate_arguments
def rank_one_map(strengths: ArrayLike, start: ArrayLike, times: ArrayLike) -> Float[np.ndarray, "times d"]:
    """Return v(t), with W(t) = v v^T, from W0 = u u^T: by quadrature, to about 1e-13 of 1.

    Args:
        strengths: a, (d,), at least 0.
        start: u, (d,), with 0 < |u|^2 < 2, for which the direction advances.
        times: t, (times,), at least 0.

    Raises:
        InputError: a value out of its range.
    """
    a, t, u = validate_strengths(strengths), validate_times(times), np.array(start, float)
    if u.shape != a.shape or not np.all(np.isfinite(u)) or not 0 < u @ u < 2:
        raise InputError(
            f"start must be {len(a)} finite numbers, not all 0, with squares that sum to less than 2; got {start!r}."
        )
    rho0 = float(u @ u)
    moving = (u != 0) & (a > 0)
    log_shares = 2 * np.log(np.abs(u[u != 0])) - np.log(rho0)
    fast = float(a[u != 0].max())

    def squared_norm(tau: np.ndarray) -> np.ndarray:
        """Return rho, from h = m rho0 by rho^2 / (1 - rho) = h^2 / (1 - rho0); h may leave the range of floats."""
        log_h = np.log(rho0) + np.logaddexp.reduce(log_shares + 2 * tau[..., None] * a[u != 0], axis=-1)
        small = np.exp(-np.abs(log_h))
        with np.errstate(invalid="ignore"):  # h >= 1 where rho0 >= 1
            return np.where(
                log_h > 0,
                2 / (1 + np.sqrt(1 + 4 * (1 - rho0) * small**2)),
                2 * small / (small + np.sqrt(small**2 + 4 * (1 - rho0))),
            )

    def elapsed(start: np.ndarray, width: np.ndarray) -> np.ndarray:
        """Return the time in which tau goes from start to start + width."""
        tau = start[:, None] + width[:, None] * (_NODES + 1) / 2
        return width / 2 * np.sum(_WEIGHTS / (2 - squared_norm(tau)), axis=1)

    # tau <= 2 t below rho = 1, and <= t above. Where log h > 25, rho is 1 and d tau = dt.
    end = 2 * float(t.max(initial=0.0))
    if moving.any():
        last = np.max(25 - np.log(rho0) - log_shares[a[u != 0] > 0]) / (2 * a[moving].min())
        end = min(end, float(last))
    panels = max(1, int(np.ceil(4 * fast * end)))  # short against 1 / (4 a), the width of a logistic
    edges = np.linspace(0.0, end, panels + 1)
    at_edges = np.concatenate([[0.0], np.cumsum(elapsed(edges[:-1], np.diff(edges)))])
    panel = np.clip(np.searchsorted(at_edges, t, side="right") - 1, 0, panels - 1)
    tau = np.interp(t, at_edges, edges) + np.maximum(t - at_edges[-1], 0.0)
    for _ in range(8):  # Newton's method on t(tau), convex or concave within a panel, from the secant's answer
        at_tau = at_edges[panel] + elapsed(edges[panel], np.minimum(tau, end) - edges[panel])
        tau = np.maximum(tau - (at_tau + np.maximum(tau - end, 0.0) - t) * (2 - squared_norm(tau)), 0.0)
    growth = tau[:, None] * (a - fast)
    direction = u * np.exp(np.minimum(growth, 0.0))
    return direction * np.sqrt(squared_norm(tau) / np.sum(direction**2, axis=1))[:, None]


def logistic(start: Float[np.ndarray, "d"], phase: Float[np.ndarray, "times #d"]) -> Float[np.ndarray, "times d"]:
    """Return v(x) with v' = v (1 - v) at the phases x, from any v(0) of at least 0; exactly 0 from 0."""
    with np.errstate(over="ignore"):
        return np.where(start > 0, start / np.where(start > 0, start + (1 - start) * np.exp(-phase), 1.0), 0.0)
