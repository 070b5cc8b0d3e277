"""The (W_*-SVM) as a semidefinite programme, by Clarabel as a modelling language would call it.

min tr(S) / 2 over S = [[P, M], [M^T, R]] >= 0 with D_il^T W z_i >= 1, W = E_x M E_z^T and orthonormal bases E_x, E_z of
the spans of the differences and of the queries.
"""

from typing import Any

import clarabel
import numpy as np
from jaxtyping import Float
from scipy import sparse

from saddlescope.models.tokens.data import TokenData

_clarabel: Any = clarabel  # its names are not declared to type checkers


def semidefinite_nuclear_svm(
    data: TokenData, accuracy: float | None = None
) -> tuple[tuple[Float[np.ndarray, "d q"], Float[np.ndarray, "d q"]], Float[np.ndarray, "n m"]]:
    """Return factors of W, and multipliers, from Clarabel.

    Args:
        data: n samples of L tokens.
        accuracy: absolute and relative tolerances of gap and feasibility; None for Clarabel's own, 1e-8.

    Raises:
        ArithmeticError: Clarabel reports that it did not reach its tolerances.
    """
    n, m, d = data.differences.shape
    left, right = np.linalg.qr(data.differences.reshape(n * m, d).T)[0], np.linalg.qr(data.z.T)[0]
    p, q = left.shape[1], right.shape[1]
    size = (p + q) * (p + q + 1) // 2
    columns = np.arange(p, p + q)
    entries = (columns * (columns + 1) // 2)[None, :] + np.arange(p)[:, None]  # of M in the triangle, by columns
    rows = np.einsum("imp,iq->impq", data.differences @ left, data.z @ right).reshape(n * m, p * q) / 2**0.5
    margins = np.zeros((n * m, size))
    margins[:, entries.ravel()] = rows
    diagonal = np.arange(p + q)
    objective = np.zeros(size)
    objective[diagonal * (diagonal + 3) // 2] = 0.5
    settings = _clarabel.DefaultSettings()
    settings.verbose = False
    if accuracy is not None:
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = accuracy
    solution = _clarabel.DefaultSolver(
        sparse.csc_matrix((size, size)),
        objective,
        sparse.vstack([-sparse.eye_array(size), sparse.csc_matrix(-margins)], format="csc"),
        np.concatenate([np.zeros(size), -np.ones(n * m)]),
        [_clarabel.PSDTriangleConeT(p + q), _clarabel.NonnegativeConeT(n * m)],
        settings,
    ).solve()
    if solution.status != _clarabel.SolverStatus.Solved:
        raise ArithmeticError(f"Clarabel stopped with the status {solution.status}.")
    M = np.asarray(solution.x)[entries] / 2**0.5
    multipliers = np.maximum(np.asarray(solution.z)[size:], 0.0).reshape(n, m)
    return (left @ M, right), multipliers


def conic_frobenius_norm(data: TokenData) -> float:
    """Return the least |W|_F of margin 1, min t over |W|_F <= t, from Clarabel at its own accuracy.

    Raises:
        ArithmeticError: Clarabel reports that it did not reach its tolerances.
    """
    rows = np.einsum("imd,ie->imde", data.differences, data.z).reshape(data.gaps.size, -1)
    basis, factor = np.linalg.qr(rows.T)
    size = basis.shape[1] + 1
    settings = _clarabel.DefaultSettings()
    settings.verbose = False
    solution = _clarabel.DefaultSolver(
        sparse.csc_matrix((size, size)),
        np.eye(size)[0],
        sparse.csc_matrix(np.concatenate([-np.eye(size), np.pad(-factor.T, ((0, 0), (1, 0)))])),
        np.concatenate([np.zeros(size), -np.ones(len(rows))]),
        [_clarabel.SecondOrderConeT(size), _clarabel.NonnegativeConeT(len(rows))],
        settings,
    ).solve()
    if solution.status != _clarabel.SolverStatus.Solved:
        raise ArithmeticError(f"Clarabel stopped with the status {solution.status}.")
    return float(solution.obj_val)
