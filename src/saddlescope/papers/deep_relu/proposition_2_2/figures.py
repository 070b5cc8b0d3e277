"""Pictures of Proposition 2.2: growth along an escape direction, alignment at every scale, escapes on digits."""

import xarray as xr

from saddlescope.papers.deep_relu.proposition_2_2.claims import ALIGNED
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw growth along escape directions, alignment at every scale, and the loss on digits from every deviation."""
    return [_growth_figure(run), _scales_figure(run), _digits_figure(run)]


def _growth_figure(run: xr.Dataset) -> Figure:
    """Draw the norm along an escape direction at each depth, beside both laws."""
    laws = {"gradient flow": "measured_norm", "corrected": "corrected_norm", "printed": "printed_norm"}
    panels = []
    for depth in run.depth.values.tolist():
        one = run.sel(depth=depth)
        x = one.growth_time.values / float(one.measured_time)
        start = float(one.measured_norm[0])
        panels.append(
            Panel(
                title=f"L = {depth}",
                x=Axis("t / time of the growth shown"),
                y=Axis("|theta(t)| / |theta(0)|", range=(0.9, 1.1 * float(one.measured_norm[-1]) / start)),
                marks=tuple(
                    Line(
                        x=x, y=one[law].values / start, group=name, color=color,
                        style="points" if color == 0 else "solid" if color == 1 else "dashed",
                    )
                    for color, (name, law) in enumerate(laws.items())
                ),
            )
        )  # fmt: skip
    rows = tuple(
        (int(d), float(one.corrected_error), float(one.printed_error), float(one.printed_time / one.measured_time))
        for d in run.depth
        for one in [run.sel(depth=d)]
    )
    return Figure(
        name="growth",
        title="Along an escape direction the norm explodes as corrected, not as printed",
        caption="Gradient flow on the localised loss from an escape direction with |theta|^2 = L. The table has the "
        "largest relative error of either law, and the printed escape time over the measured one.",
        panels=tuple(panels),
        columns=3,
        table=Table(columns=("L", "error, corrected", "error, printed", "escape time, printed"), rows=rows),
    )


def _scales_figure(run: xr.Dataset) -> Figure:
    """Draw alignment in the time s from every initial norm, and the times of escape."""
    scales = run.scale.values.tolist()
    away = tuple(
        Line(
            x=run.time.values, y=run.away.sel(scale=scale).values, group=f"from norm 1e{scale:g}", color=n,
            style="solid" if n == 0 else "dotted", width=4.0 - 0.8 * n if n < 4 else 1.0,
        )
        for n, scale in enumerate(scales)
    )  # fmt: skip
    radius = Line(x=-run.scale.values, y=run.radius_time.values, group="norm 0.1 reached", style="points", color=5)
    return Figure(
        name="scales",
        title="In the time s the direction does not see the initial scale",
        caption="Left: distance of the direction from the one it comes to, from random weights of four norms; the "
        "curves coincide. Right: a given norm is reached later by log(1/scale) over the rate, a straight line.",
        panels=(
            Panel(
                title="alignment",
                x=Axis("time s"),
                y=Axis("|u - u*|", scale="log"),
                marks=(*away, Mark(at=ALIGNED, axis="y", label="aligned")),
            ),
            Panel(
                title="escape",
                x=Axis("log10(1 / |theta(0)|)"),
                y=Axis("time s"),
                marks=(
                    radius,
                    Line(x=-run.scale.values, y=run.aligned_time.values, group="aligned", style="points", color=6),
                ),
            ),
        ),
    )


def _digits_figure(run: xr.Dataset) -> Figure:
    """Draw the loss on digits from every initial deviation."""
    deviations = run.deviation.values.tolist()
    digits = tuple(
        Line(
            x=run.step.values / 1000, y=run.digits_loss.sel(deviation=one).values,
            group=f"deviation {one:g}", color=n,
        )
        for n, one in enumerate(deviations)
    )  # fmt: skip
    return Figure(
        name="digits",
        title="The escape from the origin comes at the same step from any small deviation",
        caption="Digits, learned by SGD with the learning rate 10 |theta|^(2-L) from four deviations of one draw of "
        "weights: the loss of all images.",
        panels=(Panel(x=Axis("step / 1000"), y=Axis("loss"), marks=digits),),
    )
