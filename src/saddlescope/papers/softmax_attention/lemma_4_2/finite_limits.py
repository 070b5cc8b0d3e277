"""Does a flow of diagonal weights stay finite? The strict minimum of the loss that it has come to, if there is one."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from saddlescope.models import SelectionLoss

_STEPS = 20
_NEAR = 1e-4  # relative distance of the minimum within which a flow has come to it


def strict_minimum(loss: "SelectionLoss", features: np.ndarray, beta: np.ndarray) -> np.ndarray | None:
    """The strict local minimum of L(B beta) next to beta, by Newton's method; None where there is none.

    Its Hessian is positive definite at every step, and it lies within a ten thousandth of its size from beta. A flow,
    which only lowers the loss, does not leave it from there.
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
