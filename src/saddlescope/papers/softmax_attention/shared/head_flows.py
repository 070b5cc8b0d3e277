"""Random heads, and margin flows at the first tolerance at which their energy is in balance."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

_TOLERANCES = (1e-7, 1e-8, 1e-9)

_Flow = TypeVar("_Flow")


def follow_in_balance(flow: Callable[..., _Flow], *of: object, log_times: np.ndarray) -> _Flow:
    """Follow a flow at the first of some tolerances at which its energy is in balance.

    Args:
        flow: `matrix_margin_flow` or `key_query_margin_flow`.
        *of: positional arguments of the flow.
        log_times: ln t to record, ascending; the last one is the end of the flow.

    Raises:
        FlowError: the energy is out of balance at all of them.
    """
    from saddlescope.flow import FlowError

    for tolerance in _TOLERANCES[:-1]:
        try:
            return flow(*of, log_until=log_times[-1], record=log_times, tolerance=tolerance)
        except FlowError:
            continue
    return flow(*of, log_until=log_times[-1], record=log_times, tolerance=_TOLERANCES[-1])


def draw_head(seed: tuple[int, ...], dim: int, columns: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw K and Q (dim, columns) with normal entries of deviation scale / sqrt(dim)."""
    K, Q = scale / dim**0.5 * np.random.default_rng(seed).normal(size=(2, dim, columns))
    return K, Q
