"""Learning of concepts by linear networks on the structured identity mapping task: one layer, two symmetric ones, more.

Time is that of the true gradient flow of equation 4.1. In the two-layer network, whose equations 4.3 and D.2 drop a
factor 2, the paper's time is twice as long.

Yang, Park, Lubana, Okawa, Hu and Tanaka (2024), "Dynamics of concept learning and compositional generalization":
Theorem 4.1, equations, assumptions and lemmas are those of this paper throughout.
"""

from saddlescope.theory.concepts.assumptions import (
    Assumptions,
    Condition,
    LargestStart,
    check_assumptions,
    largest_start,
)
from saddlescope.theory.concepts.bounds import InitialGrowth, initial_growth, map_ceiling
from saddlescope.theory.concepts.closed_forms import proportional_map
from saddlescope.theory.concepts.deep_linear import DeepStages, balanced_times, deep_stages, turning_rate
from saddlescope.theory.concepts.early_alignment import EarlyAlignment, early_alignment
from saddlescope.theory.concepts.flow_limit import PredictedLimit, predicted_limit
from saddlescope.theory.concepts.lemmas import lemma_d2_time, lemma_d3_time
from saddlescope.theory.concepts.one_layer import OneLayerOutput, monotone_norm, one_layer_map, one_layer_output
from saddlescope.theory.concepts.stages import ConceptStages, concept_stages
from saddlescope.theory.concepts.update_terms import UpdateTerms, update_terms

__all__ = [
    "Assumptions",
    "ConceptStages",
    "Condition",
    "DeepStages",
    "EarlyAlignment",
    "InitialGrowth",
    "LargestStart",
    "OneLayerOutput",
    "PredictedLimit",
    "UpdateTerms",
    "balanced_times",
    "check_assumptions",
    "concept_stages",
    "deep_stages",
    "early_alignment",
    "initial_growth",
    "largest_start",
    "lemma_d2_time",
    "lemma_d3_time",
    "map_ceiling",
    "monotone_norm",
    "one_layer_map",
    "one_layer_output",
    "predicted_limit",
    "proportional_map",
    "turning_rate",
    "update_terms",
]
