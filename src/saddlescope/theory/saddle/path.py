"""A path from one stationary point to the next: its limits, its failure, and its watch for saddles that it passes.

A path may pass a saddle so closely that errors decide where it goes on.

    v        speed of the flow
    lambda   lowest eigenvalue of the Hessian, negative next to a saddle
    G        integral of -lambda over the time in which the flow slows down there

A path slows down while it approaches a saddle, and small deviations grow by exp(G) meanwhile. Where it is slowest, it
deviates by about v / |lambda| from the saddle in the direction in which it leaves; so it arrived with a deviation of
v / |lambda| exp(-G). Where that is less than the error of the path, another rounding or another step size would take
it to another end.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
from jaxtyping import Float

_ROUNDING = 1e-13  # relative deviations and eigenvalues that are zero


class NoMinimum(StrEnum):
    """Reasons why a path ends at no strict local minimum, with the cure."""

    UNBOUNDED = "the loss falls without bound. Add a penalty to the loss that grows faster."
    AT_INFINITY = (
        "the minimiser seems to be at infinity, as for losses with exponential tails on separable data. Add a small "
        "penalty to the loss."
    )
    FLAT = (
        "there the loss is flat, as with more weights than samples, or has a kink. Add a small penalty, or smooth it."
    )
    ROUNDED = (
        "there rounding is {:.0e} of the terms of its gradient, too much to find its end. Write exp(x) - 1 as "
        "expm1(x), log(1 + x) as log1p(x) and the like, or take larger units."
    )


class NonFiniteLossError(Exception):
    """Loss, gradient or second derivative that is NaN or infinite on a path.

    Attributes:
        size: the largest |beta_i| there, where that is known.
    """

    def __init__(self, size: float = math.nan) -> None:
        super().__init__(f"not finite where the largest |beta| is {size:.3g}")
        self.size = size


@dataclass(frozen=True, kw_only=True)
class PathPolicy:
    """Limits of a path from one stationary point to the next; times in units of 1 / rate of what is new.

    Attributes:
        tolerance: relative error of a step. The path only has to end in the right basin: Newton's method adds digits.
        seed: size of what is new at the start, in units of the size at which it changes its own rate.
        slow: speed, relative to the fastest so far, at which the end is looked for.
        look: steps between looks for the end, or for a saddle.
        steps: largest number of steps; most paths take hundreds.
        horizon: a path that lasts this long ends at no minimum.
        largest: a weight beyond which the path diverges, in units of the size at which the loss bends.
        leaving: share of its largest size to which what leaves has fallen when its end at 0 is tried.
    """

    tolerance: float = 1e-6
    seed: float = 1e-3
    slow: float
    look: int = 5
    steps: int
    horizon: float = 1e9
    largest: float
    leaving: float


@dataclass(frozen=True)
class TransitionFailure:
    """Result of a transition that found no stationary point.

    Attributes:
        reason: one sentence for the reader.
        status: of the prediction that it ends. `saddle`: the path comes so close to a saddle of what is active that
            rounding decides how it leaves it; `not_finite`: the loss is NaN or infinite on the path.
    """

    reason: str
    status: Literal["no_minimum", "saddle", "not_finite"] = "no_minimum"


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

    @property
    def symmetric(self) -> bool:
        """True if the deviation here is rounding, as by a symmetry."""
        return self.here < _ROUNDING

    def missed(self, error: float) -> bool:
        """Return True if a path of this relative error has missed all saddles that it has left by far more than it."""
        return self.deviation >= 10 * error

    def note(self, time: float, norm: float, speed: float, curvatures: Float[np.ndarray, "q"]) -> None:
        """Note a point of the path.

        Args:
            time: of the flow.
            norm: of the point.
            speed: v.
            curvatures: eigenvalues of the Hessian there, ascending.
        """
        lowest, largest = float(curvatures[0]), float(np.max(np.abs(curvatures)))
        rate = -lowest if lowest < -_ROUNDING * largest else 0.0
        slowest = max(self._slowest, _ROUNDING * largest * norm)  # slower than this, speeds are rounding
        if speed > 3 * slowest:  # it has left a saddle
            self.deviation = min(self.deviation, self.here)
            self.here, self.growth, self._slowest = math.inf, 0.0, speed
        elif speed <= slowest and self._slowest < math.inf:
            self.growth += (time - self._last[0]) * (rate + self._last[1]) / 2 if rate else -self.growth
            self.here = speed / (rate * norm) * math.exp(-self.growth) if rate else math.inf
        self._slowest = min(self._slowest, speed)  # the first point is off a saddle by design
        self._last = time, rate


def falls_without_bound(loss: Callable[[float], float]) -> bool:
    """Return True if the loss falls further out by as much as it has, and by more each time the weights double.

    Args:
        loss: of the weights times a number.
    """
    try:
        here, twice, more = loss(1.0), loss(2.0), loss(4.0)
    except NonFiniteLossError:
        return False
    return here - twice > abs(here) / 2 and twice - more > here - twice


def falls_ahead(loss: Callable[[float], float]) -> bool:
    """Return True if the loss is finite and lower a little further out: then no pole is near, and weights grow on.

    Args:
        loss: of the weights times a number.
    """
    try:
        return loss(1.001) < loss(1.0)
    except NonFiniteLossError:
        return False
