"""Parameters, run and statistic of the entries on flows of diagonal weights in their parameters."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.papers.softmax_attention.shared.parameter_flow_cases import Case

JUDGED_FROM = 3.0  # log10 t from which the bars hold


class ParameterFlowParams(EntryParams):
    """Sizes and instances."""

    samples: tuple[int, ...] = param((4, 10), "n of each size")
    tokens: tuple[int, ...] = param((5, 5), "L of each size")
    dims: tuple[int, ...] = param((8, 50), "d of each size")
    instances: int = param(4, "data sets of each size, each with both losses", ge=1)
    scale: float = param(0.3, "typical size of the parameters at the start", gt=0)
    log10_times: tuple[float, ...] = param(None, "log10 t")
    seed: int = param(None, "of everything", ge=0)

    def check(self) -> None:
        parameter_checks.require_token_sizes(self)
        times = self.log10_times
        if not times or times[-1] < JUDGED_FROM or any(b - a < 0.1 for a, b in pairwise(times)):
            raise InputError(f"log10_times must ascend by 0.1 or more, to {JUDGED_FROM:g} or beyond; got {times!r}.")


def run_cases(
    params: ParameterFlowParams, context: RunContext, measure: "Callable[[int, Case], xr.Dataset]", *, from_zero: bool
) -> list[xr.Dataset]:
    """Measure all cases by number, one after the other; `from_zero` starts them at beta = 0."""
    from saddlescope.papers.softmax_attention.shared.parameter_flow_cases import draw_cases

    sizes = list(zip(params.samples, params.tokens, params.dims, strict=True))
    cases = list(draw_cases(sizes, params.instances, params.scale, params.seed, from_zero=from_zero))
    parts = []
    for k, case in enumerate(cases):
        context.report(k / len(cases), case.name)
        parts.append(context.cached(f"case-{k}", partial(measure, k, case)))
    context.report(1.0, "done")
    return parts


def largest(name: str, run: xr.Dataset) -> Estimate:
    """Return the largest value over all cases, from the time on from which the bars hold."""
    late = run[name].isel(time=run.log10_time.values >= JUDGED_FROM)
    where = run.case.values[late.max("time").values.argmax()]
    last = run.log10_time.values[-1]
    return Estimate(float(late.max()), remark=f"{run.sizes['case']} cases to t = 1e{last:g}; {where}")
