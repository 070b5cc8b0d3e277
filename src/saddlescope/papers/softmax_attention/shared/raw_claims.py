"""What the entries on raw parametrisations share: the checks of their sizes, and the largest of a deviation."""

from itertools import pairwise
from typing import Any

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Estimate

FROM = 3.0  # log10 t from which the bars hold


def check_raw_params(params: Any) -> None:
    """Sizes, instances, scale and times of a `Params`.

    Raises:
        InputError: one cannot be used.
    """
    parameter_checks.at_least(1, params, "instances")
    parameter_checks.at_least(0, params, "seed")
    parameter_checks.positive(params, "scale")
    parameter_checks.token_sizes(params)
    times = params.log10_times
    if not times or times[-1] < FROM or any(b - a < 0.1 for a, b in pairwise(times)):
        raise InputError(f"log10_times must ascend by 0.1 or more, to {FROM:g} or beyond; got {times!r}.")


def largest(name: str, run: xr.Dataset) -> Estimate:
    """The largest value from the time on from which the bars hold, over all cases."""
    late = run[name].isel(time=run.log10_time.values >= FROM)
    where = run.case.values[late.max("time").values.argmax()]
    last = run.log10_time.values[-1]
    return Estimate(float(late.max()), remark=f"{run.sizes['case']} cases to t = 1e{last:g}; {where}")
