"""Gradient flow as a stiff system y' = rate * g(point(y)): right-hand side, Jacobian, and how far a step may reach."""

import numpy as np

from saddlescope.flow.bdf import AbstractSystem
from saddlescope.flow.charts import AbstractFlowChart
from saddlescope.flow.losses import CompiledLoss

_NEGLIGIBLE = 1e-12  # metric, relative to the largest: columns of the Jacobian below it do not slow Newton's method
_REACH = 1.0  # predicted change of the gradient in one step, relative to the gradient


class GradientSystem(AbstractSystem):
    """A loss in a chart. Its Jacobian is -rate H(point) diag(metric): expensive times cheap."""

    def __init__(self, loss: CompiledLoss, chart: AbstractFlowChart) -> None:
        self.loss, self.chart = loss, chart
        self._hessian = np.zeros((0, 0))

    def slope(self, y: np.ndarray) -> np.ndarray:
        """The right-hand side, rate * g."""
        return -self.chart.rate * self.loss.value_and_gradient(self.chart.point(y))[1]

    def refresh(self, y: np.ndarray) -> None:
        """Evaluates the Hessian."""
        metric = self.chart.metric(y)
        active = metric > _NEGLIGIBLE * metric.max()
        hessian = self.loss.hessian(self.chart.point(y), active)
        self._hessian = np.where(np.isfinite(hessian), hessian, 0.0)

    def jacobian(self, y: np.ndarray) -> np.ndarray:
        """The Jacobian with the last Hessian."""
        return -self.chart.rate * self._hessian * self.chart.metric(y)

    def shorten(self, y: np.ndarray, predicted: np.ndarray, slope: np.ndarray) -> float:
        """Ends a step where the gradient, by the last Hessian, would have changed by as much as itself.

        On a plateau the state moves along a straight line, so that steps grow until one overshoots the transition by
        many e-folds; this finds the transition without evaluating the gradient.
        """
        if float(np.max(np.abs(predicted - y))) <= self.chart.reach:
            return 1.0
        here = self.chart.point(y)
        bound = _REACH * float(np.max(np.abs(slope))) / self.chart.rate

        def change(fraction: float) -> float:
            there = self.chart.point(y + fraction * (predicted - y))
            return float(np.max(np.abs(self._hessian @ (there - here))))

        if not change(1.0) > bound:
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(8):
            middle = (low + high) / 2
            low, high = (low, middle) if change(middle) > bound else (middle, high)
        return 1.0 if low > 0.9 else max(low, 1e-3)
