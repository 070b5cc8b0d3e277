"""Margin flows of heads drawn at random, followed as closely as their own check of the energy asks for."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

_TOLERANCES = (1e-7, 1e-8, 1e-9)
_Flow = TypeVar("_Flow")


def followed(flow: "Callable[..., _Flow]", *of: object) -> "_Flow":
    """A flow of those arguments, at the first of some tolerances at which its energy is in balance.

    Args:
        flow: `matrix_margin_flow` or `key_query_margin_flow`.
        *of: its arguments by position.

    Raises:
        MarginFlowError: it is so at none of them.
    """
    from saddlescope.flow import MarginFlowError

    for tolerance in _TOLERANCES[:-1]:
        try:
            return flow(*of, tolerance=tolerance)
        except MarginFlowError:
            continue
    return flow(*of, tolerance=_TOLERANCES[-1])


def drawn_head(seed: tuple[int, ...], dim: int, columns: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """K and Q (dim, columns) of normal entries of deviation scale / sqrt(dim)."""
    K, Q = scale / dim**0.5 * np.random.default_rng(seed).normal(size=(2, dim, columns))
    return K, Q
