"""Figures 2 and 6 of the paper, and the gains of convex steps."""

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.figure_2.claims import FASTER, is_faster, is_optimal, share_with_interval
from saddlescope.plot import Axis, Band, Figure, Line, Mark, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw Figure 2, the data and the shares, Figure 6, the runs at all widths, and the convex steps."""
    return [_figure_2(run), _figure_6(run), _convex_steps_figure(run)]


def _figure_2(run: xr.Dataset) -> Figure:
    x, G = run.inputs.values, run.gradient.values
    full = np.linspace(0, 2 * np.pi, 201)
    shared = [is_faster(run.isel(circle=0, width=n)).mean() for n in range(run.sizes["width"])]
    mixed = int(run.width[int(np.argmin(np.abs(np.array(shared) - 0.5)))])  # where runs end in both ways
    data = (
        Line(x=np.cos(full), y=np.sin(full), color=7, width=0.6, opacity=0.4),
        Line(x=x[0][G > 0], y=x[1][G > 0], group="G = 1", color=1, style="points", width=9.0),
        Line(x=x[0][G < 0], y=x[1][G < 0], group="G = −1", color=0, style="points", width=9.0),
    )
    panels = [
        Panel(title="data", x=Axis("x₁", range=(-1.2, 1.2)), y=Axis("x₂", range=(-1.2, 1.2)), marks=data),
        _runs_panel(run, mixed),
    ]
    for circle in run.circle.values:
        marks = []
        for color, (name, hits) in enumerate((("beats every rank-one network", is_faster), ("optimal", is_optimal))):
            shares = np.array([share_with_interval(hits(run.sel(circle=circle, width=width))) for width in run.width])
            widths = run.width.values.astype(float)
            marks.append(Band(x=widths, low=shares[:, 1], high=shares[:, 2], group=name, color=color + 2))
            marks.append(Line(x=widths, y=shares[:, 0], group=name, color=color + 2))
        panels.append(
            Panel(
                title=f"N = {circle}",
                x=Axis("width", scale="log"),
                y=Axis("share of runs", range=(-0.02, 1.02)),
                marks=tuple(marks),
            )
        )
    return Figure(
        name="success",
        title="Wider networks beat rank one; whether they find the optimum is another matter",
        caption="The data of Example 1 with their loss gradients; runs at a width with both ends, in blue if they "
        "beat the best rank-one speed (dashed: that, and the certified optimum); and the shares of runs that do, "
        "and that end at the optimum, with 95 % intervals, for Example 1 and the circle with twice the points.",
        panels=tuple(panels),
    )


def _runs_panel(run: xr.Dataset, width: int) -> Panel:
    one = run.isel(circle=0).sel(width=width)
    threshold, optimum = float(one.rank_one), float(one.optimum)

    def curve(n: int) -> Line:
        faster = bool(one.speed[n] > threshold + FASTER)
        name = "beats rank one" if faster else "does not"
        return Line(x=one.step.values, y=one.curve[n].values, group=name, color=0 if faster else 5, width=0.8)

    marks = (
        *(curve(n) for n in range(one.sizes["run"])),
        Mark(at=threshold, axis="y", group="rank one, optimum"),
        Mark(at=optimum, axis="y", group="rank one, optimum"),
    )
    return Panel(
        title=f"N = {int(one.circle)}, width {width}", x=Axis("step"), y=Axis("speed", range=(-0.05, 0.55)), marks=marks
    )


def _figure_6(run: xr.Dataset) -> Figure:
    return Figure(
        name="runs",
        title="Descents on the sphere at all widths",
        caption=f"The speed along {run.sizes['run']} runs of each width on the smaller circle.",
        panels=tuple(_runs_panel(run, int(width)) for width in run.width),
    )


def _convex_steps_figure(run: xr.Dataset) -> Figure:
    share = np.arange(run.sizes["trial"]) / run.sizes["trial"]
    marks = (
        Line(x=share, y=np.sort(run.plain_speed.values), label="descent", color=0, style="steps"),
        Line(x=share, y=np.sort(run.improved_speed.values), label="with convex steps", color=1, style="steps"),
        Mark(at=float(run.optimum[-1]), label="certified optimum", axis="y"),
        Mark(at=float(run.rank_one[-1]), label="rank one", axis="y"),
    )
    return Figure(
        name="convex-steps",
        title="Inserting neurons where they help most reaches the optimum",
        caption=f"Final speeds on the circle of {int(run.circle[-1])} points from {run.sizes['trial']} starts of width "
        f"{run.attrs['improved_width']}, sorted: after descent, and after convex steps from there.",
        panels=(Panel(x=Axis("share of runs"), y=Axis("speed"), marks=marks),),
    )
