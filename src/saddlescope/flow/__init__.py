"""Gradient flow and gradient descent: any loss on any parameters, at any initial scale. Knows no model."""

from saddlescope.flow.continuous import gradient_flow
from saddlescope.flow.discrete import gradient_descent
from saddlescope.flow.starts import Continued, Plain, Products
from saddlescope.flow.trajectory import Accuracy, Crossing, FlowError, Status, Trajectory

__all__ = [
    "Accuracy",
    "Continued",
    "Crossing",
    "FlowError",
    "Plain",
    "Products",
    "Status",
    "Trajectory",
    "gradient_descent",
    "gradient_flow",
]
