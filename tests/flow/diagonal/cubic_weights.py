"""A parametrisation of a flow in one file: weights u and v with beta = u^3 - v^3.

Under gradient flow u' = 3 u^2 g and v' = -3 v^2 g with g = -dL/dbeta, so that with y the integral of g over time

    u = 1 / (1 / u(0) - 3 y),    v = 1 / (1 / v(0) + 3 y),    dbeta/dy = 9 (u^4 + v^4)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import PyTree
from scipy.optimize import brentq

from saddlescope.flow.diagonal.coordinates import AbstractFlowCoordinates, WeightPairCoordinates
from saddlescope.flow.diagonal.initial_conditions import AbstractInit
from saddlescope.numerics.tree_layout import TreeLayout

LARGEST = 1e3  # weights, beyond which a trial step is held


def beta_of(weights: tuple[Any, Any]) -> Any:
    """Return beta."""
    u, v = weights
    return u**3 - v**3


@dataclass(frozen=True, eq=False, kw_only=True)
class CubicCoordinates(AbstractFlowCoordinates):
    """The integrals y."""

    u0: np.ndarray
    v0: np.ndarray
    layout: TreeLayout
    rate: float = 1.0
    time_unit: str = "t"
    scale: float = 1.0
    reach: float = 0.0

    def of_descent(self) -> "CubicPairs":
        return CubicPairs(layout=self.layout, rate=self.rate, time_unit=self.time_unit)

    def parameters(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        u, v = 1 / self.u0 - 3 * state, 1 / self.v0 + 3 * state
        return 1 / np.maximum(u, 1 / LARGEST), 1 / np.maximum(v, 1 / LARGEST)

    def point(self, state: np.ndarray) -> np.ndarray:
        return beta_of(self.parameters(state))

    def metric(self, state: np.ndarray) -> np.ndarray:
        u, v = self.parameters(state)
        return 9 * (u**4 + v**4)

    def log_abs(self, state: np.ndarray) -> np.ndarray:
        return np.log(np.abs(self.point(state)))

    def band(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        lowest, highest = (1 / LARGEST - 1 / self.v0) / 3, (1 / self.u0 - 1 / LARGEST) / 3

        def at(beta: float) -> np.ndarray:
            def offset(y: float, i: int) -> float:
                return float(self.point(np.full(len(self.u0), y))[i]) - beta

            return np.array([brentq(offset, lowest[i], highest[i], (i,), 1e-14) for i in range(len(self.u0))])

        return at(-level), at(level)

    def diverged(self, state: np.ndarray) -> np.bool_:
        return np.any(np.maximum(*self.parameters(state)) >= LARGEST)


class CubicPairs(WeightPairCoordinates):
    """The weights u and v, one after the other."""

    argument = staticmethod(beta_of)

    def log_abs(self, state: np.ndarray) -> np.ndarray:
        return np.log(np.abs(self.point(state)))


@dataclass(frozen=True, eq=False)
class CubicInit(AbstractInit):
    """Positive weights u and v, shape (p,) each."""

    u: np.ndarray
    v: np.ndarray

    def flow_coordinates(self) -> CubicCoordinates:
        return CubicCoordinates(u0=self.u, v0=self.v, layout=TreeLayout.of(self.u))

    def origin(self) -> np.ndarray:
        return np.zeros_like(self.u)

    def parameters(self) -> PyTree:
        return self.u, self.v

    def at(self, parameters: PyTree) -> "CubicInit":
        return CubicInit(*map(np.asarray, parameters))
