"""Differences of shares of successful random starts."""

from statistics import NormalDist

import numpy as np

from saddlescope.reproduction import Estimate, Evidence
from saddlescope.reproduction.claim import wilson_interval


def share_difference(before: np.ndarray, after: np.ndarray, *, pairs: int = 1, remark: str = "") -> Estimate:
    """Return the share of hits after minus that before, with an interval that holds for all pairs together."""
    (low, high), (lower, upper) = (wilson_interval(hits.sum(), len(hits)) for hits in (before, after))
    p, q = float(before.mean()), float(after.mean())
    error = float(max(np.hypot(p - low, upper - q), np.hypot(high - p, q - lower)))
    wider = NormalDist().inv_cdf(1 - 0.025 / pairs) / NormalDist().inv_cdf(0.975)  # Bonferroni
    n = len(before) + len(after)
    return Estimate(q - p, error * wider, remark, n, evidence=Evidence.SAMPLE, over="random starts")
