"""Local solutions of the nuclear SVM in the factors: W = K Q^T with few columns, by an augmented Lagrangian.

    minimise f(K, Q) over left_k^T K Q^T right_k >= h_k,    k = 1, ..., N,    K (p, e), Q (q, e),

with f = (|K|_F^2 + |Q|_F^2) / 2, whose least value for given W is |W|_*. L-BFGS minimises f + sum_k l_k^2 / (2 c) with
l_k = max(0, lambda_k + c (h_k - u_k)), then lambda <- l, for growing c. The problem is not convex: each start ends in a
local solution.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from saddlescope.theory.attention.svm.constraints import MatrixConstraints

Factors = tuple[Float[np.ndarray, "p e"], Float[np.ndarray, "q e"]]


@dataclass(frozen=True, kw_only=True)
class MultiplierPolicy:
    """Limits of the method of multipliers.

    Attributes:
        outer: updates of the multipliers.
        penalty: first, growth and largest over the first, times f / N.
        inner: steps of L-BFGS for each.
        settled: largest violation, over the mean h, that ends the updates.
    """

    outer: int = 40
    penalty: tuple[float, float, float] = (10.0, 3.0, 1e4)
    inner: int = 300
    settled: float = 1e-8


_POLICY = MultiplierPolicy()


def local_factors(
    within: MatrixConstraints, size: float, right: Float[np.ndarray, "q e"], multipliers: Float[np.ndarray, "N"]
) -> Factors:
    """Return K and Q of a local solution, balanced, K^T K = Q^T Q diagonal.

    Args:
        within: the constraints.
        size: approximate value of f at a solution.
        right: Q to start from; K is that of the gradient.
        multipliers: lambda to start from.
    """
    left = within.dual_matrix(multipliers) @ right
    scale = (2 * size) ** 0.25 / np.linalg.norm(left) ** 0.5 / np.linalg.norm(right) ** 0.5
    left, right = _balanced(scale * left, scale * right)
    split = left.size

    def factors(x: np.ndarray) -> Factors:
        return x[:split].reshape(left.shape), x[split:].reshape(right.shape)

    def augmented(x: np.ndarray, multipliers: np.ndarray, penalty: float) -> tuple[float, np.ndarray]:
        K, Q = factors(x)
        push = np.maximum(0.0, multipliers + penalty * (within.least - _margins(within, K, Q)))
        Z = within.dual_matrix(push)
        gradient = x - np.concatenate([(Z @ Q).ravel(), (Z.T @ K).ravel()])
        return float(x @ x) / 2 + float(push @ push) / (2 * penalty), gradient

    first = penalty = _POLICY.penalty[0] * size / len(within.least)
    for _ in range(_POLICY.outer):
        x = minimize(
            augmented,
            np.concatenate([left.ravel(), right.ravel()]),
            args=(multipliers, penalty),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _POLICY.inner, "maxcor": 20, "ftol": 1e-15, "gtol": 1e-9 * size**0.5},
        ).x
        K, Q = factors(x)
        updated = np.maximum(0.0, multipliers + penalty * (within.least - _margins(within, K, Q)))
        settled = float(np.abs(updated - multipliers).max()) < _POLICY.settled * penalty
        (left, right), multipliers = _balanced(K, Q), updated
        if settled:
            break
        penalty = min(_POLICY.penalty[1] * penalty, _POLICY.penalty[2] * first)
    return left, right


def local_value(within: MatrixConstraints, left: Float[np.ndarray, "p e"], right: Float[np.ndarray, "q e"]) -> float:
    """Return |W| / min margin, an upper bound, for balanced factors; infinite where a margin is not positive."""
    margin = float(np.min(_margins(within, left, right) / within.least))
    length = float(np.sum(left**2))
    return length / margin if margin > 1e-9 * length else float("inf")


def _margins(within: MatrixConstraints, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.einsum("ke,ke->k", within.left @ left, within.right @ right)


def _balanced(left: np.ndarray, right: np.ndarray) -> Factors:
    """Return the same product with factors U S^(1/2), V S^(1/2)."""
    (U, R), (V, S) = np.linalg.qr(left), np.linalg.qr(right)
    Y, s, Xt = np.linalg.svd(R @ S.T)
    root = np.sqrt(s)
    return U @ Y * root, V @ Xt.T * root
