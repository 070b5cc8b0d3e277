"""Continuous solutions over the completed steps of many systems, by backward differences or by cubics."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
from jaxtyping import Float, Int

from saddlescope.numerics import ndf_coefficients
from saddlescope.numerics.ndf import Interpolant


@dataclass
class AbstractInterpolants:
    """Solutions over completed steps of any systems, in the order of time for each.

    Attributes:
        system: the system of each step, by its number at the beginning.
        start, end, step: times it is valid between, and the unit of s in which time is counted from the end.
        before, after: the states at the start and the end.
    """

    system: Int[np.ndarray, "m"]
    start: Float[np.ndarray, "m"]
    end: Float[np.ndarray, "m"]
    step: Float[np.ndarray, "m"]
    before: Float[np.ndarray, "m p"]
    after: Float[np.ndarray, "m p"]

    @classmethod
    def join(cls, parts: "Sequence[AbstractInterpolants]") -> "AbstractInterpolants":
        """Concatenate the steps of the parts."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def __getitem__(self, which: np.ndarray) -> "AbstractInterpolants":
        return type(self)(*(getattr(self, field.name)[which] for field in fields(self)))

    @property
    def size(self) -> int:
        """Numbers in these arrays."""
        return sum(getattr(self, field.name).size for field in fields(self))

    @abstractmethod
    def at(self, s: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m p"]:
        """Return the state of each at the time end + s step."""

    @abstractmethod
    def entry(self, index: Int[np.ndarray, "m"]) -> Callable[[Float[np.ndarray, "m"]], Float[np.ndarray, "m"]]:
        """Return the function of s that gives one entry of each state."""


@dataclass
class DifferenceInterpolants(AbstractInterpolants):
    """Interpolants of the steps of `BatchStepper`, or of one `Stepper`.

    Attributes:
        order: of each step.
        differences: D[0], ..., D[5] at the end.
    """

    order: Int[np.ndarray, "m"]
    differences: Float[np.ndarray, "m 6 p"]

    @classmethod
    def of(cls, steps: Sequence[Interpolant]) -> "DifferenceInterpolants":
        """Return the steps of one system, at least one."""
        order = np.array([len(step.differences) - 1 for step in steps])
        differences = np.zeros((len(steps), ndf_coefficients.MAX_ORDER + 1, steps[0].differences.shape[1]))
        for of_step, step in zip(differences, steps, strict=True):
            of_step[: len(step.differences)] = step.differences
        after = differences[:, 0]
        return cls(
            system=np.zeros(len(steps), int),
            start=np.array([step.start for step in steps]),
            end=np.array([step.end for step in steps]),
            step=np.array([step.step for step in steps]),
            before=after - differences[:, 1],
            after=after,
            order=order,
            differences=differences,
        )

    def at(self, s: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m p"]:
        """Return the state of each at the time end + s step."""
        weights = ndf_coefficients.basis(s, self.order)[:, None]
        return self.differences[:, 0] + (weights @ self.differences[:, 1:])[:, 0]

    def slope(self, s: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m p"]:
        """Return the derivative of each by time."""
        weights = (ndf_coefficients.slope_basis(s, self.order) / self.step[:, None])[:, None]
        return (weights @ self.differences[:, 1:])[:, 0]

    def dissipated(self, metric: Callable[[np.ndarray], np.ndarray]) -> Float[np.ndarray, "m"]:
        """Return the integrals of sum_i metric_i (y_i')^2 over the steps, of the metric at given states.

        By Gauss's quadrature with four nodes.
        """
        total, duration = np.zeros(len(self.end)), self.end - self.start
        for node, weight in zip(*np.polynomial.legendre.leggauss(4), strict=True):
            s = np.full(len(self.end), (node - 1) / 2)
            moved = duration[:, None] * self.slope(s)  # of moderate size, however fast the flow
            total += weight / 2 * np.sum(metric(self.at(s)) * moved**2, axis=1)
        return total / duration

    def entry(self, index: Int[np.ndarray, "m"]) -> Callable[[Float[np.ndarray, "m"]], Float[np.ndarray, "m"]]:
        """Return the function of s that gives one entry of each state."""
        own = self.differences[np.arange(len(index)), :, index]
        return lambda s: own[:, 0] + np.einsum("ej,ej->e", ndf_coefficients.basis(s, self.order), own[:, 1:])


@dataclass
class CubicInterpolants(AbstractInterpolants):
    """Cubic Hermite interpolants, from states and slopes at both ends.

    Attributes:
        slope_before, slope_after: derivatives by time at the start and the end.
    """

    slope_before: Float[np.ndarray, "m p"]
    slope_after: Float[np.ndarray, "m p"]

    def at(self, s: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m p"]:
        """Return the state of each at the time end + s step."""
        return _horner(self._coefficients(self.step[:, None], slice(None)), s[:, None])

    def entry(self, index: Int[np.ndarray, "m"]) -> Callable[[Float[np.ndarray, "m"]], Float[np.ndarray, "m"]]:
        """Return the function of s that gives one entry of each state."""
        return partial(_horner, self._coefficients(self.step, (np.arange(len(index)), index)))

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
