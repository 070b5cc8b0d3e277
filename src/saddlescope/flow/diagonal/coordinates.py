"""Coordinates in which a flow is integrated. Networks with diagonal weights have well-scaled ones.

    u, v    weights; beta = u * v is the argument of the loss
    y       integral of g = -dL/dbeta over time, one entry per coordinate: the state, in e-folds
    p, q    logarithms of ((u + v)/2)^2 and ((u - v)/2)^2 at time 0; -inf where u = -v or u = v

Since (u + v)' = g (u + v) and (u - v)' = -g (u - v) under gradient flow,

    beta = e^(p + 2 y) - e^(q - 2 y),    y' = g(beta),    y(0) = 0,

exactly, with u^2 - v^2 conserved by construction. Only the logarithm of the initial scale enters. A coordinate with
u = v or u = -v keeps its sign for ever, one with u = v = 0 stays 0; neither is a special case.
Boix-Adsera et al. (2023), equation 4 and Lemma 4.2.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import PyTree

from saddlescope.numerics.tree_layout import TreeLayout

LARGEST_EXPONENT = 60.0  # continued linearly beyond, so that a trial step that overshoots stays finite


class AbstractCoordinates(ABC):
    """Coordinates of a run. States have shape (..., n); methods work along the last axis.

    Attributes:
        layout: layout of the argument of the loss in a point.
        rate: time of the gradient flow in one unit of the run's time.
        time_unit: unit of the run's time, such as "t / log(1/alpha)".
    """

    layout: TreeLayout
    rate: float
    time_unit: str

    @abstractmethod
    def point(self, state: np.ndarray) -> np.ndarray:
        """Return the argument of the loss, flat: beta, or the parameters."""

    @abstractmethod
    def parameters(self, state: np.ndarray) -> PyTree:
        """Return the parameters of gradient flow: (u, v), or the pytree of parameters."""

    @abstractmethod
    def log_abs(self, state: np.ndarray) -> np.ndarray:
        """Return the natural logarithm of the absolute value of each entry of the point."""

    @staticmethod
    def argument(parameters: PyTree) -> PyTree:
        """Return the argument of the loss at parameters; one function of the class, so that it is compiled once."""
        return parameters


class AbstractFlowCoordinates(AbstractCoordinates):
    """Coordinates in which gradient flow is y' = rate * g(point(y)), with g = -dL/dpoint.

    Attributes:
        scale: the size of state to which the tolerance is relative where the state itself is smaller.
        reach: distance that an entry of the state may move in a step before the move of the point is checked.
    """

    scale: float
    reach: float

    @abstractmethod
    def of_descent(self) -> AbstractCoordinates:
        """Return the coordinates of gradient descent from the same start: the parameters, flattened."""

    @abstractmethod
    def metric(self, state: np.ndarray) -> np.ndarray:
        """Return the derivative of each entry of the point by its entry of the state; at least 0."""

    @abstractmethod
    def band(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the states between which each entry of the point is below the level in absolute value."""

    @abstractmethod
    def diverged(self, state: np.ndarray) -> np.ndarray | np.bool_:
        """Return True where the point is beyond what float64 can follow."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MirrorCoordinates(AbstractFlowCoordinates):
    """Coordinates y of a network with diagonal weights; see the module's docstring."""

    p: np.ndarray
    q: np.ndarray
    gap: np.ndarray  # (p - q)/2, stored because the difference of p and q would have lost digits
    sum_sign: np.ndarray  # of u + v, never 0
    difference_sign: np.ndarray  # of u - v, never 0
    layout: TreeLayout
    rate: float
    time_unit: str = "t / log(1/alpha)"
    scale: float = 1.0  # one e-fold
    reach: float = 1.0  # one e-fold

    def of_descent(self) -> "WeightPairCoordinates":
        """Return the coordinates u and v, one after the other."""
        return WeightPairCoordinates(layout=self.layout, rate=self.rate, time_unit=self.time_unit)

    def point(self, state: np.ndarray) -> np.ndarray:
        """Return the products beta."""
        up, down = self._logarithms(state)
        if np.maximum(up, down).max(initial=-math.inf) <= LARGEST_EXPONENT:
            return np.exp(up) - np.exp(down)
        return _capped_exp(up) - _capped_exp(down)

    def metric(self, state: np.ndarray) -> np.ndarray:
        """Return the derivative dbeta/dy = u^2 + v^2."""
        up, down = self._logarithms(state)
        return 2 * (np.exp(np.minimum(up, LARGEST_EXPONENT)) + np.exp(np.minimum(down, LARGEST_EXPONENT)))

    def _logarithms(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return those of ((u + v)/2)^2 and ((u - v)/2)^2."""
        twice = 2 * state
        return self.p + twice, self.q - twice

    def band(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the states at which beta = -level and beta = level; infinite where beta never reaches them."""
        # The quadratic e^(p + 2y) - e^(q - 2y) = level in e^(2y), solved in logarithms without cancellation.
        log = np.log(level)
        root = np.logaddexp(log, np.logaddexp(2 * log, np.log(4) + self.p + self.q) / 2) - np.log(2)
        return (self.q - root) / 2, (root - self.p) / 2

    def parameters(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights u and v; the smaller of the two without cancellation."""
        larger, gap = self._exponents(state)
        big = np.exp(larger) * (1 + np.exp(-np.abs(gap)))
        small = np.exp(larger) * -np.expm1(-np.abs(gap)) * np.sign(gap)
        same = self.sum_sign == self.difference_sign
        return self.sum_sign * np.where(same, big, small), self.sum_sign * np.where(same, small, big)

    def log_abs(self, state: np.ndarray) -> np.ndarray:
        """Return the logarithm of |beta|, also where beta itself underflows."""
        larger, gap = self._exponents(state)
        with np.errstate(divide="ignore"):
            return 2 * larger + np.log(-np.expm1(-2 * np.abs(gap)))

    def diverged(self, state: np.ndarray) -> np.ndarray | np.bool_:
        """Return True where `point` is no longer an exponential of the state."""
        return np.any(np.maximum(self.p + 2 * state, self.q - 2 * state) > LARGEST_EXPONENT, axis=-1)

    def _exponents(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the logarithm of the larger of |u + v|/2 and |u - v|/2, and the logarithm of their ratio."""
        return np.maximum(self.p / 2 + state, self.q / 2 - state), self.gap + 2 * state


def _capped_exp(exponent: np.ndarray) -> np.ndarray:
    """Return the exponential, continued by its tangent beyond the largest exponent."""
    return np.exp(np.minimum(exponent, LARGEST_EXPONENT)) * (1 + np.maximum(exponent - LARGEST_EXPONENT, 0))


@dataclass(frozen=True, eq=False, kw_only=True)
class ParameterCoordinates(AbstractFlowCoordinates):
    """Coordinates of any parameters: the parameters, flattened."""

    layout: TreeLayout
    scale: float
    reach: float = math.inf
    rate: float = 1.0
    time_unit: str = "t"

    def of_descent(self) -> "ParameterCoordinates":
        """Return these coordinates."""
        return self

    def point(self, state: np.ndarray) -> np.ndarray:
        """Return the state."""
        return state

    def metric(self, state: np.ndarray) -> np.ndarray:
        """Return ones."""
        return np.ones_like(state)

    def band(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return -level and level."""
        return np.full(self.layout.size, -level), np.full(self.layout.size, level)

    def diverged(self, state: np.ndarray) -> np.ndarray | np.bool_:
        """Return True where a parameter is beyond e^60."""
        return np.any(np.abs(state) > math.exp(LARGEST_EXPONENT), axis=-1)

    def parameters(self, state: np.ndarray) -> PyTree:
        """Return the pytree of parameters."""
        return self.layout.build(state)

    def log_abs(self, state: np.ndarray) -> np.ndarray:
        """Return the logarithm of the parameters' absolute values."""
        with np.errstate(divide="ignore"):
            return np.log(np.abs(state))


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightPairCoordinates(AbstractCoordinates):
    """Coordinates of gradient descent on a product: the weights u and v, one after the other."""

    layout: TreeLayout
    rate: float
    time_unit: str

    def point(self, state: np.ndarray) -> np.ndarray:
        """Return the products beta."""
        return self.argument(self.parameters(state))

    @staticmethod
    def argument(parameters: PyTree) -> PyTree:
        """Return the products u * v."""
        u, v = parameters
        return u * v

    def parameters(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights u and v."""
        u, v = np.split(state, 2, axis=-1)
        return u, v

    def log_abs(self, state: np.ndarray) -> np.ndarray:
        """Return the logarithm of |beta|, also where beta itself underflows."""
        u, v = self.parameters(state)
        with np.errstate(divide="ignore"):
            return np.log(np.abs(u)) + np.log(np.abs(v))
