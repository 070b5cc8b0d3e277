"""Flows of diagonal weights and of W alone, side by side: how many samples does each lose for ever?

    lost    (L - L*) over what it costs to see the second best token of one sample, at least: about 1 or more where a
            sample is lost, 0 where all are learned

A lost sample can be rescued late, when another margin has grown past it. Its rates then rise by e^(ln t) within a unit
of t, which float64 cannot tell from t itself: such a flow ends there, and what it loses is not known (NaN).
"""

from typing import TYPE_CHECKING

import numpy as np

from saddlescope.flow import MarginFlowError, diagonal_margin_flow, matrix_margin_flow
from saddlescope.papers.softmax_attention.shared.share_marks import share_marks
from saddlescope.plot import Band, Line
from saddlescope.reproduction.claim import Estimate

if TYPE_CHECKING:
    from saddlescope.models import SelectionLoss, TokenData

FLOWS = ("diagonal weights", "W alone")
LOST = 0.5  # beyond it, a sample is lost


def log_lost(data: "TokenData", loss: "SelectionLoss", scale: float, log_times: np.ndarray) -> np.ndarray:
    """The logarithm of what each flow has lost at these times, (2, k), NaN where it did not come to its last time."""
    lost = np.full((len(FLOWS), len(log_times)), np.nan)
    starts = (
        lambda: diagonal_margin_flow(loss, data.features, scale, log_times),
        lambda: matrix_margin_flow(loss, data.differences, data.z, log_times),
    )
    for row, start in zip(lost, starts, strict=True):
        try:
            row[:] = start().log_excess - loss.log_excess_missing().min()
        except MarginFlowError:
            continue
    return lost


def losing(ends: np.ndarray, when: str) -> Estimate:
    """How many flows lose a sample; not decided where one did not come to its last time."""
    unknown = int(np.isnan(ends).sum())
    if not ends.size or unknown:
        return Estimate.unresolved(
            f"{unknown} of {ends.size} flows did not come to {when}." if ends.size else "No such data."
        )
    return Estimate(float((ends > LOST).sum()), remark=f"of {ends.size} flows, at {when}")


def share_of(condition: np.ndarray, known: np.ndarray, remark: str = "") -> Estimate:
    """The share of independent draws that meet a condition, of those that are known."""
    share = Estimate.share(int(condition[known].sum()), int(known.sum()))
    unknown = int((~known).sum())
    notes = [share.remark, remark, f"{unknown} more did not end" if unknown else ""]
    return Estimate(share.value, share.uncertainty, ", ".join(note for note in notes if note))


def lost_marks(x: np.ndarray, ends: np.ndarray, label: str, color: int) -> list[Line | Band]:
    """The share of flows that lose a sample, from ends (places on x, draws)."""
    return share_marks(x, np.sum(ends > LOST, axis=1), np.sum(~np.isnan(ends), axis=1), label, color)
