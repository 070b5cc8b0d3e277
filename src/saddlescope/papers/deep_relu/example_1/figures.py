"""Figure of Example 1: outputs around the circle, and optima against the number of points."""

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.shared.circle_data import depth_three_optimum
from saddlescope.plot import Axis, Figure, Line, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the outputs of the three networks around the circle, and the optima against N."""
    angle, output = run.angle.values, run.output.values
    paper, certified, rank_one = (str(name) for name in run.network.values)
    outputs = (
        Line(x=angle, y=output[0], label=paper, color=0, width=4.0, opacity=0.35),
        Line(x=angle, y=output[1], label=certified, color=1, width=1.4),
        Line(x=angle, y=output[2], label=rank_one, color=2, width=1.4, style="dashed"),
    )
    data = [
        Line(
            x=run.data_angle.values[run.data_gradient.values == sign],
            y=np.zeros(4),
            label=f"data with G = {'+' if sign > 0 else '−'}1",
            color=3 if sign > 0 else 5,
            style="points",
        )
        for sign in (1.0, -1.0)
    ]
    fours, others = (run.isel(samples=run.samples.values % 4 == remainder) for remainder in (0, 2))
    optima = [Line(x=run.samples.values, y=run.rank_one_upper.values, label="rank one", color=2, style="points")]
    for some, name, color in ((fours, "s*, 4 divides N", 1), (others, "s*, other N", 4)):
        x, y = some.samples.values, some.upper.values
        optima += [
            Line(x=x, y=y, group=name, color=color, style="points"),
            Line(x=x, y=y, group=name, color=color, style="dotted"),
        ]
    return [
        Figure(
            name="optimum",
            title="No network of depth 3 is faster than 1/2 on the circle of Example 1",
            caption="Left: the outputs around the circle of the paper's network (sign corrected), of the certified "
            "optimum, and of the best network of rank one; the speed is minus the sum of G times the output over the "
            "points. Optima are not unique. Right: the certified largest speed at depth 3 against the number of "
            "points, and the largest with every layer of rank one, which is 0 unless 4 divides N. The table has both "
            "bounds.",
            panels=(
                Panel(title="N = 8", x=Axis("angle", "rad"), y=Axis("output"), marks=(*outputs, *data)),
                Panel(title="all N", x=Axis("number of points N"), y=Axis("speed"), marks=tuple(optima)),
            ),
            table=_table(run),
        )
    ]


def _table(run: xr.Dataset) -> Table:
    rows = []
    for samples in run.samples.values:
        one = run.sel(samples=samples)
        exact = f"{depth_three_optimum(int(samples)):.12f}" if samples % 4 == 0 else "–"
        rows.append(
            (
                int(samples),
                f"{float(one.lower):.12f}",
                f"{float(one.upper - one.lower):.1e}",
                exact,
                f"{float(one.rank_one):.12f}",
                ", ".join(str(int(rank)) for rank in one.ranks.values),
                int(one.neurons),
                int(one.programmes),
            )
        )
    columns = ("N", "s*", "upper − lower", "1/(1 + cot(2π/N))", "rank one", "ranks", "neurons in layer 1", "programmes")
    return Table(columns=columns, rows=tuple(rows))
