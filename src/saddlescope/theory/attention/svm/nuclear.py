"""The (W_*-SVM), the least nuclear norm that separates the tokens, by a proximal point method with Newton steps.

With a step sigma, M_k+1 minimises |M|_* + |M - M_k|_F^2 / (2 sigma) over a_il^T M b_i >= h_il. Its dual is smooth,

    minimise  |P(M_k + sigma Z(lambda))|_F^2 / (2 sigma) - h . lambda  over  lambda >= 0,      M_k+1 = P(M_k + sigma Z),

P lowering singular values by sigma, not below 0: weights have an exact rank, and the gradient is margins - h. Newton
steps with the generalised Hessian, each a quadratic program (`nonnegative_minimum`), solve it from the last
lambda; the outer iteration converges linearly, the faster the larger sigma, and rounding grows with sigma.

Jiang, Sun and Toh (2014), "A partial proximal point algorithm for nuclear norm regularized matrix least squares
problems"; the generalised Hessian after Lewis and Sendov (2005).
"""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.progress import Report, silent
from saddlescope.models.tokens.data import TokenData
from saddlescope.theory.attention.svm.constraints import MatrixConstraints
from saddlescope.theory.attention.svm.frobenius import frobenius_multipliers
from saddlescope.theory.attention.svm.nonnegative_least_squares import nonnegative_minimum
from saddlescope.theory.attention.svm.rank_bounded import check_search, rank_bounded_svm
from saddlescope.theory.attention.svm.solution import MatrixSvm, matrix_solution


@dataclass(frozen=True, kw_only=True)
class ProximalPolicy:
    """Limits of the proximal steps, of size sigma.

    Attributes:
        gap: relative gap that ends them.
        moved: |M_k+1 - M_k|_F / sigma, of the same order where the gap is linear in errors, not quadratic.
        growth: of sigma, from one step to the next.
        largest: sigma, in units of the first; its rounding is below the target gap.
        steps: largest number.
        newton_steps: of Newton's method for each.
        stalled: steps without halving the gap.
    """

    gap: float = 5e-12
    moved: float = 1e-11
    growth: float = 4.0
    largest: float = 1e3
    steps: int = 100
    newton_steps: int = 60
    stalled: int = 8


_POLICY = ProximalPolicy()
_SLOW, _ROUGH = 0.3, 1e-9  # a step that leaves a larger part of a larger gap needs a larger sigma, despite its rounding
_RIDGE, _RIDGES = 1e-8, 4  # over the mean diagonal and the residual; number of growing ridges tried


@validate_arguments
def nuclear_svm(
    data: TokenData,
    rank_bound: int | None = None,
    *,
    num_starts: int = 16,
    seed: int = 0,
    report: Report = silent,
) -> MatrixSvm:
    """Solve the (W_*-SVM): min |W|_* over D_il^T W z_i >= 1; with a rank bound, possibly only locally.

    Args:
        data: n samples of L tokens.
        rank_bound: d_e, the largest rank; None for no bound. Below the rank of the solution without it, the problem is
            not convex, and `local` of the result describes the search.
        num_starts: number of random starts of the search for a local solution.
        seed: of the starts.
        report: called with the finished fraction after each proximal step and each start.

    Raises:
        InputError: data that no W separates, the message names samples of a Farkas certificate; a rank that no W found
            has, or one below 1.
        ArithmeticError: the certificate was not reached.
    """
    check_search(rank_bound, num_starts, seed)
    within = MatrixConstraints.of(data)
    convex = _proximal_solution(data, within, report)
    return rank_bounded_svm(data, convex, rank_bound, num_starts=num_starts, seed=seed, report=report)


def _proximal_solution(data: TokenData, within: MatrixConstraints, report: Report) -> MatrixSvm:
    """Return the solution without a rank bound.

    Raises:
        InputError: the constraints have no solution.
    """
    multipliers = frobenius_multipliers(data, within)
    M = within.dual_matrix(multipliers)
    sigma = largest = float(np.linalg.norm(M, 2))
    multipliers = multipliers / sigma
    best, found, since = np.inf, None, 0
    for number in range(_POLICY.steps):
        report(0.5 * number / _POLICY.steps, f"proximal step {number + 1}")
        step = _ProximalStep(within, M, sigma)
        multipliers, point = step.solve(multipliers, accuracy=min(1e-2, 1e-2 * best))
        moved = float(np.linalg.norm(point.primal - M)) / sigma  # distance of Z from the subdifferential
        M = point.primal
        gap = _gap(within, point, multipliers)
        slow = gap > _SLOW * best
        since = 0 if gap < 0.5 * best else since + 1
        if gap < max(best, _POLICY.gap) or found is None:  # below _POLICY.gap, the last is the best
            best, found = min(gap, best), (point, multipliers)
        if (gap < _POLICY.gap and moved < _POLICY.moved) or since >= _POLICY.stalled:
            break
        if sigma < _POLICY.largest * largest or (slow and best > _ROUGH):
            sigma *= _POLICY.growth
    assert found is not None
    point, multipliers = found
    kept = point.lowered > 0
    root = np.sqrt(point.lowered[kept])
    factors = within.lifted(point.U[:, kept] * root, point.Vt[kept].T * root)
    return matrix_solution(data, factors, within.multipliers(multipliers), "nuclear")


