"""Parts of a run that differ in one value, such as a seed or an initial scale."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TypeVar

import xarray as xr

from saddlescope.reproduction import RunContext

T = TypeVar("T", bound=Hashable)


def over(
    dim: str, values: Sequence[T], compute: Callable[[T, RunContext], xr.Dataset], context: RunContext, name: str = ""
) -> xr.Dataset:
    """Return the parts of all values, each cached, joined along a dimension; NaN where a part is shorter than others.

    Args:
        dim: name of the dimension.
        values: one for each part.
        compute: function from a value and the context of its step to its part.
        context: of all parts.
        name: distinguishes the cached parts of one dimension; empty for the dimension's own.
    """
    parts: list[xr.Dataset] = []
    for value, step in context.steps(values):
        parts.append(step.cached(f"{name or dim}{value}", partial(compute, value, step)))
        step.report(1.0, f"{dim} {value} done")
    return xr.concat(parts, dim, join="outer", combine_attrs="drop").assign_coords({dim: list(values)})
