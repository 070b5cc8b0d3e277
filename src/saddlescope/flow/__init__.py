"""Gradient flow and gradient descent: any loss on any parameters, at any initial scale. Knows no model."""

from saddlescope.flow.descent.gradient_descent import gradient_descent
from saddlescope.flow.descent.learning_rates import AbstractLearningRate, homogeneous_rate
from saddlescope.flow.descent.recorded_steps import geometric_steps
from saddlescope.flow.descent.sgd import Recording, sgd
from saddlescope.flow.descent.sgd_batched import BatchedRecording, sgd_batched
from saddlescope.flow.diagonal.gradient_flow import gradient_flow
from saddlescope.flow.diagonal.gradient_flow_batched import BatchedTrajectory, gradient_flow_batched
from saddlescope.flow.diagonal.initial_conditions import DiagonalInit, ParameterInit, ResumeFrom
from saddlescope.flow.diagonal.log_initial_condition import LogDiagonalInit
from saddlescope.flow.diagonal.trajectory import Accuracy, LevelEvent, Trajectory
from saddlescope.flow.factored.factored_flow import FactoredTrajectory, FactorInit, factored_flow
from saddlescope.flow.homogeneous import EscapeFlow, escape_flow
from saddlescope.flow.losses.minibatches import FiniteSumLoss
from saddlescope.flow.margin.margin_flow import diagonal_margin_flow, key_query_margin_flow, matrix_margin_flow
from saddlescope.flow.margin.records import MarginFlow
from saddlescope.flow.margin.results import DiagonalMarginFlow, DiagonalMarginInit, KeyQueryMarginFlow, MatrixMarginFlow
from saddlescope.flow.margin.weight_flow import WeightFlow, weight_flow
from saddlescope.flow.status import BatchedFlowError, FlowError, Status
from saddlescope.flow.two_layer.start_search import FoundStart, SearchError, find_start
from saddlescope.flow.two_layer.symmetric_flows import Ending, SymmetricFlows, symmetric_flows
from saddlescope.flow.two_layer.symmetric_path import SymmetricPath, symmetric_path
from saddlescope.flow.units.unit_flow import UnitTrajectory, unit_flow

__all__ = [
    "AbstractLearningRate",
    "Accuracy",
    "BatchedFlowError",
    "BatchedRecording",
    "BatchedTrajectory",
    "DiagonalInit",
    "DiagonalMarginFlow",
    "DiagonalMarginInit",
    "Ending",
    "EscapeFlow",
    "FactorInit",
    "FactoredTrajectory",
    "FiniteSumLoss",
    "FlowError",
    "FoundStart",
    "KeyQueryMarginFlow",
    "LevelEvent",
    "LogDiagonalInit",
    "MarginFlow",
    "MatrixMarginFlow",
    "ParameterInit",
    "Recording",
    "ResumeFrom",
    "SearchError",
    "Status",
    "SymmetricFlows",
    "SymmetricPath",
    "Trajectory",
    "UnitTrajectory",
    "WeightFlow",
    "diagonal_margin_flow",
    "escape_flow",
    "factored_flow",
    "find_start",
    "geometric_steps",
    "gradient_descent",
    "gradient_flow",
    "gradient_flow_batched",
    "homogeneous_rate",
    "key_query_margin_flow",
    "matrix_margin_flow",
    "sgd",
    "sgd_batched",
    "symmetric_flows",
    "symmetric_path",
    "unit_flow",
    "weight_flow",
]
