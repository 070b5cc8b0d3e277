"""Slow twins: plain float64 (or exact) versions of what the package computes fast. They are its specification."""

import numpy as np

# measure: from the matrix itself, by the definitions


def product_update(left, right, left0, right0):
    """left right^T - left0 right0^T in long double, where the cancellation of six digits leaves thirteen."""
    L, R, L0, R0 = (np.asarray(factor).astype(np.longdouble) for factor in (left, right, left0, right0))
    return (L @ np.swapaxes(R, -1, -2) - L0 @ np.swapaxes(R0, -1, -2)).astype(np.float64)


def singular_values(matrix):
    return np.linalg.svd(np.asarray(matrix, dtype=np.float64), compute_uv=False)


def stable_rank_of(matrix):
    return np.linalg.norm(matrix, "fro") ** 2 / np.linalg.norm(matrix, 2) ** 2


def numerical_rank_of(matrix, level):
    return np.linalg.matrix_rank(matrix, tol=level)


def effective_rank_of(matrix):
    """exp of the entropy of s / |W|_nuclear; s are the positive eigenvalues of [[0, W], [W^T, 0]]."""
    m, n = matrix.shape
    symmetric = np.block([[np.zeros((m, m)), matrix], [matrix.T, np.zeros((n, n))]])
    shares = np.linalg.eigvalsh(symmetric)[::-1][: min(m, n)] / np.linalg.norm(matrix, "nuc")
    return np.exp(-sum(p * np.log(p) for p in shares if p > 0))


def energy_rank_of(matrix, fraction):
    """The least rank of an approximation U_k S_k V_k^T that leaves at most 1 - fraction of the squared norm."""
    U, s, Vt = np.linalg.svd(matrix)
    for k in range(1, len(s) + 1):
        left_over = matrix - (U[:, :k] * s[:k]) @ Vt[:k]
        if np.linalg.norm(left_over, "fro") ** 2 <= (1 - fraction) * np.linalg.norm(matrix, "fro") ** 2:
            return k
    raise AssertionError("rounding left more than the fraction allows")
