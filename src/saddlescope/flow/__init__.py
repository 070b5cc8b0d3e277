"""Gradient flow and gradient descent: any loss on any parameters, at any initial scale. Knows no model."""

from saddlescope.flow.continuous import gradient_flow
from saddlescope.flow.discrete import gradient_descent
from saddlescope.flow.log_products import LogProducts
from saddlescope.flow.minibatches import SampledLoss
from saddlescope.flow.factored import Factors, FactoredTrajectory, factored_flow
from saddlescope.flow.starts import Continued, Plain, Products
from saddlescope.flow.trajectory import Accuracy, Crossing, FlowError, Status, Trajectory

__all__ = [
    "Accuracy",
    "Continued",
    "Crossing",
    "FactoredTrajectory",
    "Factors",
    "FlowError",
    "LogProducts",
    "Plain",
    "Products",
    "SampledLoss",
    "Status",
    "Trajectory",
    "factored_flow",
    "gradient_descent",
    "gradient_flow",
]
