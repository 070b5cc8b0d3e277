"""The figures of the entry on diagonal linear networks."""

from typing import Any

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Figure, Line, Panel, Table, corners


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the first problem's path, and the slopes that certify it."""
    later = slice(1, None)  # a logarithmic axis has no time 0
    time, flow, predicted, slope = (
        run[name].values[later] for name in ("time", "flow_beta", "predicted_beta", "predicted_slope")
    )

    def line(y: np.ndarray, group: str, color: int, width: float, style: Any = "solid") -> Line:
        kept = corners(np.log(time), y, 1e-3 * float(np.abs(y).max() or 1))
        return Line(x=time[kept], y=y[kept], group=group, color=color, width=width, style=style)

    betas, slopes = [], []
    for i in range(predicted.shape[1]):
        enters = bool(predicted[:, i].any())
        slopes.append(line(slope[:, i], "enters at some time" if enters else "never enters", i, 1.1 if enters else 0.5))
        if enters:
            betas.append(line(flow[:, i], "gradient flow", i, 1.1))
            betas.append(line(predicted[:, i], "Algorithm 1", i, 0.8, "dashed"))
    norms = (
        Line(x=time, y=np.abs(predicted).sum(1), label="Algorithm 1", style="dashed"),
        Line(x=time, y=np.abs(flow).sum(1), label="gradient flow"),
        Line(
            x=time[[0, -1]],
            y=np.full(2, float(run.least_norm[0])),
            label="least norm of an interpolator",
            style="dotted",
        ),
    )
    x = Axis("time of the flow / log(1/alpha)", scale="log")
    rows = tuple(
        (
            int(k),
            int(of.stage_time.notnull().sum()),
            int(of.left.sum()),
            float(of.norm),
            float(of.norm - of.least_norm),
            float(of.duality_gap),
            float(of.flow_norm / of.least_norm - 1),
        )
        for k, of in ((k, run.isel(problem=k)) for k in range(run.sizes["problem"]))
    )
    return [
        Figure(
            name="path",
            title="A diagonal linear network learns towards the interpolator of least l1 norm",
            caption="The first problem. Top: its coordinates over rescaled time, and their l1 norm, which ends at the "
            "least norm of an interpolator. Bottom: the slopes xi, the integral of g. A coordinate that is not 0 "
            "has slope 1 or -1, all others lie between: xi is a subgradient of the l1 norm, and certifies the end.",
            panels=(
                Panel(title="coordinates", x=x, y=Axis("beta"), marks=tuple(betas)),
                Panel(title="l1 norm", x=x, y=Axis("|beta|₁"), marks=norms),
                Panel(title="slopes", x=x, y=Axis("xi"), marks=tuple(slopes)),
            ),
            table=Table(
                columns=(
                    "problem",
                    "stages",
                    "leave",
                    "l1 norm",
                    "minus the least",
                    "duality gap",
                    "excess of the flow, relative",
                ),
                rows=rows,
            ),
        )
    ]
