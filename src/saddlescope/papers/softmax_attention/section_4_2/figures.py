"""Figures of section 4.2: excesses of both norms over time, and the laws of the loss."""

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention.section_4_2.claims import FACTORS, WEIGHTS
from saddlescope.plot import Axis, Figure, Line, Mark, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the excesses of both norms over time, all draws, and the loss ratios."""
    time = run.log10_time.values
    x = Axis("log₁₀ t", scale="log")

    def curves(of: str, shift: float = 0.0) -> list[Line]:
        lines = []
        for color, flow in enumerate((WEIGHTS, FACTORS)):
            values = np.abs(run[of].sel(flow=flow).values - shift)
            lines += [Line(x=time, y=row, group=flow, color=color, width=0.8, opacity=0.5) for row in values]
            lines.append(Line(x=time, y=np.nanmedian(values, axis=0), group=flow, color=color, width=2.6))
        return lines

    size = f"{run.sizes['draw']} draws"
    return [
        Figure(
            name="excess",
            title="Keys times queries go to the nuclear norm, W alone to the Frobenius norm",
            caption="What the direction W / μ exceeds the least norm of margin 1 by, against time, "
            f"{size} of Gaussian data outside Assumption 4, medians wide. Left the nuclear, right the Frobenius norm: "
            "each flow's excess falls in one of them and stays in the other.",
            panels=(
                Panel(title="nuclear norm", x=x, y=Axis("excess", scale="log"), marks=tuple(curves("nuclear"))),
                Panel(title="Frobenius norm", x=x, y=Axis("excess", scale="log"), marks=tuple(curves("frobenius"))),
            ),
        ),
        Figure(
            name="loss",
            title="How fast the loss falls tells the norm, too",
            caption="How far t (L − L*) is from ‖W_F‖² for W alone, and t μ (L − L*) from half the least nuclear norm "
            f"for keys and queries; {size}, medians wide, and the bar at t = 1e100.",
            panels=(
                Panel(
                    x=x,
                    y=Axis("|ratio − 1|", scale="log"),
                    marks=(*curves("loss_ratio", 1.0), Mark(at=1e-4, axis="y", label="1e-4")),
                ),
            ),
        ),
    ]
