"""Gradient flow y' = rate * g(point(y)) with a surrogate of the gradient, for the stiff solver."""

import numpy as np

from saddlescope.flow.diagonal.coordinates import AbstractFlowCoordinates
from saddlescope.flow.diagonal.gradient_surrogate import GradientSurrogate
from saddlescope.numerics.ndf import AbstractSystem

_REACH = 0.3  # lengths that the point may go in one step


class SurrogateSystem(AbstractSystem):
    """A surrogate of the gradient in flow coordinates. Its Jacobian is -rate H(point) diag(metric)."""

    def __init__(self, surrogate: GradientSurrogate, coordinates: AbstractFlowCoordinates) -> None:
        self.surrogate, self.coordinates = surrogate, coordinates

    def slope(self, y: np.ndarray) -> np.ndarray:
        """Return the right-hand side, rate * g."""
        return -self.coordinates.rate * self.surrogate.gradient(self.coordinates.point(y))

    def jacobian(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns with known Hessian; the point hardly depends on the others."""
        columns = self.surrogate.columns
        metric = self.coordinates.metric(y)[columns]
        return columns, self.surrogate.hessian(self.coordinates.point(y)) * (-self.coordinates.rate * metric)

    def shorten(self, y: np.ndarray, predicted: np.ndarray) -> float:
        """Shorten a step in which the point would move far.

        On a plateau the state moves along a straight line, so that steps grow until one overshoots the transition by
        many e-folds.
        """
        move = predicted - y
        if np.abs(move).max() <= self.coordinates.reach:
            return 1.0
        here, fraction = self.coordinates.point(y), 1.0
        far = _REACH * self.surrogate.length
        while fraction > 1e-3 and np.abs(self.coordinates.point(y + fraction * move) - here).max() > far:
            fraction *= 0.7
        return fraction
