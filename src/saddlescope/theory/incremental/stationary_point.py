"""Strict local minima within a face of an orthant: the ends of transitions between stages.

A transition has some coordinates at zero and the signs of the others fixed. There, with |u| = |v|,

    A         the coordinates that are not zero
    D         their signs on the diagonal: beta_A = D x
    x         |beta_A| > 0, the point
    r         D^T g_A - lambda, the rate: (log x)' = 2 r under gradient flow with weight decay lambda (equation 4)
    H         D^T (d^2 L / dbeta_A^2) D

Coordinates that are tied, s_i g_i = s_j g_j on all of the face, preserve their ratio. They count as one
coordinate x, their sum, and its column of D holds the shares: the same equations hold in fewer variables, and a minimum
that is flat along x_i - x_j is strict in these.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import get_lapack_funcs

from saddlescope.loss.checks import ROUGH, rounding_share
from saddlescope.theory.incremental.loss_oracle import LossOracle
from saddlescope.theory.saddle.path import NonFiniteLossError


@dataclass(frozen=True, kw_only=True)
class SecantNewtonPolicy:
    """Limits of Newton's method with secants. Steps are relative to each coordinate.

    Attributes:
        steps: largest number; a step that does not shrink ends the search long before.
        restarts: recomputations of the Hessian where secants do not make steps shrink.
        secant: steps below it do not update the Hessian: their differences of rates are mostly rounding.
        rounding: steps that no longer shrink are rounding if they are at most this,
        rounding_at_most: or this with an exact Hessian, where only rounding can stop them.
    """

    steps: int = 60
    restarts: int = 2
    secant: float = 1e-6
    rounding: float = 1e-12
    rounding_at_most: float = 1e-8


_POLICY = SecantNewtonPolicy()

(_solve_positive,) = get_lapack_funcs(("posv",), dtype=np.float64)  # without the checks of cho_factor, called often


@dataclass(frozen=True, eq=False)
class StationaryPoint:
    """Stationary point theta^k = (u, s * u) that is a strict local minimum on its support (Assumption 4.4).

    Attributes:
        beta: s * u^2, shape (p,).
        loss: L(beta), with the penalty of weight decay.
        gradient: g(beta) = -dL/dbeta, shape (p,); zero on the support up to rounding, or lambda times
            the sign of beta under weight decay.
        curvature: the constant c of Assumption 4.4, L(u~, s u~) - L(u, s u) >= c |u~ - u|^2 near u on the support: half
            the smallest eigenvalue of the Hessian in u. Infinite where the support is empty, 0 where coordinates are
            tied.
        convergence_rate: gradient flow approaches the point as exp(-convergence_rate t). The same constant, but with
            tied coordinates counted as one.
        scale: the size of the terms that cancel in g, max_i sum_j |H_ij| |beta_j| on the support; 0 where it is empty.
    """

    beta: Float[np.ndarray, "p"]
    loss: float
    gradient: Float[np.ndarray, "p"]
    curvature: float
    convergence_rate: float
    scale: float


@dataclass(frozen=True, eq=False)
class Face:
    """Face of an orthant of R^p that contains a transition.

    Attributes:
        oracle: the loss.
        among: A, ascending.
        directions: D, shape (|A|, m); in each row one entry is not zero, and those of a column add up to 1 in size.
    """

    oracle: LossOracle
    among: Int[np.ndarray, "a"]
    directions: Float[np.ndarray, "a m"]

    @classmethod
    def of(cls, oracle: LossOracle, beta: Float[np.ndarray, "p"]) -> "Face":
        """Return the face with the signs of beta, which is in its interior."""
        among = np.flatnonzero(beta)
        return cls(oracle, among, np.diag(np.sign(beta[among])))

    @property
    def ties(self) -> bool:
        """True if several coordinates count as one."""
        return self.among.size > self.directions.shape[1]

    def beta(self, x: Float[np.ndarray, "m"]) -> Float[np.ndarray, "p"]:
        """Return the point x as a vector of all p coordinates."""
        beta = np.zeros(self.oracle.size)
        beta[self.among] = self.directions @ x
        return beta

    def sizes(self, beta: Float[np.ndarray, "p"]) -> Float[np.ndarray, "m"]:
        """Return x of a vector of all p coordinates."""
        return (self.directions != 0).T @ np.abs(beta[self.among])

    def rates(self, gradient: Float[np.ndarray, "p"]) -> Float[np.ndarray, "m"]:
        """Return r where g is `gradient`."""
        return gradient[self.among] @ self.directions - self.oracle.decay

    def rate(self, x: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
        """Return r at x; raise NonFiniteLossError where the loss is not finite."""
        return self.rates(self.oracle.value_and_gradient(self.beta(x))[1])

    def hessian(self, x: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m m"]:
        """Return H at x; raise NonFiniteLossError where the loss is not finite."""
        H = self.oracle.hessian_columns(self.beta(x), self.among, rows=self.among)
        return self.directions.T @ H @ self.directions

    def restricted(self, keep: Bool[np.ndarray, "m"]) -> "Face":
        """Return the smaller face on which the other coordinates are zero."""
        rows = (self.directions[:, keep] != 0).any(axis=1)
        return Face(self.oracle, self.among[rows], self.directions[np.ix_(rows, keep)])


def vanishing(
    x: Float[np.ndarray, "m"],
    r: Float[np.ndarray, "m"],
    H: Float[np.ndarray, "m m"],
    peak: Float[np.ndarray, "m"],
    fraction: float,
) -> Bool[np.ndarray, "m"]:
    """Return a mask of the coordinates that tend to zero: far below their peak, falling, and not about to stop."""
    falling = (r < 0) & (x <= fraction * peak)
    return falling & (np.diag(H) * x + r <= 0)


def newton_displacement(
    x: Float[np.ndarray, "m"], r: Float[np.ndarray, "m"], H: Float[np.ndarray, "m m"]
) -> Float[np.ndarray, "m"]:
    """Return the Newton step relative to x, or infinity where H is not positive definite or an entry of x is 0.

    It is computed in log-scaled form, sqrt(x) H sqrt(x), since the entries of x may differ by many orders.
    """
    if np.any(x <= 0):
        return np.full_like(x, np.inf)
    if not x.size:
        return x
    root = np.sqrt(x)
    _, scaled, failed = _solve_positive(root[:, None] * H * root, root * r)
    return np.full_like(x, np.inf) if failed else scaled / root


def secant(
    H: Float[np.ndarray, "m m"], dx: Float[np.ndarray, "m"], fall: Float[np.ndarray, "m"]
) -> Float[np.ndarray, "m m"]:
    """Return the symmetric matrix closest to H with H dx = fall, the observed fall of the rates.

    This is Powell's symmetric form of Broyden's update. Unlike an update of rank one it cannot be large where the
    observation is small.
    """
    size = float(np.linalg.norm(dx))
    if size == 0.0:
        return H
    along, missing = dx / size, (fall - H @ dx) / size
    half = np.outer(missing - 0.5 * (along @ missing) * along, along)
    return H + half + half.T


def _convex_secant(
    H: Float[np.ndarray, "m m"], dx: Float[np.ndarray, "m"], fall: Float[np.ndarray, "m"]
) -> Float[np.ndarray, "m m"]:
    """Return H updated to H dx = fall so that it stays positive definite; near a minimum better than `secant`.

    This is the update of Broyden, Fletcher, Goldfarb and Shanno; where none stays positive definite, it is `secant`.
    """
    before, largest = H @ dx, float(np.max(np.abs(fall), initial=0.0))
    unit = fall / (largest or 1.0)  # whose square is in the range of float64
    if dx @ unit <= 1e-8 * np.linalg.norm(dx) * np.linalg.norm(unit) or dx @ before <= 0:
        return secant(H, dx, fall)
    old, new = before / np.sqrt(dx @ before), fall / np.sqrt(dx @ fall)
    return H - np.outer(old, old) + np.outer(new, new)


def newton_polish(
    face: Face,
    x: Float[np.ndarray, "m"],
    H: Float[np.ndarray, "m m"],
    zero: Bool[np.ndarray, "m"],
    *,
    reach: float,
    noise: float,
) -> StationaryPoint | None:
    """Solve for the strict local minimum in which gradient flow from x ends; return None if that is not certain.

    Certain means: no coordinate moves by more than a factor 1 +- reach in the first step; every step is at most half
    the one before, down to rounding, with a positive definite Hessian; the Hessian at the end is positive definite; the
    coordinates set to zero are pushed towards zero there (s_j g_j < 0: Karush, Kuhn and Tucker's condition with strict
    complementarity); and rounding hides no end. The Hessian is updated by secants. Where they fail it is recomputed,
    and the search restarts from the current point.

    Args:
        face: the face to search.
        x: the flow's present point.
        H: the Hessian there, or a good approximation.
        zero: coordinates that leave the support.
        reach: largest relative displacement of the first step.
        noise: rounding error of an entry of g.
    """
    kept = face.restricted(~zero)
    try:
        end = _newton(kept, x[~zero], H[np.ix_(~zero, ~zero)], reach)
        if end is None:
            return None
        beta = kept.beta(end)
        loss, gradient = face.oracle.value_and_gradient(beta)
        H = kept.hessian(end)
        scale = float(np.max(np.abs(H) @ end, initial=0.0))
        if end.size and rounding_share(kept.rate, end, -H @ end, scale) > ROUGH:
            return None
    except NonFiniteLossError:
        return None
    pushed_to_zero = np.all(face.rates(gradient)[zero] < -noise)
    c = curvature(end, H)
    if not (pushed_to_zero and c > 0):
        return None
    loss += face.oracle.decay * float(np.sum(np.abs(beta)))
    return StationaryPoint(beta, loss, gradient, curvature=0.0 if kept.ties else c, convergence_rate=c, scale=scale)


def _newton(
    face: Face, x: Float[np.ndarray, "m"], H: Float[np.ndarray, "m m"], reach: float
) -> Float[np.ndarray, "m"] | None:
    if not x.size:
        return x
    r, allowed, exact, restarts = face.rate(x), reach, False, 0
    last = reach
    for _ in range(_POLICY.steps):
        displacement = newton_displacement(x, r, H)
        step = float(np.max(np.abs(displacement)))
        if step > allowed:
            if step <= (_POLICY.rounding_at_most if exact else _POLICY.rounding):
                return x
            if exact or restarts == _POLICY.restarts:
                return None
            H, exact, restarts, allowed = face.hessian(x), True, restarts + 1, reach
            continue
        dx = x * displacement
        x = x + dx
        if step <= np.finfo(x.dtype).eps or (step <= _POLICY.secant and step * step <= np.finfo(x.dtype).eps * last):
            return x  # the next step, if it shrinks by the same factor, is rounding
        last = step
        before, r = r, face.rate(x)
        if step > _POLICY.secant:
            H, exact = _convex_secant(H, dx, before - r), False
        allowed = 0.5 * step
    return None


def curvature(x: Float[np.ndarray, "m"], H: Float[np.ndarray, "m m"]) -> float:
    """Return half the smallest eigenvalue of 4 diag(u) H diag(u), the Hessian of L(u, s u) where u^2 = x.

    It is 0 where rounding could have made it: a flat direction must not pass for a strict minimum.
    """
    if not x.size:
        return np.inf
    root = np.sqrt(x)
    eigenvalues = np.linalg.eigvalsh(root[:, None] * H * root)
    noise = x.size * np.finfo(float).eps * np.max(np.abs(eigenvalues))
    return 2.0 * float(eigenvalues[0]) if abs(eigenvalues[0]) > noise else 0.0
