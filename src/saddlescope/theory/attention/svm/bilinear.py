"""Local solutions of the nuclear SVM in the factors: W = K Q^T with few columns, by an augmented Lagrangian and Newton.

    minimise f(K, Q) over left_k^T K Q^T right_k >= h_k,    k = 1, ..., N,    K (p, e), Q (q, e),

with f = (|K|_F^2 + |Q|_F^2) / 2, whose least value for given W is |W|_*. L-BFGS minimises f + sum_k l_k^2 / (2 c) with
l_k = max(0, lambda_k + c (h_k - u_k)), then lambda <- l, for growing c. Newton's method on the active constraints then
solves the stationarity equations, which are singular along rotations of the columns, by least squares. The problem is
not convex: each start ends in a local solution.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from saddlescope.theory.attention.svm.constraints import MatrixConstraints


@dataclass(frozen=True, kw_only=True)
class MultiplierPolicy:
    """Limits of the method of multipliers.

    Attributes:
        outer: updates of the multipliers.
        penalty: first, growth and largest over the first, times f / N.
        inner: steps of L-BFGS for each.
        settled: largest violation, over the mean h, that ends the updates.
        newton: steps of Newton's method at the end.
        held: multipliers of this share of the largest are positive.
    """

    outer: int = 40
    penalty: tuple[float, float, float] = (10.0, 3.0, 1e4)
    inner: int = 300
    settled: float = 1e-8
    newton: int = 12
    held: float = 1e-9


_POLICY = MultiplierPolicy()


@dataclass(frozen=True, eq=False)
class LocalPoint:
    """Local solution.

    Attributes:
        left, right: K (p, e), Q (q, e), balanced, K^T K = Q^T Q diagonal.
        multipliers: lambda (N,).
    """

    left: Float[np.ndarray, "p e"]
    right: Float[np.ndarray, "q e"]
    multipliers: Float[np.ndarray, "N"]


@dataclass(frozen=True, eq=False)
class BilinearProblem:
    """SVM in the factors K and Q.

    Attributes:
        within: the constraints.
        size: approximate value of f at a solution.
    """

    within: MatrixConstraints
    size: float

    def solve(self, right: Float[np.ndarray, "q e"], multipliers: Float[np.ndarray, "N"]) -> LocalPoint:
        """Solve from Q and multipliers, with K from the gradient."""
        within = self.within
        left = within.dual_matrix(multipliers) @ right
        scale = (2 * self.size) ** 0.25 / np.linalg.norm(left) ** 0.5 / np.linalg.norm(right) ** 0.5
        point = _balanced(scale * left, scale * right, multipliers)
        first = penalty = _POLICY.penalty[0] * self.size / len(within.least)
        for _ in range(_POLICY.outer):
            x = minimize(
                self._augmented,
                _flat(point.left, point.right),
                args=(point, penalty),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": _POLICY.inner, "maxcor": 20, "ftol": 1e-15, "gtol": 1e-9 * self.size**0.5},
            ).x
            left, right = _split(x, point)
            missing = within.least - self._margins(left, right)
            updated = np.maximum(0.0, point.multipliers + penalty * missing)
            settled = float(np.abs(updated - point.multipliers).max()) < _POLICY.settled * penalty
            point = _balanced(left, right, updated)
            if settled:
                break
            penalty = min(_POLICY.penalty[1] * penalty, _POLICY.penalty[2] * first)
        return point

    def refine(self, point: LocalPoint) -> LocalPoint:
        """Take Newton steps as long as they lower the residual of the optimality conditions."""
        least = self._residual(point)
        for _ in range(_POLICY.newton):
            trial = self._newton(point)
            residual = self._residual(trial)
            if not residual < least:
                break
            point, least = trial, residual
        return point

    def value(self, point: LocalPoint) -> float:
        """Return |W| / min margin, an upper bound; infinite where a margin is not positive."""
        margin = float(np.min(self._margins(point.left, point.right) / self.within.least))
        s = np.sum(point.left**2, axis=0)
        length = float(s.sum())
        return length / margin if margin > 1e-9 * length else float("inf")

    def stationarity(self, point: LocalPoint) -> float:
        """Return |grad f - J^T lambda| over |grad f|."""
        gradient = _flat(point.left, point.right)
        return float(np.linalg.norm(gradient - self._pull(point)) / np.linalg.norm(gradient))

    def _margins(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.einsum("ke,ke->k", self.within.left @ left, self.within.right @ right)

    def _pull(self, point: LocalPoint) -> np.ndarray:
        """Return J^T lambda."""
        Z = self.within.dual_matrix(point.multipliers)
        return _flat(Z @ point.right, Z.T @ point.left)

    def _augmented(self, x: np.ndarray, at: LocalPoint, penalty: float) -> tuple[float, np.ndarray]:
        left, right = _split(x, at)
        missing = self.within.least - self._margins(left, right)
        push = np.maximum(0.0, at.multipliers + penalty * missing)
        value = float(x @ x) / 2 + float(push @ push) / (2 * penalty)
        return value, x - self._pull(LocalPoint(left, right, push))

    def _residual(self, point: LocalPoint) -> float:
        """Return the largest violation of stationarity, active margins and constraints."""
        held = point.multipliers > _POLICY.held * point.multipliers.max()
        off = (self._margins(point.left, point.right) - self.within.least) / self.within.least
        return max(self.stationarity(point), float(np.abs(off[held]).max()), float(-off.min()))

    def _newton(self, point: LocalPoint) -> LocalPoint:
        K, Q, within = point.left, point.right, self.within
        (p, e), q = K.shape, Q.shape[0]
        held = point.multipliers > _POLICY.held * point.multipliers.max()
        Z = within.dual_matrix(point.multipliers)
        one, two, mixed = np.eye(p * e), np.eye(q * e), -np.kron(Z, np.eye(e))
        a, b = within.left[held], within.right[held]
        J = np.concatenate(
            [
                np.einsum("kp,ke->kpe", a, b @ Q).reshape(len(a), -1),
                np.einsum("kq,ke->kqe", b, a @ K).reshape(len(a), -1),
            ],
            axis=1,
        )
        system = np.block(
            [[one, mixed, -J[:, : p * e].T], [mixed.T, two, -J[:, p * e :].T], [J, np.zeros((len(a),) * 2)]]
        )
        stationary = self._pull(point) - _flat(K, Q)
        step = np.linalg.lstsq(
            system, np.concatenate([stationary, (within.least - self._margins(K, Q))[held]]), rcond=1e-10
        )[0]
        size = (p + q) * e
        left, right = _split(_flat(K, Q) + step[:size], point)
        multipliers = np.zeros_like(point.multipliers)
        multipliers[held] = np.maximum(0.0, point.multipliers[held] + step[size:])
        return _balanced(left, right, multipliers)


def _flat(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.concatenate([left.ravel(), right.ravel()])


def _split(x: np.ndarray, like: LocalPoint) -> tuple[np.ndarray, np.ndarray]:
    size = like.left.size
    return x[:size].reshape(like.left.shape), x[size:].reshape(like.right.shape)


def _balanced(left: np.ndarray, right: np.ndarray, multipliers: np.ndarray) -> LocalPoint:
    """Return the same product with factors U S^(1/2), V S^(1/2)."""
    (U, R), (V, S) = np.linalg.qr(left), np.linalg.qr(right)
    Y, s, Xt = np.linalg.svd(R @ S.T)
    root = np.sqrt(s)
    return LocalPoint(U @ Y * root, V @ Xt.T * root, multipliers)
