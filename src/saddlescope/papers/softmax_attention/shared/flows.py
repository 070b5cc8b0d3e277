"""Margin flows on token data with the exponential loss, recorded at given ln t of which the last one ends the flow."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from saddlescope.flow import (
    DiagonalMarginFlow,
    FlowError,
    KeyQueryMarginFlow,
    MatrixMarginFlow,
    diagonal_margin_flow,
    key_query_margin_flow,
    matrix_margin_flow,
)
from saddlescope.models import SelectionLoss, TokenData

_TOLERANCES = (1e-7, 1e-8, 1e-9)

Weights = tuple[np.ndarray, np.ndarray]
"""K and Q, each (d, d_e)."""

_Flow = TypeVar("_Flow")


def selection_loss(data: TokenData) -> SelectionLoss:
    """Return the exponential loss of the data as a function of their margins."""
    return SelectionLoss(data.optimal_scores, data.gaps)


def diagonal_flow(
    data: TokenData, scale: ArrayLike, log_times: np.ndarray, tolerance: float = 1e-7, most: int = 100_000
) -> DiagonalMarginFlow:
    """Follow diagonal weights from w₊ = w₋ = ω₀, one scale or one for each coordinate, in `most` evaluations."""
    policies = {"log_until": log_times[-1], "record": log_times, "tolerance": tolerance, "max_evaluations": most}
    return diagonal_margin_flow(selection_loss(data), data.features, scale, **policies)


def matrix_flow(data: TokenData, log_times: np.ndarray, tolerance: float = 1e-7) -> MatrixMarginFlow:
    """Follow W alone from 0."""
    loss, until = selection_loss(data), log_times[-1]
    return matrix_margin_flow(loss, data.differences, data.z, log_until=until, record=log_times, tolerance=tolerance)


def key_query_flow(data: TokenData, start: Weights, log_times: np.ndarray, tolerance: float) -> KeyQueryMarginFlow:
    """Follow K and Q from a start."""
    loss, until = selection_loss(data), log_times[-1]
    return key_query_margin_flow(
        loss, data.differences, data.z, start, log_until=until, record=log_times, tolerance=tolerance
    )


def in_balance(follow: Callable[[float], _Flow]) -> _Flow:
    """Follow a flow at the first of some tolerances at which its energy is in balance.

    Raises:
        FlowError: the energy is out of balance at all of them.
    """
    for tolerance in _TOLERANCES[:-1]:
        try:
            return follow(tolerance)
        except FlowError:
            continue
    return follow(_TOLERANCES[-1])


def draw_head(seed: tuple[int, ...], dim: int, columns: int, scale: float) -> Weights:
    """Draw K and Q (dim, columns) with normal entries of deviation scale / sqrt(dim)."""
    K, Q = scale / dim**0.5 * np.random.default_rng(seed).normal(size=(2, dim, columns))
    return K, Q
