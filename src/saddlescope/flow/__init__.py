"""Gradient flow and gradient descent: any loss on any parameters, at any initial scale. Knows no model."""

from saddlescope.flow.descent.gradient_descent import gradient_descent
from saddlescope.flow.descent.sgd import Recording, geometric_marks, homogeneous_rate, recorded_descent
from saddlescope.flow.descent.sgd_batched import Recordings, recorded_descents
from saddlescope.flow.diagonal.gradient_flow import gradient_flow
from saddlescope.flow.diagonal.gradient_flows import FlowsError, Trajectories, gradient_flows
from saddlescope.flow.diagonal.initial_conditions import Continued, Plain, Products
from saddlescope.flow.diagonal.log_initial_condition import LogProducts
from saddlescope.flow.diagonal.trajectory import Accuracy, Crossing, FlowError, Status, Trajectory
from saddlescope.flow.factored.factored_flow import FactoredTrajectory, Factors, factored_flow
from saddlescope.flow.homogeneous import EscapeFlow, escape_flow
from saddlescope.flow.losses.minibatches import SampledLoss
from saddlescope.flow.margin.margin_flow import diagonal_margin_flow, key_query_margin_flow, matrix_margin_flow
from saddlescope.flow.margin.records import MarginFlow, MarginFlowError
from saddlescope.flow.margin.results import DiagonalMarginFlow, DiagonalStart, KeyQueryMarginFlow, MatrixMarginFlow
from saddlescope.flow.margin.weight_flow import WeightFlow, weight_flow
from saddlescope.flow.two_layer.start_search import FoundStart, SearchError, find_start
from saddlescope.flow.two_layer.symmetric_flows import Ending, SymmetricFlows, symmetric_flows
from saddlescope.flow.two_layer.symmetric_path import SymmetricPath, symmetric_path

__all__ = [
    "Accuracy",
    "Continued",
    "Crossing",
    "DiagonalMarginFlow",
    "DiagonalStart",
    "Ending",
    "EscapeFlow",
    "FactoredTrajectory",
    "Factors",
    "FlowError",
    "FlowsError",
    "FoundStart",
    "KeyQueryMarginFlow",
    "LogProducts",
    "MarginFlow",
    "MarginFlowError",
    "MatrixMarginFlow",
    "Plain",
    "Products",
    "Recording",
    "Recordings",
    "SampledLoss",
    "SearchError",
    "Status",
    "SymmetricFlows",
    "SymmetricPath",
    "Trajectories",
    "Trajectory",
    "WeightFlow",
    "diagonal_margin_flow",
    "escape_flow",
    "factored_flow",
    "find_start",
    "geometric_marks",
    "gradient_descent",
    "gradient_flow",
    "gradient_flows",
    "homogeneous_rate",
    "key_query_margin_flow",
    "matrix_margin_flow",
    "recorded_descent",
    "recorded_descents",
    "symmetric_flows",
    "symmetric_path",
    "weight_flow",
]
