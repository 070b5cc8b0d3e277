"""Cells of a grid: computed row by row, cached at once, and joined into one labelled data set.

Axes are given by name, the slowest first. The cells that share their values on the given axes form a row; axes that
vary inside a row are dimensions of its data set.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from saddlescope._shared.progress import Report
from saddlescope.reproduction.context import RunContext

Axes = Mapping[str, Sequence[Any]]


def cached_rows(
    axes: Axes, compute: Callable[[int, tuple[Any, ...], Report], xr.Dataset], context: RunContext, name: str = "row"
) -> xr.Dataset:
    """Return all rows of a grid, computing absent ones; a killed run resumes after its last complete row.

    Args:
        axes: of the rows, none of them empty.
        compute: function from a row's number, its values and its own `report` (0 to 1 over the row) to its data set.
        context: caches the rows, as `{name}-{number}`, and receives the progress of the grid.
        name: distinguishes the rows of several grids of one run.

    Returns:
        `join_cells` of all rows.
    """
    computed = []
    for (k, values), row in context.steps(enumerate(itertools.product(*axes.values()))):
        computed.append(row.cached(f"{name}-{k}", partial(compute, k, values, row.report)))
    return join_cells(computed, axes)


def join_cells(parts: Sequence[xr.Dataset], axes: Axes) -> xr.Dataset:
    """Join the data sets of all cells of a grid, the last axis fastest; the axes come before the other dimensions.

    Raises:
        ValueError: their number is not that of the cells, or their own dimensions differ.
    """
    joined = list(parts)
    if not joined or len(joined) != math.prod(map(len, axes.values())):
        raise ValueError(f"parts must be one for each cell, at least one; got {len(joined)} for {dict(axes)!r}.")
    for name in reversed(list(axes)):
        size = len(axes[name])
        joined = [xr.concat(joined[k : k + size], name, join="exact") for k in range(0, len(joined), size)]
    return joined[0].assign_coords({name: list(values) for name, values in axes.items()})


def grid_dataset(
    found: Sequence[Mapping[str, ArrayLike]], axes: Axes, tails: Mapping[str, tuple[str, ...]] | None = None
) -> xr.Dataset:
    """Return the values of all cells of a grid, the last axis fastest, as one data set.

    Args:
        found: for every cell its values by name: numbers, or arrays of one shape over the grid.
        axes: of the grid.
        tails: dimensions of the values that are arrays.
    """
    shape, tails = tuple(map(len, axes.values())), tails or {}
    values = {name: np.array([cell[name] for cell in found]) for name in found[0]}
    return xr.Dataset(
        {name: ((*axes, *tails.get(name, ())), of.reshape(*shape, *of.shape[1:])) for name, of in values.items()},
        coords={name: list(along) for name, along in axes.items()},
    )
