"""Samples that the flows of diagonal weights and of W alone lose forever.

    lost    (L - L*) over the least cost of selecting the second best token of one sample: about 1 or more if a sample
            is lost, 0 if all are learned

A lost sample can be learned late, when another margin has grown past it. Its rates then rise by e^(ln t) within a unit
of t, which float64 cannot distinguish from t itself. Such a flow ends there, and its number of lost samples is unknown
(NaN).
"""

from typing import Any

import numpy as np

from saddlescope.flow import FlowError, diagonal_margin_flow, matrix_margin_flow
from saddlescope.models import SelectionLoss, TokenData
from saddlescope.papers.softmax_attention.shared.lost_sample_statistics import FLOWS


def log_lost_samples(data: TokenData, loss: SelectionLoss, scale: float, log_times: np.ndarray) -> np.ndarray:
    """Return the logarithm of `lost` at these times, (2, k); NaN for a flow that did not reach the last one."""
    lost = np.full((len(FLOWS), len(log_times)), np.nan)
    options: dict[str, Any] = {"log_until": log_times[-1], "record": log_times, "tolerance": 1e-7}
    starts = (
        lambda: diagonal_margin_flow(loss, data.features, scale, **options),
        lambda: matrix_margin_flow(loss, data.differences, data.z, **options),
    )
    for row, start in zip(lost, starts, strict=True):
        try:
            row[:] = start().log_excess - loss.log_excess_missing().min()
        except FlowError:
            continue
    return lost
