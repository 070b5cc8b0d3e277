"""Finite limits of flows of diagonal weights: strict minima of the loss."""

import numpy as np

from saddlescope.models import SelectionLoss

_STEPS = 20

_NEAR = 1e-4  # relative distance of the minimum within which a flow has reached it


def strict_minimum(loss: SelectionLoss, features: np.ndarray, beta: np.ndarray) -> np.ndarray | None:
    """Return the strict local minimum of L(B beta) next to beta, by Newton's method; None where there is none.

    Its Hessian is positive definite at every step, and it is within a ten thousandth of its size from beta. From
    there a flow, which only lowers the loss, does not leave it.
    """
    point = beta
    for _ in range(_STEPS):
        rates, jacobian = loss.rate_jacobian(features @ point)
        gradient = -np.einsum("nm,nmd->d", rates, features)
        hessian = -np.einsum("nmd,nmk,nke->de", features, jacobian, features)
        if np.linalg.eigvalsh(hessian)[0] <= 0:
            return None
        step = np.linalg.solve(hessian, gradient)
        point = point - step
        size = np.linalg.norm(point)
        if np.linalg.norm(step) <= 1e-12 * size:
            return point if np.linalg.norm(point - beta) <= _NEAR * size else None
    return None
