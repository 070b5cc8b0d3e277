"""Does a flow of diagonal weights stay finite? Proof by a strict minimum of the loss into whose bowl it has come."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from saddlescope.models import SelectionLoss

_STEPS = 50
_BETWEEN = 21  # points on the way to the minimum at which the loss must be convex


def strict_minimum(loss: "SelectionLoss", features: np.ndarray, beta: np.ndarray) -> np.ndarray | None:
    """The strict local minimum of L(B beta) that Newton's method finds from beta, or None.

    It is accepted where its gradient is rounding, and the Hessian is positive definite there and all the way from beta.
    As the flow only lowers the loss, it then ends at that point.
    """
    point = beta
    for _ in range(_STEPS):
        gradient, hessian = _derivatives(loss, features, point)
        if np.linalg.eigvalsh(hessian)[0] <= 0:
            return None
        step = np.linalg.solve(hessian, gradient)
        point = point - step
        if np.linalg.norm(step) <= 1e-12 * np.linalg.norm(point):
            break
    else:
        return None
    way = beta + np.linspace(0, 1, _BETWEEN)[:, None] * (point - beta)
    convex = all(np.linalg.eigvalsh(_derivatives(loss, features, each)[1])[0] > 0 for each in way)
    return point if convex else None


def _derivatives(loss: "SelectionLoss", features: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gradient and the Hessian of L in beta."""
    rates, jacobian = loss.rate_jacobian(features @ beta)
    return -np.einsum("nm,nmd->d", rates, features), -np.einsum("nmd,nmk,nke->de", features, jacobian, features)
