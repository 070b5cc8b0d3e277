"""Samples that the flows of diagonal weights and of W alone lose forever.

    lost    (L - L*) over what it costs to see the second best token of one sample, at least: about 1 or more where a
            sample is lost, 0 where all are learned

A lost sample can be rescued late, when another margin has grown past it. Its rates then rise by e^(ln t) within a unit
of t, which float64 cannot distinguish from t itself: such a flow ends there, and its loss of samples is unknown (NaN).
"""

import numpy as np

from saddlescope.flow import FlowError, diagonal_margin_flow, matrix_margin_flow
from saddlescope.models import SelectionLoss, TokenData
from saddlescope.papers.softmax_attention.shared.lost_sample_statistics import FLOWS


def log_lost_samples(data: TokenData, loss: SelectionLoss, scale: float, log_times: np.ndarray) -> np.ndarray:
    """Return the logarithm of what each flow has lost at these times, (2, k); NaN where it did not reach its last."""
    lost = np.full((len(FLOWS), len(log_times)), np.nan)
    starts = (
        lambda: diagonal_margin_flow(
            loss, data.features, scale, log_until=log_times[-1], record=log_times, tolerance=1e-7
        ),
        lambda: matrix_margin_flow(
            loss, data.differences, data.z, log_until=log_times[-1], record=log_times, tolerance=1e-7
        ),
    )
    for row, start in zip(lost, starts, strict=True):
        try:
            row[:] = start().log_excess - loss.log_excess_missing().min()
        except FlowError:
            continue
    return lost
