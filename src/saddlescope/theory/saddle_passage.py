"""Watch of a path for saddles that it passes so closely that errors decide where it goes on.

    v        speed of the flow
    lambda   lowest eigenvalue of the Hessian, negative next to a saddle
    G        integral of -lambda over the time in which the flow slows down there

A path slows down while it approaches a saddle, and small deviations grow by exp(G) meanwhile. Where it is slowest, it
deviates by about v / |lambda| from the saddle in the direction in which it leaves; so it arrived with a deviation of
v / |lambda| exp(-G). Where that is less than the error of the path, another rounding or another step size would take
it to another end.
"""

import math

import numpy as np
from jaxtyping import Float

SYMMETRIC = 1e-13
"""Relative deviation at a saddle that is rounding."""
_MARGIN = 10.0  # errors of the path by which it has to miss a saddle
_LEFT = 3.0  # speed, in units of the slowest, at which a path has left a saddle
_ROUNDING = 1e-13  # eigenvalues below this share of the largest are zero


class SaddlePassage:
    """State of the watch, for one path.

    Args:
        time: of its start.

    Attributes:
        here: deviation with which the path arrived where it is, relative to the norm of its point; infinite at no
            saddle.
        growth: G there.
        deviation: smallest such deviation at the saddles that it has left.
    """

    def __init__(self, time: float) -> None:
        self.here = self.deviation = math.inf
        self.growth, self._slowest = 0.0, math.inf
        self._last = time, 0.0  # with the rate of growth

    def missed(self, error: float) -> bool:
        """Return True if a path of this relative error has missed all saddles that it has left by far more than it."""
        return self.deviation >= _MARGIN * error

    def note(self, time: float, norm: float, speed: float, curvatures: Float[np.ndarray, "q"]) -> None:
        """Note a point of the path.

        Args:
            time: of the flow.
            norm: of the point.
            speed: v.
            curvatures: eigenvalues of the Hessian there, ascending.
        """
        lowest = float(curvatures[0])
        rate = -lowest if lowest < -_ROUNDING * float(np.max(np.abs(curvatures))) else 0.0
        if speed > _LEFT * self._slowest:
            self.deviation = min(self.deviation, self.here)
            self.here, self.growth, self._slowest = math.inf, 0.0, speed
        elif speed <= self._slowest < math.inf:
            self.growth += (time - self._last[0]) * (rate + self._last[1]) / 2 if rate else -self.growth
            self.here = speed / (rate * norm) * math.exp(-self.growth) if rate else math.inf
        self._slowest = min(self._slowest, speed)  # the first point is off a saddle by design
        self._last = time, rate
