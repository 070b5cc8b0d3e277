"""Coordinates in which a flow is followed. Networks with diagonal weights have well-scaled ones.

    u, v    weights; beta = u * v is the argument of the loss
    y       integral of g = -dL/dbeta over time, one entry a coordinate: the state, in e-folds
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
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

_LARGEST_EXPONENT = 60.0  # continued linearly beyond, so that a trial step that overshoots stays finite


@dataclass(frozen=True)
class TreeLayout:
    """How a pytree of arrays is laid out in a flat vector. Hashable, so that compiled functions are found again."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tree: PyTree) -> "TreeLayout":
        """The layout of a pytree whose leaves are arrays."""
        leaves, structure = jax.tree.flatten(tree)
        return cls(structure, tuple(np.shape(leaf) for leaf in leaves))

    def flatten(self, tree: PyTree) -> np.ndarray:
        """The entries of a pytree of this layout, one after the other."""
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)] or [np.zeros(0)])

    def build(self, flat: Any) -> PyTree:
        """The pytree of a flat NumPy or JAX vector; axes before the last one go before the axes of every leaf."""
        leaves, start = [], 0
        for shape in self.shapes:
            stop = start + math.prod(shape)
            leaves.append(flat[..., start:stop].reshape(flat.shape[:-1] + shape))
            start = stop
        return jax.tree.unflatten(self.structure, leaves)


class AbstractCoordinates(ABC):
    """Coordinates of a run. States have shape (..., n); methods work along the last axis.

    Attributes:
        layout: how the argument of the loss is laid out in a point.
        rate: time of the gradient flow in one unit of the run's time.
        time_unit: what the run's time is, such as "t / log(1/alpha)".
    """

    layout: TreeLayout
    rate: float
    time_unit: str

    @abstractmethod
    def point(self, state: np.ndarray) -> np.ndarray:
        """The argument of the loss, flat: beta, or the parameters."""

    @abstractmethod
    def parameters(self, state: np.ndarray) -> PyTree:
        """What gradient flow acts upon: (u, v), or the pytree of parameters."""

    @abstractmethod
    def log_abs(self, state: np.ndarray) -> np.ndarray:
        """The natural logarithm of the absolute value of each entry of the point."""


