"""The (W_F-SVM), the least Frobenius norm that separates the tokens, from the Gram matrix of the constraints.

W_F = sum_il lambda_il D_il z_i^T with the lambda >= 0 that minimise |Z(lambda)|_F^2 / 2 - sum(lambda), a quadratic
program with the Gram matrix (D_il . D_jk)(z_i . z_j). It decides separability, too: 1 / |W_F|_F is the distance of
the convex hull of the D_il z_i^T from the origin, and where that is 0 the multipliers are a Farkas certificate.

Tarzanagh, Li, Thrampoulidis and Oymak (2023), as in section 4.2 of Sheen et al. (2024).
"""

import itertools

import numpy as np
from jaxtyping import Float

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.progress import Report, silent
from saddlescope.models.tokens.data import TokenData
from saddlescope.theory.attention.svm.constraints import MatrixConstraints, not_solved
from saddlescope.theory.attention.svm.nonnegative_least_squares import proximal_minima
from saddlescope.theory.attention.svm.solution import MatrixSvm, matrix_solution

_GAP = 1e-14
_STALLED = 3  # proximal steps without halving the gap
_MOST = 60  # proximal steps; one to three are enough unless constraints are dependent


@validate_arguments
def frobenius_svm(data: TokenData, *, report: Report = silent) -> MatrixSvm:
    """Solve the (W_F-SVM): min |W|_F over D_il^T W z_i >= 1, uniquely.

    Args:
        data: n samples of L tokens.
        report: called with the finished fraction after each proximal step.

    Raises:
        InputError: data that no W separates; the message names samples of a Farkas certificate.
        ArithmeticError: the certificate was not reached.
    """
    within = MatrixConstraints.of(data)
    scaled = frobenius_multipliers(data, within, report)
    U, s, Vt = np.linalg.svd(within.dual_matrix(scaled), full_matrices=False)
    kept = s > len(s) * np.finfo(float).eps * s[0]
    root = np.sqrt(s[kept])
    report(1.0, "solved")
    factors = within.lifted(U[:, kept] * root, Vt[kept].T * root)
    return matrix_solution(data, factors, within.multipliers(scaled), "frobenius")


def frobenius_multipliers(
    data: TokenData, within: MatrixConstraints, report: Report = silent
) -> Float[np.ndarray, "N"]:
    """Return the multipliers lambda'_il of the reduced problem, with M' = Z(lambda').

    Raises:
        InputError: the constraints have no solution.
    """
    best, multipliers, since = np.inf, np.zeros(len(within.least)), 0
    for number, trial in enumerate(itertools.islice(proximal_minima(within.gram, within.least), _MOST), 1):
        report(number / _MOST, f"proximal step {number}")
        gap = _gap(within, trial)
        since = 0 if gap < 0.5 * best else since + 1
        if gap < best:
            best, multipliers = gap, trial
        if best < _GAP or since > _STALLED:
            break
    if 100 * _GAP < best < 1:
        refined = _refined(within, multipliers)
        best, multipliers = min((best, multipliers), (_gap(within, refined), refined), key=lambda pair: pair[0])
    if best >= 1:
        raise not_solved(data)
    return multipliers


def _gap(within: MatrixConstraints, multipliers: Float[np.ndarray, "N"]) -> float:
    """Return the relative duality gap of Z(lambda') and lambda'; 1 or more where a margin is not positive."""
    M = within.dual_matrix(multipliers)
    margin = float((within.margins(M) / within.exact).min())
    return 1 - margin * float(within.least @ multipliers) / float(np.sum(M**2))


def _refined(within: MatrixConstraints, multipliers: Float[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
    """Return active multipliers computed from the constraints, whose condition number a Gram matrix squares."""
    held = multipliers > 100 * _GAP * multipliers.max()
    rows = np.einsum("kp,kq->kpq", within.left[held], within.right[held]).reshape(int(held.sum()), -1)
    R = np.linalg.qr(rows.T)[1]
    refined = np.zeros_like(multipliers)
    once = np.linalg.lstsq(R.T, within.least[held], rcond=None)[0]
    refined[held] = np.maximum(np.linalg.lstsq(R, once, rcond=None)[0], 0.0)
    return refined if refined.any() else multipliers
