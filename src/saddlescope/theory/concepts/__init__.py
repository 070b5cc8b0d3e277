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
from saddlescope.theory.concepts.deep_linear import DeepStages, deep_stages
from saddlescope.theory.concepts.early_alignment import EarlyAlignment, early_alignment
from saddlescope.theory.concepts.lemmas import lemma_d2_time, lemma_d3_time
from saddlescope.theory.concepts.one_layer import OneLayerOutput, one_layer_output
from saddlescope.theory.concepts.stages import ConceptStages, concept_stages
from saddlescope.theory.concepts.update_terms import UpdateTerms, update_terms

__all__ = [
    "Assumptions",
    "ConceptStages",
    "Condition",
    "DeepStages",
    "EarlyAlignment",
    "LargestStart",
    "OneLayerOutput",
    "UpdateTerms",
    "check_assumptions",
    "concept_stages",
    "deep_stages",
    "early_alignment",
    "largest_start",
    "lemma_d2_time",
    "lemma_d3_time",
    "one_layer_output",
    "update_terms",
]
