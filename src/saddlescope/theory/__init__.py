"""Predictions of the stages in which networks learn; never sees a simulation."""

from saddlescope.theory.deep_linear import DeepLinearStages, aligned_time, deep_linear_stages
from saddlescope.theory.escape import (
    CertifiedSpeed,
    EscapeDirections,
    LayerRatios,
    Polished,
    SpentBudget,
    budget,
    certified_escape_speed,
    clarke_residual,
    deepen,
    escape_directions,
    escape_speed,
    escape_time,
    first_layer_with_content,
    gradient_at_zero,
    grown_norm,
    improve_directions,
    layer_ratios,
    low_rank_activations,
    nearly_rank_one_bound,
    on_sphere,
    optimal_layer_bound,
    polish,
    rank_one_escape_speed,
    spent_budget,
)
from saddlescope.theory.finite_scale import Correction, InitialWeights
from saddlescope.theory.following import FlowThenNewton
from saddlescope.theory.greedy import incremental_learning
from saddlescope.theory.low_rank import LowRankLearning, LowRankStage, low_rank_learning
from saddlescope.theory.orbit import TimedFlow
from saddlescope.theory.prediction import GreedyStage, IncrementalLearning, NearTie, Status
from saddlescope.theory.resting import FlowToRest
from saddlescope.theory.transition import Transition

__all__ = [
    "CertifiedSpeed",
    "Correction",
    "DeepLinearStages",
    "EscapeDirections",
    "FlowThenNewton",
    "FlowToRest",
    "GreedyStage",
    "IncrementalLearning",
    "InitialWeights",
    "LayerRatios",
    "LowRankLearning",
    "LowRankStage",
    "NearTie",
    "Polished",
    "SpentBudget",
    "Status",
    "TimedFlow",
    "Transition",
    "aligned_time",
    "budget",
    "certified_escape_speed",
    "clarke_residual",
    "deep_linear_stages",
    "deepen",
    "escape_directions",
    "escape_speed",
    "escape_time",
    "first_layer_with_content",
    "gradient_at_zero",
    "grown_norm",
    "improve_directions",
    "incremental_learning",
    "layer_ratios",
    "low_rank_activations",
    "low_rank_learning",
    "nearly_rank_one_bound",
    "on_sphere",
    "optimal_layer_bound",
    "polish",
    "rank_one_escape_speed",
    "spent_budget",
]
