"""Figure of Theorem 4.1: errors over time, the laws, and the entries of two directions."""

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention.theorem_4_1.claims import select_group
from saddlescope.plot import Axis, Figure, Line, Mark, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw errors over time, the laws, and the entries of two directions."""
    time = run.log_time.values[0] if run.log_time.ndim > 1 else run.log_time.values
    groups = {"conditioned": ("conditioned data", 0, 1.2), "raw": ("raw Gaussian data", 1, 1.0)}
    errors = [
        Line(x=time, y=row, group=label, color=color, width=width, opacity=0.6)
        for name, (label, color, width) in groups.items()
        for row in select_group(run, name).error.values
    ]
    laws = [
        Line(x=time, y=np.abs(row), group=label, color=color, width=1.0, opacity=0.6)
        for name, label, color in (("margin_law", "margins", 2), ("loss_law", "loss", 3))
        for row in select_group(run, "conditioned")[name].values
    ]
    entries = []
    for name in ("conditioned", "raw"):
        at = run[f"{name}_beta"].values
        order = np.argsort(-np.abs(at), kind="stable")
        curves = [
            Line(x=time, y=run[f"{name}_direction"].values[:, j], color=color % 6, width=1.4)
            for color, j in enumerate(order)
        ]
        ends = [Mark(at=float(at[j]), axis="y", color=color % 6) for color, j in enumerate(order) if at[j] != 0]
        largest = 1.3 * float(np.abs(at).max())
        entries.append(
            Panel(
                title=f"entries of β/μ, {groups[name][0]}",
                x=Axis("ln t", scale="log", range=(3.0, 1e7)),
                y=Axis("β / μ", range=(-largest, largest)),
                marks=(*curves, *ends),
            )
        )
    late = Axis("ln t", scale="log")
    return [
        Figure(
            name="direction",
            title="Diagonal attention chooses the l1 solution, at times beyond all machines",
            caption="Top left: distance of the direction β/μ from the certified l1 solution; the dotted guide falls "
            "like 1 / ln t, and t = 1e300 is at ln t = 691. Top right: how far margins and loss are from the laws that "
            "the proof implies, conditioned data. Below: the entries of two directions over time, and the solution's "
            "entries that are not 0 as lines across.",
            panels=(
                Panel(
                    title="error of the direction",
                    x=late,
                    y=Axis("|β/μ − β*| / |β*|", scale="log"),
                    marks=(*errors, Line(x=time[time > 10], y=1 / time[time > 10], style="dotted", label="1 / ln t")),
                ),
                Panel(title="laws", x=late, y=Axis("deviation", scale="log"), marks=tuple(laws)),
                *entries,
            ),
        )
    ]
