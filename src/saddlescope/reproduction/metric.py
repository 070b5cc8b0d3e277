"""Metrics of a run: numbers worth a map over parameters, such as the number of stages or the final loss.

A metric has no bounds and no verdict; what is claimed of a run is told by its claims.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import xarray as xr

from saddlescope._shared.reprs import ReprMixin


@dataclass(frozen=True, repr=False, kw_only=True)
class Metric(ReprMixin):
    """One number of a stored run.

    Attributes:
        name: short and stable, unique in its entry, such as `stages` or `final_loss`.
        says: what it is, in a few words that can stand beside an axis.
        statistic: from the stored run to its value; NaN where the run did not resolve it.
        unit: unit of the value; empty for pure numbers.
        scale: how its values are best shown: `linear`, or `log` for positive ones over many orders of magnitude.
    """

    name: str
    says: str
    statistic: Callable[[xr.Dataset], float]
    unit: str = ""
    scale: Literal["linear", "log"] = "linear"
