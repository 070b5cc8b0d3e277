"""Statistics and curves of the samples that flows lose, as `lost_sample_flows` counts them."""

from dataclasses import replace

import numpy as np

from saddlescope.papers.softmax_attention.shared.curves import share_curve
from saddlescope.plot import Band, Line
from saddlescope.reproduction.claim import Estimate

FLOWS = ("diagonal weights", "W alone")

LOST = 0.5  # number of lost samples above which a flow counts as losing one


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


def known_share(condition: np.ndarray, known: np.ndarray, remark: str = "") -> Estimate:
    """Return the share of independent draws that meet a condition, among those with a known answer."""
    share = Estimate.share(int(condition[known].sum()), int(known.sum()), over="draws of data")
    unknown = int((~known).sum())
    notes = [share.remark, remark, f"{unknown} more did not end" if unknown else ""]
    return replace(share, remark=", ".join(note for note in notes if note))


def losing_share_curve(x: np.ndarray, ends: np.ndarray, label: str, color: int) -> list[Line | Band]:
    """Draw the share of flows that lose a sample against x, from the lost samples of each flow, (x, draws)."""
    return share_curve(x, np.sum(ends > LOST, axis=1), np.sum(~np.isnan(ends), axis=1), label, color)
