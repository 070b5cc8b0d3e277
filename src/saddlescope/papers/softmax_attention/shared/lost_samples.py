"""Samples that the flows of diagonal weights and of W alone lose forever.

    lost    (L - L*) over the least cost of selecting the second best token of one sample: about 1 or more if a sample
            is lost, 0 if all are learned

A lost sample can be learned late, when another margin has grown past it. Its rates then rise by e^(ln t) within a unit
of t, which float64 cannot distinguish from t itself. Such a flow ends there, and its number of lost samples is unknown
(NaN).
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from saddlescope.papers.softmax_attention.shared.curves import share_curve
from saddlescope.plot import Band, Line
from saddlescope.reproduction import Estimate

if TYPE_CHECKING:
    from saddlescope.models import TokenData

FLOWS = ("diagonal weights", "W alone")

LOST = 0.5  # number of lost samples above which a flow counts as losing one


def log_lost_samples(data: "TokenData", scale: float, log_times: np.ndarray) -> np.ndarray:
    """Return the logarithm of `lost` at these times, (2, k); NaN for a flow that did not reach the last one."""
    from saddlescope.flow import FlowError
    from saddlescope.papers.softmax_attention.shared.flows import diagonal_flow, matrix_flow, selection_loss

    lost, one = np.full((len(FLOWS), len(log_times)), np.nan), selection_loss(data).log_excess_missing().min()
    for k, follow in enumerate((partial(diagonal_flow, data, scale), partial(matrix_flow, data))):
        with suppress(FlowError):
            lost[k] = follow(log_times).log_excess - one
    return lost


def count_losing_flows(ends: np.ndarray, when: str, where: np.ndarray | None = None) -> Estimate:
    """Return the number of flows that lose a sample; undecided if one did not reach its last time.

    Args:
        ends: number of lost samples of each flow, (..., draws).
        when: name of the last time.
        where: True for the flows to count, of the shape of `ends`; None for all.
    """
    chosen = np.ones(ends.shape, bool) if where is None else where
    flows, unknown = int(chosen.sum()), int(np.isnan(ends[chosen]).sum())
    if not flows:
        return Estimate.unresolved("No data of the run meet the condition; use more instances.")
    if unknown:
        return Estimate.unresolved(f"{unknown} of {flows} flows did not reach {when}; use another seed.")
    draws = int(np.any(chosen, axis=tuple(range(chosen.ndim - 1))).sum())
    estimate = Estimate.number(ends[chosen] > LOST, f"of {flows} flows, at {when}", over="draws of data")
    return replace(estimate, n=draws)


def losing_share_curve(x: np.ndarray, ends: np.ndarray, label: str, color: int) -> list[Line | Band]:
    """Draw the share of flows that lose a sample against x, from the lost samples of each flow, (x, draws)."""
    return share_curve(x, np.sum(ends > LOST, axis=1), np.sum(~np.isnan(ends), axis=1), label, color)
