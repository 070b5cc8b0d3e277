"""What the theories speak of, in JAX: parameters, loss, and the data laws of the papers' toy tasks."""

from saddlescope.models.attention import AttentionNetwork, AttentionTeacherTask, attention_head, attention_teacher_task
from saddlescope.models.diagonal import DiagonalNetwork, squared_error
from saddlescope.models.linear import DiagonalLinearNetwork, diagonal_linear_network

__all__ = [
    "AttentionNetwork",
    "AttentionTeacherTask",
    "DiagonalLinearNetwork",
    "DiagonalNetwork",
    "attention_head",
    "attention_teacher_task",
    "diagonal_linear_network",
    "squared_error",
]