@dataclass(frozen=True, eq=False)
class _Point:
    """Singular values and vectors of M_k + sigma Z(lambda), and P of them."""

    U: np.ndarray
    s: np.ndarray
    Vt: np.ndarray
    lowered: np.ndarray
    value: float

    @property
    def primal(self) -> np.ndarray:
        return (self.U * self.lowered) @ self.Vt


@dataclass(frozen=True, eq=False)
class _ProximalStep:
    """Dual problem of one proximal step."""

    within: MatrixConstraints
    center: np.ndarray
    sigma: float

    def at(self, multipliers: np.ndarray) -> _Point:
        U, s, Vt = np.linalg.svd(self.center + self.sigma * self.within.dual_matrix(multipliers), full_matrices=False)
        lowered = np.maximum(s - self.sigma, 0.0)
        value = float(lowered @ lowered) / (2 * self.sigma) - float(self.within.least @ multipliers)
        return _Point(U, s, Vt, lowered, value)

    def solve(self, multipliers: np.ndarray, *, accuracy: float) -> tuple[np.ndarray, _Point]:
        """Take Newton steps until |min(lambda, gradient)| is below the accuracy, or rounding stops them."""
        point, last = self.at(multipliers), np.inf
        for _ in range(_POLICY.newton_steps):
            gradient = self.within.margins(point.primal) - self.within.least
            residual = float(np.linalg.norm(np.minimum(multipliers, gradient)))
            rounding = 4 * np.finfo(float).eps * float(point.s[0]) * len(multipliers) ** 0.5
            if last < np.inf and (residual < max(accuracy, rounding) or (residual > 0.5 * last and residual < 1e-9)):
                break
            last = residual
            H = self.hessian(point)
            ridge = (1e-14 + _RIDGE * min(1e-3, residual)) * float(np.trace(H)) / len(H)
            aim = _newton_aim(H, multipliers, gradient, ridge)
            multipliers, point = self._searched(multipliers, aim - multipliers, gradient, point.value)
        return multipliers, point

    def _searched(
        self, start: np.ndarray, direction: np.ndarray, gradient: np.ndarray, value: float
    ) -> tuple[np.ndarray, _Point]:
        """Search the line by Armijo's rule from the full step."""
        slope, length = float(gradient @ direction), 1.0
        while True:
            trial = start + length * direction
            point = self.at(trial)
            if point.value <= value + 1e-4 * length * slope + 1e-14 * abs(value) or length < 1e-8:
                return trial, point
            length /= 2

    def hessian(self, point: _Point) -> Float[np.ndarray, "N N"]:
        """Return the matrix sigma <a_k b_k^T, P'(a_l b_l^T)>, from the factors, without an array of (N, p, q).

        On the pairs i < j of singular vectors, P' multiplies symmetric parts by the divided difference
        (g_i - g_j)/(s_i - s_j) and skew ones by (g_i + g_j)/(s_i + s_j), and parts outside of U by g_j/s_j; all vanish
        where both g do.
        """
        g, s = point.lowered, point.s
        r = int(np.sum(g > 0))
        alpha, beta = self.within.left @ point.U, self.within.right @ point.Vt.T
        i, j = np.triu_indices(len(s), 1)
        i, j = i[i < r], j[i < r]
        spread = s[i] - s[j]
        symmetric = np.where(j < r, 1.0, (g[i] - g[j]) / np.where(spread > 0, spread, 1.0))
        skew = (g[i] + g[j]) / (s[i] + s[j])
        one, other = alpha[:, i] * beta[:, j], alpha[:, j] * beta[:, i]
        features = np.concatenate(
            [alpha[:, :r] * beta[:, :r], (one + other) * np.sqrt(symmetric / 2), (one - other) * np.sqrt(skew / 2)],
            axis=1,
        )
        outside = self.within.left_gram - alpha @ alpha.T
        return self.sigma * (features @ features.T + outside * ((beta[:, :r] * (g[:r] / s[:r])) @ beta[:, :r].T))


def _newton_aim(H: np.ndarray, multipliers: np.ndarray, gradient: np.ndarray, ridge: float) -> np.ndarray:
    """Return the minimiser of the quadratic model with a ridge, a larger one where rounding has left H indefinite.

    Raises:
        ArithmeticError: H is indefinite with every ridge.
    """
    places = np.diag_indices_from(H)
    for _ in range(_RIDGES):
        H[places] += ridge
        with suppress(ArithmeticError):
            return nonnegative_minimum(H, H @ multipliers - gradient, multipliers > 0)[0]
        ridge *= 100
    raise ArithmeticError("The Newton system of the nuclear SVM is singular to rounding: its margins are too small.")


def _gap(within: MatrixConstraints, point: _Point, multipliers: np.ndarray) -> float:
    """Return the relative duality gap, 1 where a margin is not positive."""
    margin = float((within.margins(point.primal) / within.exact).min())
    if margin <= 0:
        return 1.0
    spectral = float(np.linalg.norm(within.dual_matrix(multipliers), 2))
    return max(0.0, 1 - float(within.least @ multipliers) / spectral * margin / float(point.lowered.sum()))
