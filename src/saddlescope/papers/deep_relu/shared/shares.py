"""Shares of successful random starts: their curves with 95 % intervals, and differences of two of them."""

from statistics import NormalDist
from typing import Literal

import numpy as np
import xarray as xr

from saddlescope.plot import Band, Line
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


def share_curve(
    hits: xr.DataArray, group: str, color: int, *, style: Literal["solid", "points"] = "solid"
) -> list[Line | Band]:
    """Draw the share of hits over (width, start) against the width."""
    widths, counts, runs = hits.width.values.astype(float), hits.sum("start").values, hits.sizes["start"]
    low, high = np.transpose([wilson_interval(count, runs) for count in counts])
    width = 3.5 if style == "points" else 1.6
    return [
        Band(x=widths, low=low, high=high, group=group, color=color),
        Line(x=widths, y=counts / runs, group=group, color=color, style=style, width=width),
    ]
