"""Figure of initial scales: errors by scale, and the solutions that starts select on degenerate data."""

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Figure, Line, Mark, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw errors by scale, and the segment of solutions with the one that each start selects."""
    time, scales = run.log_time.values, run.scale.values.tolist()
    late = Axis("ln t", scale="log")

    def by_scale(kind: str) -> tuple[Line, ...]:
        return tuple(
            Line(x=time, y=row[k], group=f"ω₀ = {scale:g}", color=k, width=1.1, opacity=0.75)
            for k, scale in enumerate(scales)
            for row in run[f"{kind}_error"].values
        )

    taken = run.taken.values[0]
    segment = [Line(x=time, y=row, color=k, width=1.5) for k, row in enumerate(taken)]
    ends = [Mark(at=float(at), axis="y", color=k) for k, at in enumerate(run.taken_limit.values[0])]
    entropy = [
        Line(x=time, y=row, color=0, group="from the least entropy", width=1.0, opacity=0.6)
        for row in run.entropy_error.values.reshape(-1, len(time))
    ]
    spread = [Line(x=time, y=row, color=3, group="between starts", width=1.0, opacity=0.8) for row in run.spread.values]
    return [
        Figure(
            name="scale",
            title="Where the flow ends depends on the start only where the problem leaves it open",
            caption="Above: distance of the direction from the l1 solution, from several initial scales; a small scale "
            "learns coordinates one after the other and waits. Below, degenerate data: how much of the norm the added "
            "coordinate takes, one data set, from several omega_0 (lines across: the solution of least entropy); and "
            "the distance from that solution, beside the largest distance between two starts, all data sets.",
            panels=(
                Panel(
                    title="conditioned data",
                    x=late,
                    y=Axis("relative error", scale="log", range=(1e-7, 10.0)),
                    marks=by_scale("conditioned"),
                ),
                Panel(
                    title="raw Gaussian data",
                    x=late,
                    y=Axis("relative error", scale="log", range=(1e-7, 10.0)),
                    marks=by_scale("raw"),
                ),
                Panel(
                    title="degenerate data: the added coordinate",
                    x=late,
                    y=Axis("β_c / |β*|₁", range=(0.0, 1.1 * float(np.nanmax(taken[:, time > 10])))),
                    marks=(*segment, *ends),
                ),
                Panel(
                    title="degenerate data: distances",
                    x=late,
                    y=Axis("relative distance", scale="log"),
                    marks=(*entropy, *spread),
                ),
            ),
        )
    ]
