"""Predictions of the stages in which networks learn; never sees a simulation."""

from saddlescope.theory.finite_scale import Correction, InitialWeights
from saddlescope.theory.following import FlowThenNewton
from saddlescope.theory.greedy import incremental_learning
from saddlescope.theory.low_rank import LowRankLearning, LowRankStage, low_rank_learning
from saddlescope.theory.orbit import TimedFlow
from saddlescope.theory.prediction import GreedyStage, IncrementalLearning, NearTie, Status
from saddlescope.theory.resting import FlowToRest
from saddlescope.theory.transition import Transition

__all__ = [
    "Correction",
    "FlowThenNewton",
    "FlowToRest",
    "GreedyStage",
    "IncrementalLearning",
    "InitialWeights",
    "LowRankLearning",
    "LowRankStage",
    "NearTie",
    "Status",
    "TimedFlow",
    "Transition",
    "incremental_learning",
    "low_rank_learning",
]
