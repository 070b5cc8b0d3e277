"""Figures of the KKT residuals over time, for both kinds of data."""

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention.kkt_residuals.claims import KINDS, MULTIPLIERS, T100
from saddlescope.plot import Axis, Figure, Line, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the residuals over time, for both kinds."""
    panels = tuple(_stationarity_panel(run.sel(kind=kind), kind) for kind in KINDS)
    return [
        Figure(
            name="residuals",
            title="The proof's multiplier never gets there; its increment does, where the direction does",
            caption="ε of (C1), how far Σ λ B is from a subgradient of |β|₁, along diagonal flows: with the paper's "
            "multiplier φ / ln μ and with dφ / d ln μ, each line one flow. Dashed: the law of the paper's, its median. "
            f"Points: the bars at t = 1e100 and ln t = 1e5. From ω₀ = {float(run.scale[0]):g}.",
            panels=panels,
        ),
        Figure(
            name="conditions",
            title="The other two residuals",
            caption="δ of (C3) with the incremental multiplier, the largest λ times its constraint's slack, and ε', "
            "the length of the direction off the solution's support. Each line one flow.",
            panels=tuple(_conditions_panel(run.sel(kind=kind), kind) for kind in KINDS),
        ),
    ]


def _stationarity_panel(run: xr.Dataset, kind: str) -> Panel:
    first = run.isel(scale=0)
    x = run.log_time.values
    marks = [
        Line(x=x, y=values, group=f"{name} multiplier", color=color, opacity=0.45, width=1.0)
        for color, name in enumerate(MULTIPLIERS)
        for values in first.stationarity.sel(multiplier=name).values
    ]
    law = np.median(first.paper_constant.values / np.log(first.margin.values.T), axis=1)
    marks.append(
        Line(x=x, y=np.where(law > 0, law, np.nan), label="|ln(2 |β*| / ω₀²)| / ln μ", color=2, style="dashed")
    )
    if kind == KINDS[0]:
        marks.append(Line(x=np.array([T100, 1e5]), y=np.array([1e-2, 1e-4]), label="bars", color=3, style="points"))
    return Panel(
        title=kind, x=Axis("ln t", scale="log"), y=Axis("ε", scale="log", range=(1e-8, 10.0)), marks=tuple(marks)
    )


def _conditions_panel(run: xr.Dataset, kind: str) -> Panel:
    first = run.isel(scale=0)
    values = (("δ", first.slackness.sel(multiplier=MULTIPLIERS[1]).values), ("ε'", first.distance.values))
    marks = [
        Line(x=run.log_time.values, y=line, group=name, color=color, opacity=0.45, width=1.0)
        for color, (name, lines) in enumerate(values)
        for line in lines
    ]
    return Panel(
        title=kind, x=Axis("ln t", scale="log"), y=Axis("residual", scale="log", range=(1e-9, 10.0)), marks=tuple(marks)
    )
