"""Figure of astronomical times: agreement over time, and errors against energy defects."""

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention.astronomical_times.claims import ALARM, PAIRS, WRONG
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the distance of both ways over time, and errors against energy defects."""
    apart = [
        Line(
            x=run.log10_time.values,
            y=np.maximum(run.apart.values[k], 1e-17),
            group=str(run.pair.values[k]),
            color=PAIRS.index(str(run.pair.values[k])),
            width=1.4,
        )
        for k in range(run.sizes["case"])
    ]
    ended = run.says_success.values == 1
    points = []
    for color, kind in enumerate(run.kind.values.tolist()):
        of_kind = ended & (run.kind.values == kind)[None, :, None]
        points.append(
            Line(
                x=np.maximum(run.defect.values[of_kind], 1e-12),
                y=np.maximum(run.error.values[of_kind], 1e-12),
                label=f"{kind}, called a success",
                color=(4, 1, 5)[color],
                style="points",
            )
        )
    spent = [
        (kind, solver, int(one.says_success.sum()), int((~(one.error <= WRONG) & (one.says_success == 1)).sum()))
        for kind in run.kind.values.tolist()
        for solver in run.solver.values.tolist()
        for one in (run.sel(kind=kind, solver=solver),)
    ]
    return [
        Figure(
            name="agreement",
            title="At t = 1e300 independent formulations agree; naive gradients fail, and some do not say so",
            caption="Left: distance between two ways of following one flow, relative to the largest entry of the "
            "direction. Right: all runs of SciPy's solvers in ln t that were called a success: error of the direction "
            "against the defect of the energy balance, which knows nothing of the true direction. The balance refuses "
            "what is right of the line across.",
            panels=(
                Panel(
                    title="two ways of following a flow",
                    x=Axis("time, log10 t"),
                    y=Axis("distance of directions", scale="log"),
                    marks=(*apart, Mark(at=1e-9, label="bar", axis="y")),
                ),
                Panel(
                    title="called a success",
                    x=Axis("energy defect", scale="log"),
                    y=Axis("error of the direction", scale="log"),
                    marks=(*points, Mark(at=ALARM, label="refused"), Mark(at=WRONG, label="wrong", axis="y")),
                ),
            ),
            table=Table(columns=("gradient", "solver", "called a success", "of these wrong"), rows=tuple(spent)),
        )
    ]
