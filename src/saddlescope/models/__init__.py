"""Models in JAX: networks with their losses, and the data laws of the papers' toy tasks."""

from saddlescope.models.attention.diagonal_head import (
    AttentionNetwork,
    AttentionTeacherTask,
    attention_head,
    attention_teacher_task,
)
from saddlescope.models.attention.full_head import (
    FullAttention,
    FullAttentionTeacherTask,
    full_attention_head,
    full_attention_teacher_task,
)
from saddlescope.models.attention.transformer import (
    Coordinate,
    Transformer,
    TransformerNetwork,
    TransformerTeacherTask,
    gelu,
    transformer_teacher_task,
)
from saddlescope.models.concepts.networks import (
    PopulationLoss,
    identity_loss,
    layered_map,
    symmetric_factor,
    symmetric_map,
    symmetric_weights,
)
from saddlescope.models.concepts.perceptron import (
    LinearPerceptronLoss,
    MomentLoss,
    PerceptronLoss,
    PerceptronWeights,
    ReluPerceptronLoss,
    perceptron_loss,
    perceptron_output,
    perceptron_weights,
    weights_from_span,
    weights_in_span,
)
from saddlescope.models.concepts.task import ConceptCube, StructuredIdentityTask, random_rotation
from saddlescope.models.deep import (
    LayeredLoss,
    Weights,
    balancedness,
    cross_entropy,
    half_squared_error,
    layered_output,
    layered_weights,
    preactivations,
)
from saddlescope.models.diagonal.linear import DiagonalLinearNetwork, diagonal_linear_network
from saddlescope.models.diagonal.network import DiagonalNetwork, squared_error
from saddlescope.models.tokens.assumptions import TokenAssumptions, alignment_residual, check_token_assumptions
from saddlescope.models.tokens.data import TokenData, load_tokens
from saddlescope.models.tokens.generators import aligned_tokens, conditioned_tokens, gaussian_tokens, with_gaps
from saddlescope.models.tokens.losses import SelectionLoss, attention_loss
from saddlescope.models.tokens.separability import Separability, require_separable, separability

__all__ = [
    "AttentionNetwork",
    "AttentionTeacherTask",
    "ConceptCube",
    "Coordinate",
    "DiagonalLinearNetwork",
    "DiagonalNetwork",
    "FullAttention",
    "FullAttentionTeacherTask",
    "LayeredLoss",
    "LinearPerceptronLoss",
    "MomentLoss",
    "PerceptronLoss",
    "PerceptronWeights",
    "PopulationLoss",
    "ReluPerceptronLoss",
    "SelectionLoss",
    "Separability",
    "StructuredIdentityTask",
    "TokenAssumptions",
    "TokenData",
    "Transformer",
    "TransformerNetwork",
    "TransformerTeacherTask",
    "Weights",
    "aligned_tokens",
    "alignment_residual",
    "attention_head",
    "attention_loss",
    "attention_teacher_task",
    "balancedness",
    "check_token_assumptions",
    "conditioned_tokens",
    "cross_entropy",
    "diagonal_linear_network",
    "full_attention_head",
    "full_attention_teacher_task",
    "gaussian_tokens",
    "gelu",
    "half_squared_error",
    "identity_loss",
    "layered_map",
    "layered_output",
    "layered_weights",
    "load_tokens",
    "perceptron_loss",
    "perceptron_output",
    "perceptron_weights",
    "preactivations",
    "random_rotation",
    "require_separable",
    "separability",
    "squared_error",
    "symmetric_factor",
    "symmetric_map",
    "symmetric_weights",
    "transformer_teacher_task",
    "weights_from_span",
    "weights_in_span",
    "with_gaps",
]
