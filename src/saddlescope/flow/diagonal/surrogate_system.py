"""Gradient flow y' = rate * g(point(y)) with a model in the place of the gradient: what the stiff solver integrates."""

import numpy as np

from saddlescope.flow.diagonal.coordinates import AbstractFlowCoordinates
from saddlescope.flow.diagonal.gradient_surrogate import GradientSurrogate
from saddlescope.flow.solvers.ndf import AbstractSystem

_REACH = 0.3  # lengths that the point may go in one step


class SurrogateSystem(AbstractSystem):
    """A model of the gradient in a coordinates. Its Jacobian is -rate H(point) diag(metric)."""

    def __init__(self, model: GradientSurrogate, coordinates: AbstractFlowCoordinates) -> None:
        self.model, self.coordinates = model, coordinates

    def slope(self, y: np.ndarray) -> np.ndarray:
        """The right-hand side, rate * g."""
        return -self.coordinates.rate * self.model.gradient(self.coordinates.point(y))

    def jacobian(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The columns of the entries that the model knows the Hessian of; the point hardly depends on others."""
        columns = self.model.columns
        hessian = self.model.hessian(self.coordinates.point(y))
        return columns, -self.coordinates.rate * hessian * self.coordinates.metric(y)[columns]

    def shorten(self, y: np.ndarray, predicted: np.ndarray) -> float:
        """Ends a step where the point would have gone far.

        On a plateau the state moves along a straight line, so that steps grow until one overshoots the transition by
        many e-folds.
        """
        move = predicted - y
        if float(np.max(np.abs(move))) <= self.coordinates.reach:
            return 1.0
        here, fraction = self.coordinates.point(y), 1.0
        while fraction > 1e-3 and np.max(np.abs(self.coordinates.point(y + fraction * move) - here)) > (
            _REACH * self.model.length
        ):
            fraction *= 0.7
        return fraction
