"""What the theories speak of, in JAX: parameters, loss, and the data laws of the papers' toy tasks."""

from saddlescope.models.attention import AttentionNetwork, AttentionTeacherTask, attention_head, attention_teacher_task
from saddlescope.models.diagonal import DiagonalNetwork, squared_error
from saddlescope.models.full_attention import (
    FullAttention,
    FullAttentionTeacherTask,
    full_attention_head,
    full_attention_teacher_task,
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
    "Transformer",
    "TransformerNetwork",
    "TransformerTeacherTask",
    "attention_head",
    "attention_teacher_task",
    "diagonal_linear_network",
    "full_attention_head",
    "full_attention_teacher_task",
    "gelu",
    "network_of_weights",
    "squared_error",
    "transformer_teacher_task",
]
