"""Cells of a grid: made row by row, kept as soon as they are there, and put together into one labelled data set.

Axes are told by name, the slowest first. The cells that share their values on the axes given make a row; what varies
inside it is the row's own affair.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from saddlescope.reproduction.context import RunContext

Axes = Mapping[str, Sequence[Any]]
Report = Callable[[float, str], None]


def cached_rows(
    axes: Axes, make: "Callable[[int, tuple[Any, ...], Report], xr.Dataset]", context: RunContext, name: str = "row"
) -> xr.Dataset:
    """Every row of a grid; a killed run goes on after its last whole one.

    Args:
        axes: of the rows, none of them empty.
        make: from a row's number, its values and its own `report` (0 to 1 over the row) to its data set.
        context: keeps the rows, as `{name}-{number}`, and hears how far the grid is.
        name: tells the rows of one grid of a run from those of another.

    Returns:
        `in_grid` of all rows.
    """
    rows = list(itertools.product(*axes.values()))
    made = []
    for k, values in enumerate(rows):
        report = context.part(k / len(rows), (k + 1) / len(rows))
        made.append(context.cached(f"{name}-{k}", partial(make, k, values, report)))
    return in_grid(made, axes)


def in_grid(parts: Sequence[xr.Dataset], axes: Axes) -> xr.Dataset:
    """Data sets of all cells of a grid, the last axis fastest, as one with the axes before the dimensions of each.

    Raises:
        ValueError: there are not as many as cells, or their own dimensions differ.
    """
    made = list(parts)
    if not made or len(made) != math.prod(map(len, axes.values())):
        raise ValueError(f"parts must be one for each cell, at least one; got {len(made)} for {dict(axes)!r}.")
    for name in reversed(list(axes)):
        size = len(axes[name])
        made = [xr.concat(made[k : k + size], name, join="exact") for k in range(0, len(made), size)]
    return made[0].assign_coords({name: list(values) for name, values in axes.items()})


def labelled(
    found: Sequence[Mapping[str, ArrayLike]], axes: Axes, tails: Mapping[str, tuple[str, ...]] | None = None
) -> xr.Dataset:
    """Numbers found in every cell of a grid, the last axis fastest, as one data set.

    Args:
        found: for every cell its quantities by name: numbers, or arrays of one shape over the grid.
        axes: of the grid.
        tails: the dimensions of the quantities that are arrays.
    """
    shape, tails = tuple(map(len, axes.values())), tails or {}
    values = {name: np.array([cell[name] for cell in found]) for name in found[0]}
    return xr.Dataset(
        {name: ((*axes, *tails.get(name, ())), of.reshape(*shape, *of.shape[1:])) for name, of in values.items()},
        coords={name: list(along) for name, along in axes.items()},
    )
