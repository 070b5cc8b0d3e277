"""Gradient flow and gradient descent: any loss on any parameters, at any initial scale. Knows no model."""

from saddlescope.flow.batch import FlowsError, Trajectories, gradient_flows
from saddlescope.flow.continuous import gradient_flow
from saddlescope.flow.discrete import gradient_descent
from saddlescope.flow.factored import FactoredTrajectory, Factors, factored_flow
from saddlescope.flow.homogeneous import EscapeFlow, escape_flow
from saddlescope.flow.log_products import LogProducts
from saddlescope.flow.margin_flow import diagonal_margin_flow, key_query_margin_flow, matrix_margin_flow
from saddlescope.flow.margin_records import MarginFlow, MarginFlowError
from saddlescope.flow.margin_results import DiagonalMarginFlow, DiagonalStart, KeyQueryMarginFlow, MatrixMarginFlow
from saddlescope.flow.minibatches import SampledLoss
from saddlescope.flow.recorded import Recording, geometric_marks, homogeneous_rate, recorded_descent
from saddlescope.flow.recorded_many import Recordings, recorded_descents
from saddlescope.flow.start_search import FoundStart, SearchError, find_start
from saddlescope.flow.starts import Continued, Plain, Products
from saddlescope.flow.symmetric import Ending, SymmetricFlows, symmetric_flows
from saddlescope.flow.symmetric_path import SymmetricPath, symmetric_path
from saddlescope.flow.trajectory import Accuracy, Crossing, FlowError, Status, Trajectory
from saddlescope.flow.weight_flow import WeightFlow, weight_flow

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
