"""Metrics of a run: numbers worth a map over parameters, such as the number of stages or the final loss.

A metric has no bounds and no verdict; claims have those.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import xarray as xr

from saddlescope._shared.reprs import ReprMixin


@dataclass(frozen=True, repr=False)
class Metric(ReprMixin):
    """One number of a stored run.

    Attributes:
        name: short and stable, unique in its entry, such as `stages` or `final_loss`.
        quantity: label of the number, as on an axis.
        statistic: function from the stored run to its value; NaN where the run did not resolve it.
        unit: unit of the value; empty for pure numbers.
        scale: axis for its values: `linear`, or `log` for positive ones over many orders of magnitude.
    """

    name: str
    quantity: str
    statistic: Callable[[xr.Dataset], float]
    unit: str = ""
    scale: Literal["linear", "log"] = "linear"
