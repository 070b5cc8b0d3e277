"""Continuous solutions over the completed steps of many systems, by cubics."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
from jaxtyping import Float, Int


@dataclass
class CubicInterpolants:
    """Cubic Hermite interpolants over completed steps of any systems, in the order of time for each.

    Attributes:
        system: the system of each step, by its number at the beginning.
        start, end: times it is valid between.
        before, after: the states at the start and the end.
        slope_before, slope_after: derivatives by time there.
    """

    system: Int[np.ndarray, "m"]
    start: Float[np.ndarray, "m"]
    end: Float[np.ndarray, "m"]
    before: Float[np.ndarray, "m p"]
    after: Float[np.ndarray, "m p"]
    slope_before: Float[np.ndarray, "m p"]
    slope_after: Float[np.ndarray, "m p"]

    def __getitem__(self, which: np.ndarray) -> "CubicInterpolants":
        return CubicInterpolants(*(getattr(self, field.name)[which] for field in fields(self)))

    def at(self, s: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m p"]:
        """Return the state of each at the time end + s (end - start)."""
        return _horner(self._coefficients((self.end - self.start)[:, None], slice(None)), s[:, None])

    def entry(self, index: Int[np.ndarray, "m"]) -> Callable[[Float[np.ndarray, "m"]], Float[np.ndarray, "m"]]:
        """Return the function of s that gives one entry of each state."""
        return partial(_horner, self._coefficients(self.end - self.start, (np.arange(len(index)), index)))

    def _coefficients(
        self, step: np.ndarray, which: slice | tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the coefficients of 1, s, s^2 and s^3."""
        after, rise = self.after[which], self.after[which] - self.before[which]
        first, last = step * self.slope_before[which], step * self.slope_after[which]
        return after, last, first + 2 * last - 3 * rise, first + last - 2 * rise


def _horner(coefficients: tuple[np.ndarray, ...], s: np.ndarray) -> np.ndarray:
    value = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = coefficient + s * value
    return value
