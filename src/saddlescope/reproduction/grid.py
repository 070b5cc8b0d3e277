"""Data sets of the cells of a grid, joined into one.

Axes are given by name, the slowest first.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import xarray as xr

Axes = Mapping[str, Sequence[Any]]
Join = Literal["exact", "outer"]


def join_cells(parts: Sequence[xr.Dataset], axes: Axes, *, join: Join = "exact") -> xr.Dataset:
    """Join the data sets of all cells of a grid, the last axis fastest; the axes come before the other dimensions.

    Args:
        parts: data sets of the cells.
        axes: of the grid.
        join: "exact" if the cells have the same coordinates; "outer" to fill what one lacks with NaN.

    Raises:
        ValueError: their number is not that of the cells, or their own dimensions differ.
    """
    joined = list(parts)
    if not joined or len(joined) != math.prod(map(len, axes.values())):
        raise ValueError(f"parts must be one for each cell, at least one; got {len(joined)} for {dict(axes)!r}.")
    for name in reversed(list(axes)):
        size = len(axes[name])
        groups = [joined[k : k + size] for k in range(0, len(joined), size)]
        joined = [
            xr.concat(group, name, join=join, coords="different", compat="equals", combine_attrs="drop_conflicts")
            for group in groups
        ]
    return joined[0].assign_coords({name: list(values) for name, values in axes.items()})
