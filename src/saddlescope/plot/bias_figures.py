"""Figures of the implicit bias of attention on some tokens: norms, spectra, and directions beside solutions."""

from typing import Any

import numpy as np

from saddlescope.plot.figure import Axis, Figure, Heat, Line, Panel, Table
from saddlescope.plot.result_panels import result_panel

_MOST_VALUES = 6  # singular values drawn of each flow, each with a colour of its own
_LEAST_VALUE = 1e-12  # singular values below it, relative to the largest of all, are rounding


def bias_figures(found: Any) -> list[Figure]:
    """Return the figures of an `ImplicitBias`."""
    outcomes, problems = (
        Table(columns=of[0], rows=tuple(map(tuple, of[1]))) for of in (found.outcomes(), found.problems())
    )
    return [
        Figure(
            name="norms",
            title="Norms of the directions above their least values",
            caption="Norm of W over the smallest margin, relative to the least that any weights with margins of 1 have,"
            " minus 1. A curve that falls to 0 minimises its norm. Share: the excess over that of the other solution.",
            panels=(result_panel(found),),
            columns=1,
            table=outcomes,
        ),
        _spectra(found),
        _directions(found, problems),
    ]


def _spectra(found: Any) -> Figure:
    """Singular values of the direction of each flow."""
    run = found.dataset
    values, times = run.singular_values, run.log_time.values
    least, largest = _LEAST_VALUE * float(values.max()), run.sizes["index"]
    panels = []
    for flow in _with_direction(found):
        of = values.sel(flow=flow).transpose("index", "log_time").values[:_MOST_VALUES]
        kept = times > 0
        lines = tuple(
            Line(x=times[kept], y=np.where(one > least, one, np.nan)[kept], label=f"value {k}", color=k - 1)
            for k, one in enumerate(of, 1)
        )
        panels.append(
            Panel(x=Axis("ln t", scale="log"), y=Axis("singular value", scale="log"), marks=lines, title=flow)
        )
    shown = f"The {_MOST_VALUES} largest singular" if largest > _MOST_VALUES else "Singular"
    return Figure(
        name="singular-values",
        title="Singular values of the directions",
        caption=f"{shown} values of W over the smallest margin. A small nuclear norm comes with a low rank.",
        panels=tuple(panels),
        columns=3,
    )


def _with_direction(found: Any) -> list[str]:
    """Return the flows that have a direction at the last time; the table says why others have none."""
    last = found.dataset.direction
    return [flow for flow in last.flow.values.tolist() if bool(np.isfinite(last.sel(flow=flow)).all())]


def _directions(found: Any, problems: Table) -> Figure:
    """Both solutions and the last direction of each flow."""
    last = found.dataset.direction
    matrices = {"least nuclear norm": found.nuclear.weights, "least Frobenius norm": found.frobenius.weights}
    matrices |= {f"flow, {name}": last.sel(flow=name).values for name in _with_direction(found)}
    place = np.arange(last.sizes["row"])
    panels = tuple(
        Panel(
            x=Axis("query coordinate"),
            y=Axis("key coordinate"),
            marks=(Heat(x=place, y=place, z=W, label="entry of W", range=_around_zero(W)),),
            title=name,
        )
        for name, W in matrices.items()
    )
    return Figure(
        name="directions",
        title="Solutions, and directions at the last time",
        caption="Entries of W with a smallest margin of 1. The gap of a solution is certified by its multipliers.",
        panels=panels,
        columns=3,
        table=problems,
    )


def _around_zero(W: np.ndarray) -> tuple[float, float]:
    size = float(np.nanmax(np.abs(W), initial=0.0)) or 1.0
    return -size, size
