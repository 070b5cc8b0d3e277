"""Root of a function of time along one step of a solver."""

from collections.abc import Callable

import numpy as np
import scipy  # loads `scipy.optimize`, a third of a second, where a root is first looked for


def root_along(height: Callable[[float], float], start: float, end: float) -> float:
    """Return the time between start and end at which the height passes 0, to rounding.

    Where rounding of the interpolation puts the passage just outside the step, it is the end that is nearer to 0.
    """
    at_start, at_end = height(start), height(end)
    if not np.sign(at_start) * np.sign(at_end) < 0:
        return start if abs(at_start) < abs(at_end) else end
    tiny, tightest = float(np.finfo(float).tiny), 4 * float(np.finfo(float).eps)
    found = scipy.optimize.brentq(height, start, end, xtol=tiny, rtol=tightest, maxiter=2000)  # bisects to tiny times
    return float(found)  # pyright: ignore[reportArgumentType]
