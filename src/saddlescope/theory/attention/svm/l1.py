"""The (l1-SVM), the least l1 norm of diagonal weights that separates the tokens, a vertex of a linear program.

HiGHS finds the vertex; its support S and its active rows R then solve B_RS beta_S = 1, B_RS^T lambda_R = sign(beta_S)
to the last digit by iterative refinement.
"""

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from saddlescope._shared.arguments import validate_arguments
from saddlescope.models.tokens.data import TokenData
from saddlescope.theory.attention.svm.constraints import not_solved, raised
from saddlescope.theory.attention.svm.solution import DiagonalSvm, diagonal_solution

_ZERO = 1e-9  # weights and multipliers of the scaled program below it count as zeros of HiGHS
_REFINEMENTS = 3
_TOLERANCE = 1e-10  # the smallest of HiGHS


@validate_arguments
def l1_svm(data: TokenData) -> DiagonalSvm:
    """Solve the (l1-SVM): min |beta|_1 over B_il . beta >= 1; equation (Wdiag-SVM) for d_e >= d.

    Raises:
        InputError: data that no diagonal W separates; the message names samples of a Farkas certificate.
        ArithmeticError: the certificate was not reached.
    """
    n, m, d = data.features.shape
    rows = data.features.reshape(n * m, d)
    length = np.abs(rows).max(axis=1)
    if not np.all(length > 0):
        raise not_solved(data, diagonal=True)
    least = 1 / length
    mean = float(least.mean())
    found = _vertex(rows / length[:, None], least / mean)
    if found is None:
        raise not_solved(data, diagonal=True)
    beta, scaled = found
    return diagonal_solution(data, beta * mean, (scaled * least).reshape(n, m))


def _vertex(
    B: Float[np.ndarray, "N d"], h: Float[np.ndarray, "N"]
) -> tuple[Float[np.ndarray, "d"], Float[np.ndarray, "N"]] | None:
    """Return weights and multipliers of min |beta|_1 over B beta >= h; None where HiGHS finds none.

    Right-hand sides near the tolerance of HiGHS are raised by ten times it.
    """
    d = B.shape[1]
    exact, h = h, raised(h, 10 * _TOLERANCE)
    answer = linprog(
        np.ones(2 * d),
        A_ub=np.concatenate([-B, B], axis=1),
        b_ub=-h,
        method="highs-ds",
        options={"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE},
    )
    if answer.status != 0:
        return None
    beta, multipliers = answer.x[:d] - answer.x[d:], np.maximum(-answer.ineqlin.marginals, 0.0)
    refined = _refined(B, h, beta, multipliers)
    return min(((beta, multipliers), refined), key=lambda pair: _gap(B, exact, *pair))


def _refined(B: np.ndarray, h: np.ndarray, beta: np.ndarray, multipliers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    support, held = np.abs(beta) > _ZERO * np.abs(beta).max(), multipliers > _ZERO * multipliers.max()
    square = B[np.ix_(held, support)]
    signs = np.sign(beta[support])
    beta, multipliers = np.where(support, beta, 0.0), np.where(held, multipliers, 0.0)
    for _ in range(_REFINEMENTS):
        beta[support] += np.linalg.lstsq(square, (h - B @ beta)[held], rcond=None)[0]
        multipliers[held] += np.linalg.lstsq(square.T, signs - (multipliers @ B)[support], rcond=None)[0]
    return beta, np.maximum(multipliers, 0.0)


def _gap(B: np.ndarray, h: np.ndarray, beta: np.ndarray, multipliers: np.ndarray) -> float:
    margin, dual_norm = float(np.min(B @ beta / h)), float(np.abs(multipliers @ B).max())
    if margin <= 0 or dual_norm == 0:
        return 1.0
    return 1 - float(h @ multipliers) / dual_norm * margin / float(np.abs(beta).sum())
