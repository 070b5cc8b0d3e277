"""What the theories speak of, in JAX: parameters, loss, and the data laws of the papers' toy tasks."""

from saddlescope.models.attention import AttentionNetwork, AttentionTeacherTask, attention_head, attention_teacher_task
from saddlescope.models.diagonal import DiagonalNetwork, squared_error
from saddlescope.models.full_attention import (
    FullAttention,
    FullAttentionTeacherTask,
    full_attention_head,
    full_attention_teacher_task,
)
from saddlescope.models.layered import (
    LayeredLoss,
    Weights,
    balancedness,
    cross_entropy,
    half_squared_error,
    layered_output,
    layered_weights,
    preactivations,
    weak_balancedness,
)
from saddlescope.models.linear import DiagonalLinearNetwork, diagonal_linear_network
from saddlescope.models.transformer import (
    Coordinate,
    Transformer,
    TransformerNetwork,
    TransformerTeacherTask,
    gelu,
    transformer_teacher_task,
)
from saddlescope.models.weights import network_of_weights

__all__ = [
    "AttentionNetwork",
    "AttentionTeacherTask",
    "Coordinate",
    "DiagonalLinearNetwork",
    "DiagonalNetwork",
    "FullAttention",
    "FullAttentionTeacherTask",
    "LayeredLoss",
    "Transformer",
    "TransformerNetwork",
    "TransformerTeacherTask",
    "Weights",
    "attention_head",
    "attention_teacher_task",
    "balancedness",
    "cross_entropy",
    "diagonal_linear_network",
    "full_attention_head",
    "full_attention_teacher_task",
    "gelu",
    "half_squared_error",
    "layered_output",
    "layered_weights",
    "network_of_weights",
    "preactivations",
    "squared_error",
    "transformer_teacher_task",
    "weak_balancedness",
]
