"""The (l1-SVM): the least l1 norm of diagonal weights that separates the tokens, a vertex of a linear programme.

HiGHS finds the vertex; its support S and its active rows R then solve B_RS beta_S = 1, B_RS^T lambda_R = sign(beta_S)
to the last digit by iterative refinement.
"""

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from saddlescope.errors import InputError
from saddlescope.models.tokens import TokenData
from saddlescope.theory.attention_svm.nonnegative import proximal_minima
from saddlescope.theory.attention_svm.solution import DiagonalSvm, diagonal_solution

_ZERO = 1e-9  # weights and multipliers of the scaled programme below it are HiGHS's zeros
_REFINEMENTS = 3


def l1_svm(data: TokenData) -> DiagonalSvm:
    """A solution of the (l1-SVM): min |beta|_1 over B_il . beta >= 1; equation (Wdiag-SVM) for d_e >= d.

    Raises:
        InputError: data that no diagonal W separates; the message names samples of a Farkas certificate.
        ArithmeticError: the certificate was not reached.
    """
    n, m, d = data.features.shape
    rows = data.features.reshape(n * m, d)
    length = np.abs(rows).max(axis=1)
    zero = np.flatnonzero(length == 0)
    if len(zero):
        raise InputError(
            f"The data must be separable by diagonal weights; sample {zero[0] // m} is not: z * (x_opt - x_l) is zero"
            f" for its token {data.others[zero[0] // m, zero[0] % m]}."
        )
    least = 1 / length
    mean = float(least.mean())
    beta, scaled = _vertex(rows / length[:, None], least / mean, (n, m))
    return diagonal_solution(data, beta * mean, (scaled * least).reshape(n, m))


def _vertex(
    B: Float[np.ndarray, "N d"], h: Float[np.ndarray, "N"], shape: tuple[int, int]
) -> tuple[Float[np.ndarray, "d"], Float[np.ndarray, "N"]]:
    """Weights and multipliers of min |beta|_1 over B beta >= h."""
    d = B.shape[1]
    answer = linprog(
        np.ones(2 * d),
        A_ub=np.concatenate([-B, B], axis=1),
        b_ub=-h,
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if answer.status == 2:
        _refuse(B, shape)
    if answer.status != 0:
        raise ArithmeticError(f"HiGHS did not solve the l1 SVM: {answer.message}")
    beta, multipliers = answer.x[:d] - answer.x[d:], np.maximum(-answer.ineqlin.marginals, 0.0)
    refined = _refined(B, h, beta, multipliers)
    return min(((beta, multipliers), refined), key=lambda pair: _gap(B, h, *pair))


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


def _refuse(B: np.ndarray, shape: tuple[int, int]) -> None:
    for step, multipliers in enumerate(proximal_minima(B @ B.T, np.ones(len(B)))):
        distance = float(np.linalg.norm(multipliers @ B) / multipliers.sum())
        if distance < 1e-12 or step >= 10:
            shares = multipliers.reshape(shape).max(axis=1)
            samples = np.flatnonzero(shares > 1e-6 * shares.max()).tolist()
            raise InputError(
                "The data must be separable by diagonal weights: some beta with B_il . beta > 0 for every non-optimal"
                f" token l; the samples {samples} have multipliers whose sum of lambda_il B_il is 0 to {distance:.1e},"
                " so that there is none: leave one of them out, or use a full W."
            )
