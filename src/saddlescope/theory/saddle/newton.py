"""Newton's method from a point next to a stationary one, with the tests by which its end is accepted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Float

_Kept = TypeVar("_Kept")


@dataclass(frozen=True, kw_only=True)
class NewtonPolicy:
    """Limits of Newton's method. Gradients are relative to the terms that cancel in them, steps to the start.

    Attributes:
        steps: largest number of steps; quadratic convergence takes six.
        reach: largest size of a step, and of all together: beyond it the method has lost the point.
        exact: gradient that is rounding.
        stalled: gradient that may be rounding: it counts as such once it no longer falls by half.
        near: gradient below which it has to fall by half in each step.
        flat: eigenvalues of the Hessian below this share of the largest are flat directions.
    """

    steps: int = 40
    reach: float = 0.1
    exact: float = 1e-14
    stalled: float = 1e-11
    near: float = 1e-6
    flat: float = 1e-7


@dataclass(frozen=True)
class Linearised(Generic[_Kept]):
    """A problem next to a point.

    Attributes:
        left: size of the gradient, relative to the terms that cancel in it.
        step: returns the step to where it vanishes to first order, like the point; None if there is none.
        kept: what the caller wants to know of the end.
    """

    left: float
    step: Callable[[], Float[np.ndarray, "n"] | None]
    kept: _Kept


def newton(
    linearised: Callable[[Float[np.ndarray, "n"]], Linearised[_Kept]],
    start: Float[np.ndarray, "n"],
    policy: NewtonPolicy,
) -> tuple[Float[np.ndarray, "n"], _Kept] | None:
    """Return the stationary point next to a start, and what is kept of it; None if the method does not settle there.

    Args:
        linearised: the problem next to a point.
        start: the first point.
        policy: limits.
    """
    point, least, last, norm = start, np.inf, np.inf, float(np.linalg.norm(start))
    for _ in range(policy.steps):
        at = linearised(point)
        if at.left <= policy.exact or (at.left <= policy.stalled and at.left >= least / 2):
            return point, at.kept
        step = None if least <= policy.near and at.left >= least / 2 else at.step()
        if step is None:
            return None
        size = float(np.linalg.norm(step)) / norm
        point = point + step
        if size > max(0.9 * last, policy.stalled) or np.linalg.norm(point - start) > policy.reach * norm:
            return None
        least, last = min(least, at.left), size
    return None
