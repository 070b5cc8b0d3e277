"""Figure of the weight updates of single matrices, such as those of the MLPs, from a data set of spectra.

matrix_stable_rank      (step, matrix)      |A|_F^2 / |A|_2^2 of the update; NaN below the noise floor
matrix_initial_*        (matrix, ...)       of the matrix at the start

Matrices of one kind, whose names differ in numbers alone, are drawn as one curve over depth.
"""

import re

import numpy as np
import xarray as xr

from saddlescope.figures.records import Axis, Figure, Line, Panel
from saddlescope.figures.spectra_panel import short_name
from saddlescope.plot.rank_tables import matrix_table


def matrix_kinds(ds: xr.Dataset) -> dict[str, list[str]]:
    """Return the names of the matrices by kind, with * for the numbers and without wrappers."""
    kinds: dict[str, list[str]] = {}
    for name in map(str, ds.matrix.values):
        kinds.setdefault(re.sub(r"\d+", "*", short_name(name)), []).append(name)
    return kinds


def matrix_rank_figure(ds: xr.Dataset) -> Figure:
    """Draw stable ranks of the updates of single matrices and of the initial matrices over depth, one curve per kind.

    Args:
        ds: spectra, with the dimension matrix; the last record is shown.
    """
    last = ds.isel(step=-1)
    top = ds.matrix_initial_spectrum.isel(index=0)
    initial = ds.matrix_initial_norm**2 / (top**2).where(top > 0)
    panels = []
    for title, ranks in (("update", last.matrix_stable_rank), ("at the start", initial)):
        marks = tuple(
            Line(
                x=np.arange(1, len(names) + 1),
                y=ranks.sel(matrix=names).values,
                label=kind,
                group=kind,
                color=color,
                style="solid" if len(names) > 1 else "points",
            )
            for color, (kind, names) in enumerate(matrix_kinds(ds).items())
        )
        panels.append(Panel(title=title, x=Axis("depth"), y=Axis("stable rank", scale="log"), marks=marks))
    return Figure(
        name="matrices",
        title="Stable rank of the updates of single matrices",
        caption="Stable rank of the update at the last step and of the initial matrix; one curve per kind of matrix.",
        panels=tuple(panels),
        table=matrix_table(ds),
    )
