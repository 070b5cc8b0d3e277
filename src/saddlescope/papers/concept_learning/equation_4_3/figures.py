"""Figure of the entry `equation_4_3`."""

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Figure, Line, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the three terms from one start, and errors of stage times with noise and without."""
    time, smallest = run.time.values, float(run.growth.max()) * 1e-16
    terms = tuple(
        Line(x=time, y=np.where(run[name].values > smallest, run[name].values, np.nan), group=name, color=n)
        for n, name in enumerate(("growth", "suppression", "noise"))
    )
    lines = []
    for n, scale in enumerate(run.scale.values.tolist()):
        one = run.sel(scale=scale)
        for name, label in (("bare_time", "without noise"), ("schur_time", "by Schur complements")):
            errors = np.sort(abs(one.found_time - one[name]).max("concept").values)
            share = (1 + np.arange(len(errors))) / len(errors)
            style = "dashed" if name == "bare_time" else "solid"
            lines.append(Line(x=errors, y=share, group=f"{label}, scale {scale:g}", color=n, style=style))
    return [
        Figure(
            name="terms",
            title="The noise is not small: it holds the weakest concept back, and its stage comes late without it",
            caption="Left: the three terms of equation 4.3 for the major entry of the weakest concept, from one start: "
            "when a stronger concept is learned the noise is as large as the growth. Right: share of starts whose "
            "largest error of a stage time is below the one on the axis; without the noise the error is the same "
            "at every scale.",
            panels=(
                Panel(
                    title="w_kk of the weakest concept",
                    x=Axis("time t of gradient flow", range=(0.0, float(run.found_time.isel(scale=-1).max()))),
                    y=Axis("term of dW/dt / 2", scale="log"),
                    marks=terms,
                ),
                Panel(
                    title="stage times",
                    x=Axis("largest error of a stage time", scale="log"),
                    y=Axis("share of starts below"),
                    marks=tuple(lines),
                ),
            ),
        )
    ]
