"""Statistics and curves of the samples that flows lose, as `lost_sample_flows` counts them."""

import numpy as np

from saddlescope.papers.softmax_attention.shared.curves import share_curve
from saddlescope.plot import Band, Line
from saddlescope.reproduction.claim import Estimate

FLOWS = ("diagonal weights", "W alone")

LOST = 0.5  # number of lost samples above which a flow counts as losing one


def count_losing_flows(ends: np.ndarray, when: str) -> Estimate:
    """Return the number of flows that lose a sample; undecided if one did not reach its last time."""
    unknown = int(np.isnan(ends).sum())
    if not ends.size:
        return Estimate.unresolved("No data of the run meet the condition; use more instances.")
    if unknown:
        return Estimate.unresolved(f"{unknown} of {ends.size} flows did not reach {when}; use another seed.")
    return Estimate(float((ends > LOST).sum()), remark=f"of {ends.size} flows, at {when}")


def known_share(condition: np.ndarray, known: np.ndarray, remark: str = "") -> Estimate:
    """Return the share of independent draws that meet a condition, among those with a known answer."""
    share = Estimate.share(int(condition[known].sum()), int(known.sum()))
    unknown = int((~known).sum())
    notes = [share.remark, remark, f"{unknown} more did not end" if unknown else ""]
    return Estimate(share.value, share.uncertainty, ", ".join(note for note in notes if note))


def losing_share_curve(x: np.ndarray, ends: np.ndarray, label: str, color: int) -> list[Line | Band]:
    """Draw the share of flows that lose a sample against x, from the lost samples of each flow, (x, draws)."""
    return share_curve(x, np.sum(ends > LOST, axis=1), np.sum(~np.isnan(ends), axis=1), label, color)
