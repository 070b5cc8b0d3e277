"""Figures of success by width and depth, and by the widths of both hidden layers."""

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.escape_width.claims import Success, fit_odds_law, succeeds
from saddlescope.plot import Axis, Band, Figure, Heat, Line, Panel
from saddlescope.reproduction.claim import wilson_interval


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw success against width at every depth, and against the widths of both hidden layers."""
    starts = run.sizes["start"]
    return [
        Figure(
            name="success",
            title="The odds to beat rank one grow as a power of the width; deep networks seldom find the optimum",
            caption=f"Share of {starts} descents from random starts, with 95 % intervals, against the width of all "
            "hidden layers, at several depths. Left: faster than √2 − 1, the best of rank-one networks; dashed, the "
            "law p / (1 − p) = c wᵏ fitted to each depth. Right: within 0.001 of the optimum, 1/2.",
            panels=(_shares_panel(run, "faster", "beats rank one", law=True), _shares_panel(run, "optimal", "optimal")),
        ),
        Figure(
            name="unequal",
            title="The first hidden layer's width counts most",
            caption=f"Share of {starts} descents at depth 3 that succeed, over the widths of the two hidden layers.",
            panels=(_widths_panel(run, "faster", "beats rank one"), _widths_panel(run, "optimal", "optimal")),
        ),
    ]


def _shares_panel(run: xr.Dataset, success: Success, title: str, *, law: bool = False) -> Panel:
    widths, marks = run.width.values.astype(float), []
    fine = np.geomspace(widths[0], widths[-1], 100)
    for color, depth in enumerate(run.depth.values):
        found = succeeds(run.speed.sel(depth=depth), success)
        count, runs = found.sum("start").values, found.sizes["start"]
        intervals = np.array([wilson_interval(k, runs) for k in count])
        name = f"depth {depth}"
        marks.append(Band(x=widths, low=intervals[:, 0], high=intervals[:, 1], group=name, color=color))
        marks.append(Line(x=widths, y=count / runs, group=name, color=color, style="points", width=3.5))
        fitted = fit_odds_law(run, int(depth)) if law else None
        if fitted is None:
            marks.append(Line(x=widths, y=count / runs, group=name, color=color))
        else:
            marks.append(Line(x=fine, y=fitted.shares(fine[:, None]), group=name, color=color, style="dashed"))
    x, y = Axis("width", scale="log"), Axis("share of runs", range=(-0.02, 1.02))
    return Panel(title=title, x=x, y=y, marks=tuple(marks))


def _widths_panel(run: xr.Dataset, success: Success, title: str) -> Panel:
    shares = succeeds(run.unequal_speed, success).mean("start").transpose("second", "first").values
    first, second = (tuple(str(width) for width in run[name].values) for name in ("first", "second"))
    words = np.array([[f"{share:.2f}" for share in row] for row in shares])
    heat = Heat(
        x=np.arange(len(first)), y=np.arange(len(second)), z=shares, label="share", range=(0.0, 1.0), words=words
    )
    return Panel(
        title=title,
        x=Axis("width of the first hidden layer", names=first),
        y=Axis("width of the second hidden layer", names=second),
        marks=(heat,),
    )