class AbstractFlowCoordinates(AbstractCoordinates):
    """Coordinates in which gradient flow is y' = rate * g(point(y)), with g = -dL/dpoint.

    Attributes:
        scale: the size of state to which the tolerance is relative where the state itself is smaller.
        reach: how far an entry of the state may move in a step without a look at where the point would go.
    """

    scale: float
    reach: float

    @abstractmethod
    def metric(self, state: np.ndarray) -> np.ndarray:
        """The derivative of each entry of the point by its entry of the state; at least 0."""

    @abstractmethod
    def band(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """The states between which each entry of the point is below the level in absolute value."""

    @abstractmethod
    def diverged(self, state: np.ndarray) -> np.ndarray | np.bool_:
        """Whether the point has left what float64 can follow."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MirrorCoordinates(AbstractFlowCoordinates):
    """The coordinates y of a network with diagonal weights; see the opening of this module."""

    p: np.ndarray
    q: np.ndarray
    gap: np.ndarray  # (p - q)/2, kept apart because the difference of p and q would have lost digits
    sum_sign: np.ndarray  # of u + v, never 0
    difference_sign: np.ndarray  # of u - v, never 0
    layout: TreeLayout
    rate: float
    time_unit: str = "t / log(1/alpha)"
    scale: float = 1.0  # one e-fold
    reach: float = 1.0  # one e-fold

    def point(self, state: np.ndarray) -> np.ndarray:
        """The products beta."""
        rising, _ = _capped_exp(self.p + 2 * state)
        falling, _ = _capped_exp(self.q - 2 * state)
        return rising - falling

    def metric(self, state: np.ndarray) -> np.ndarray:
        """The derivative dbeta/dy = u^2 + v^2."""
        _, rising = _capped_exp(self.p + 2 * state)
        _, falling = _capped_exp(self.q - 2 * state)
        return 2 * (rising + falling)

    def band(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """The states at which beta = -level and beta = level; infinite where beta never gets there."""
        # The quadratic e^(p + 2y) - e^(q - 2y) = level in e^(2y), solved in logarithms without cancellation.
        log = np.log(level)
        root = np.logaddexp(log, np.logaddexp(2 * log, np.log(4) + self.p + self.q) / 2) - np.log(2)
        return (self.q - root) / 2, (root - self.p) / 2

    def parameters(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The weights u and v; the smaller of the two without cancellation."""
        larger, gap = self._exponents(state)
        big = np.exp(larger) * (1 + np.exp(-np.abs(gap)))
        small = np.exp(larger) * -np.expm1(-np.abs(gap)) * np.sign(gap)
        same = self.sum_sign == self.difference_sign
        return self.sum_sign * np.where(same, big, small), self.sum_sign * np.where(same, small, big)

    def log_abs(self, state: np.ndarray) -> np.ndarray:
        """The logarithm of |beta|, right where beta itself underflows."""
        larger, gap = self._exponents(state)
        with np.errstate(divide="ignore"):
            return 2 * larger + np.log(-np.expm1(-2 * np.abs(gap)))

    def diverged(self, state: np.ndarray) -> np.ndarray | np.bool_:
        """Whether the state lies where `point` is no longer the exponential it should be."""
        return np.any(np.maximum(self.p + 2 * state, self.q - 2 * state) > _LARGEST_EXPONENT, axis=-1)

    def _exponents(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logarithm of the larger of |u + v|/2 and |u - v|/2, and the logarithm of their ratio."""
        return np.maximum(self.p / 2 + state, self.q / 2 - state), self.gap + 2 * state


def _capped_exp(exponent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The exponential, continued by its tangent beyond the largest exponent, and its derivative."""
    slope = np.exp(np.minimum(exponent, _LARGEST_EXPONENT))
    return slope * (1 + np.maximum(exponent - _LARGEST_EXPONENT, 0)), slope


@dataclass(frozen=True, eq=False, kw_only=True)
class ParameterCoordinates(AbstractFlowCoordinates):
    """The parameters themselves, flattened."""

    layout: TreeLayout
    scale: float
    reach: float = math.inf
    rate: float = 1.0
    time_unit: str = "t"

    def point(self, state: np.ndarray) -> np.ndarray:
        """The state."""
        return state

    def metric(self, state: np.ndarray) -> np.ndarray:
        """One."""
        return np.ones_like(state)

    def band(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Minus level and level."""
        size = sum(math.prod(shape) for shape in self.layout.shapes)
        return np.full(size, -level), np.full(size, level)

    def diverged(self, state: np.ndarray) -> np.ndarray | np.bool_:
        """Whether a parameter is beyond e^60."""
        return np.any(np.abs(state) > math.exp(_LARGEST_EXPONENT), axis=-1)

    def parameters(self, state: np.ndarray) -> PyTree:
        """The pytree of parameters."""
        return self.layout.build(state)

    def log_abs(self, state: np.ndarray) -> np.ndarray:
        """The logarithm of the parameters' absolute values."""
        with np.errstate(divide="ignore"):
            return np.log(np.abs(state))


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightPairCoordinates(AbstractCoordinates):
    """The weights u and v one after the other, in which gradient descent on a product runs."""

    layout: TreeLayout
    rate: float
    time_unit: str

    def point(self, state: np.ndarray) -> np.ndarray:
        """The products beta."""
        u, v = self.parameters(state)
        return u * v

    def parameters(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The weights u and v."""
        u, v = np.split(state, 2, axis=-1)
        return u, v

    def log_abs(self, state: np.ndarray) -> np.ndarray:
        """The logarithm of |beta|, right where beta itself underflows."""
        u, v = self.parameters(state)
        with np.errstate(divide="ignore"):
            return np.log(np.abs(u)) + np.log(np.abs(v))
