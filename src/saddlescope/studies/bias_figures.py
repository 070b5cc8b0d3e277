"""Figures of the implicit bias of attention on some tokens: norms, spectra, and directions beside solutions.

All take the data set that `saddlescope.studies.implicit_bias` describes.
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from saddlescope.figures.records import Axis, Figure, Line, Panel, Table, signed_matrix

_MOST_VALUES = 6  # singular values drawn of each flow, each with a colour of its own
_LEAST_VALUE = 1e-12  # singular values below it, relative to the largest of all, are rounding


def norms_panel(run: xr.Dataset) -> Panel:
    """Return the excess of both norms over their least value at the present margin, for each flow."""
    marks = []
    for color, flow in enumerate(run.flow.values.tolist()):
        for norm in ("nuclear", "Frobenius"):
            y = run.excess.sel(flow=flow, norm=norm).values
            shown = np.isfinite(y) & (y > 0) & (run.log_time.values > 0)
            label, style = f"{flow}: {norm}", "solid" if norm == "nuclear" else "dashed"
            marks.append(Line(x=run.log_time.values[shown], y=y[shown], label=label, color=color, style=style))
    y = Axis("norm above its least value, relative", scale="log")
    return Panel(x=Axis("ln t", scale="log"), y=y, marks=tuple(marks))


def bias_figures(
    run: xr.Dataset, solutions: Mapping[str, np.ndarray], *, outcomes: Table, problems: Table
) -> list[Figure]:
    """Return the figures of an `ImplicitBias`, given the weights of the solutions by name, and its tables."""
    norms = Figure(
        name="norms",
        title="Norms of the directions above their least values",
        caption="Norm of W over the smallest margin, relative to the least that any weights with margins of 1 have,"
        " minus 1. A curve that falls to 0 minimises its norm. Share: the excess over that of the other solution.",
        panels=(norms_panel(run),),
        columns=1,
        table=outcomes,
    )
    # a flow without a direction at the last time is left out; the table says why
    last = {flow: run.direction.sel(flow=flow).values for flow in run.flow.values.tolist()}
    found = {flow: W for flow, W in last.items() if np.isfinite(W).all()}
    matrices = {**solutions, **{f"flow, {flow}": W for flow, W in found.items()}}
    directions = Figure(
        name="directions",
        title="Solutions, and directions at the last time",
        caption="Entries of W with a smallest margin of 1. The gap of a solution is certified by its multipliers.",
        panels=tuple(
            signed_matrix(W, "entry of W", "query coordinate", "key coordinate", title=name)
            for name, W in matrices.items()
        ),
        columns=3,
        table=problems,
    )
    return [norms, _spectra(run, list(found)), directions]


def _spectra(run: xr.Dataset, flows: list[str]) -> Figure:
    """Return the singular values of the direction of each flow."""
    values, times = run.singular_values, run.log_time.values
    least, largest = _LEAST_VALUE * float(values.max()), run.sizes["index"]
    kept = times > 0
    panels = []
    for flow in flows:
        of = values.sel(flow=flow).transpose("index", "log_time").values[:_MOST_VALUES]
        lines = tuple(
            Line(x=times[kept], y=np.where(one > least, one, np.nan)[kept], label=f"value {k}", color=k - 1)
            for k, one in enumerate(of, 1)
        )
        x, y = Axis("ln t", scale="log"), Axis("singular value", scale="log")
        panels.append(Panel(x=x, y=y, marks=lines, title=flow))
    shown = f"The {_MOST_VALUES} largest singular" if largest > _MOST_VALUES else "Singular"
    return Figure(
        name="singular-values",
        title="Singular values of the directions",
        caption=f"{shown} values of W over the smallest margin. A small nuclear norm comes with a low rank.",
        panels=tuple(panels),
        columns=3,
    )
