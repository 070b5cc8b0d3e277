"""Numerical differentiation formulas of orders 1 to 5: coefficients, interpolation and the control of step sizes.

Shampine and Reichelt (1997), "The MATLAB ODE suite", sections 2 and 3. Tables are indexed by the order k.

    D       backward differences of the state: D[j] = nabla^j y, j = 0, ..., k + 2; `ROWS` of them for any order
    s       time in steps since the end of a step, so -1 is its start
"""

import numpy as np
from jaxtyping import Float, Int

MAX_ORDER = 5
ROWS = MAX_ORDER + 3
NEWTON_ITERATIONS = 4
NEWTON_TOLERANCE = 0.1  # Newton's remaining error in units of the tolerance
NEWTON_SLOWEST = 0.9  # rate of convergence above which Newton's method counts as failed
SHRINK, GROW = 0.2, 10.0  # bounds on the factor between two step sizes
UNCHANGED = 0.9, 1.15  # factors not worth a new step size, which costs a factorisation and k steps of patience
SMALLEST_STEP = 16 * float(np.finfo(float).eps)  # relative to the time
NEARLY = 1e-12  # part of the last time by which a step may miss it
_KAPPA = np.array([0, -0.1850, -1 / 9, -0.0823, -0.0415, 0])
_GAMMA = np.hstack([0, np.cumsum(1 / np.arange(1, MAX_ORDER + 1))])

ALPHA = (1 - _KAPPA) * _GAMMA  # in the implicit equation y - h/ALPHA f(y) = prediction - past
ERROR = _KAPPA * _GAMMA + 1 / np.arange(1, MAX_ORDER + 2)  # of a step, in units of its correction


def safety(iterations: "int | np.ndarray") -> "float | np.ndarray":
    """Return the safety factor of the next step size after so many iterations of Newton's method."""
    return 0.9 * (2 * NEWTON_ITERATIONS + 1) / (2 * NEWTON_ITERATIONS + iterations)


def _past() -> np.ndarray:
    table = np.zeros((MAX_ORDER + 1, ROWS))
    for k in range(1, MAX_ORDER + 1):
        table[k, 1 : k + 1] = _GAMMA[1 : k + 1] / ALPHA[k]
    return table


def _advance() -> np.ndarray:
    table = np.zeros((MAX_ORDER + 1, ROWS, ROWS + 1))
    for k in range(1, MAX_ORDER + 1):
        for j in range(k + 1):
            table[k, j, j : k + 1] = 1
        table[k, : k + 3, -1] = 1
        table[k, k + 2, k + 1] = -1
    return table


_J = np.arange(1.0, MAX_ORDER + 1)
_WITHIN = np.tri(MAX_ORDER + 1, MAX_ORDER + 1)  # [k, j] is 1 where j <= k
_PREDICT = np.pad(_WITHIN, ((0, 0), (0, ROWS - MAX_ORDER - 1)))
PREDICT_AND_PAST = np.stack([_PREDICT, _past()], axis=1)  # prediction, past = PREDICT_AND_PAST @ D
ADVANCE = _advance()  # the differences after a step = ADVANCE @ [D, correction]


def basis(s: Float[np.ndarray, "n"], order: Int[np.ndarray, "n"]) -> Float[np.ndarray, "n 5"]:
    """Return the polynomials by which D[1], ..., D[5] count at time s, 0 beyond the order."""
    return basis_of_order(s, MAX_ORDER) * _WITHIN[order, 1:]


def basis_of_order(s: "float | Float[np.ndarray, 'n']", order: int) -> Float[np.ndarray, "*n k"]:
    """Return the polynomials by which D[1], ..., D[k] count at time s for one order k."""
    return np.cumprod((np.asarray(s)[..., None] + _J[:order] - 1) / _J[:order], axis=-1)


def slope_basis(s: Float[np.ndarray, "n"], order: Int[np.ndarray, "n"]) -> Float[np.ndarray, "n 5"]:
    """Return the derivatives of `basis` by s."""
    return slope_basis_of_order(s, MAX_ORDER) * _WITHIN[order, 1:]


def slope_basis_of_order(s: Float[np.ndarray, "n"], order: int) -> Float[np.ndarray, "n k"]:
    """Return the derivatives of `basis_of_order` by s."""
    value, slope, slopes = np.ones_like(s), np.zeros_like(s), []
    for j in range(order):
        factor = (s + j) / (1 + j)
        value, slope = value * factor, slope * factor + value / (1 + j)
        slopes.append(slope)
    return np.stack(slopes, 1)


def respacing(factor: Float[np.ndarray, "n"], order: Int[np.ndarray, "n"]) -> Float[np.ndarray, "n 6 6"]:
    """Return the matrices that turn D[0], ..., D[5] into those of a step size `factor` times as large (section 3.2)."""
    within = _WITHIN[order]
    matrix = respacing_of_order(factor, MAX_ORDER) * within[:, :, None] * within[:, None, :]
    return matrix + np.eye(MAX_ORDER + 1) * (1 - within)[:, None, :]


def respacing_of_order(factor: "float | Float[np.ndarray, 'n']", order: int) -> Float[np.ndarray, "*n k1 k1"]:
    """Return the matrix by which D[0], ..., D[k] become those of a step `factor` times as long, for one order."""
    # R(1) is upper triangular, so the leading blocks of R(factor) R(1) serve the lower orders.
    size = order + 1
    return np.swapaxes(_spacing(factor, order) @ _SPACING_OF_ONE[:size, :size], -1, -2)


def _spacing(factor: "float | np.ndarray", order: int) -> np.ndarray:
    j = _J[:order]
    matrix = np.ones((*np.shape(factor), order + 1, order + 1))
    matrix[..., 1:, 0] = 0
    matrix[..., 1:, 1:] = (j[:, None] - 1 - np.asarray(factor)[..., None, None] * j) / j[:, None]
    return np.cumprod(matrix, axis=-2)


_SPACING_OF_ONE = _spacing(1.0, MAX_ORDER)
