"""Three coordinates, one of which leaves and returns with the other sign: the case that float64 weights lose.

Algorithm 1 on this diagonal linear network has coordinate 2 enter at T = 0.14, coordinate 0 with sign + at 0.32,
coordinate 1 at 2.25, where 0 leaves, and 0 again, with sign -, at 20.25. The teacher is the only minimum.
"""

from collections.abc import Callable

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.plot import Axis, Figure, Line, Panel
from saddlescope.reproduction.claim import Estimate

FEATURES = ((3.0, -2.0, 0.0), (0.0, 0.0, 2.0), (-1.0, 1.0, 1.0))

TEACHER = (-1.0, -2.0, -2.0)

SADDLE = (0.0, -7 / 12, -25 / 12)  # where learning ends if coordinate 0 does not come back

END = 60.0  # rescaled time, by when all has settled

SHOWN = 40.0  # rescaled time up to which it is drawn


def follow_returning(
    log10_scales: tuple[float, ...], learning_rate: float, tolerance: float, report: Report
) -> xr.Dataset:
    """Follow the three coordinates by full-batch descent and by the flow, at each scale.

    Returns:
        Over returning_scale, moment (rescaled time) and place: returning_descent and returning_flow, both beta; over
        returning_scale: returning_drift, how far descent has lost u^2 - v^2.
    """
    from saddlescope.flow import DiagonalInit, gradient_descent, gradient_flow
    from saddlescope.models import diagonal_linear_network

    features, teacher = np.array(FEATURES), np.array(TEACHER)
    network = diagonal_linear_network(features, features @ teacher)
    u, v = np.random.default_rng(0).standard_normal((2, 3))
    moments = np.append(np.linspace(0, SHOWN, 801), END)
    descents, flows, drifts = [], [], []
    for k, scale in enumerate(log10_scales):
        start = DiagonalInit(u, v, log_scale=scale * np.log(10))
        steps = int(END * -start.log_scale / learning_rate) + 1
        rate = END * -start.log_scale / steps  # so that the last step is at the end
        marks = np.unique(np.rint(moments / END * steps).astype(int))
        descent = gradient_descent(network, start, steps=steps, learning_rate=rate, record=marks)
        flow = gradient_flow(network, start, until=END, tolerance=tolerance, record=moments)
        descents.append(descent(np.minimum(moments, descent.times[-1])))
        flows.append(flow(moments))
        drifts.append(descent.conserved)
        report((k + 1) / len(log10_scales), f"three coordinates, alpha = 1e{scale:g}")
    dims = ("returning_scale", "moment", "place")
    return xr.Dataset(
        {
            "returning_descent": (dims, np.stack(descents)),
            "returning_flow": (dims, np.stack(flows)),
            "returning_drift": ("returning_scale", np.array(drifts)),
        },
        coords={"returning_scale": list(log10_scales), "moment": moments},
    )


def end_from(point: tuple[float, ...], path: str, log10_scale: float) -> Callable[[xr.Dataset], Estimate]:
    """Return a statistic: the distance of the path's end from a point, at one scale."""

    def measure(run: xr.Dataset) -> Estimate:
        if log10_scale not in run.returning_scale.values:
            return Estimate.unresolved(f"alpha = 1e{log10_scale:g} was not among the returning_scales.")
        last = run[path].sel(returning_scale=log10_scale).isel(moment=-1).values
        return Estimate(float(np.abs(last - np.array(point)).max()))

    return measure


def draw_returning(run: xr.Dataset) -> Figure:
    """Draw the coordinates at the largest and the smallest scale."""
    early = run.isel(moment=run.moment.values <= SHOWN)
    panels = []
    for scale in (run.returning_scale.values[0], run.returning_scale.values[-1]):
        at = early.sel(returning_scale=scale)
        marks = []
        for i in range(run.sizes["place"]):
            flow, descent = (at[f"returning_{way}"].isel(place=i).values for way in ("flow", "descent"))
            marks.append(Line(x=early.moment.values, y=flow, group="gradient flow", color=i))
            marks.append(Line(x=early.moment.values, y=descent, group="float64 descent", color=i, style="dashed"))
        x, y = Axis("time / log(1/alpha)"), Axis("entry of beta")
        panels.append(Panel(title=f"alpha = 1e{scale:g}", x=x, y=y, marks=tuple(marks)))
    return Figure(
        name="returning",
        title="In float64 weights a coordinate that left cannot come back with the other sign",
        caption="Three coordinates of a diagonal linear network. One enters with sign +, leaves when the next one "
        "enters, and comes back with sign −. With alpha = 0.01 descent does the same; with 1e-16 it stays at a saddle "
        "for ever, since u² − v² = 1e-32 was lost beside roundings of 1e-16. The loss falls, the gradient in the "
        "weights vanishes, and nothing says that it is the wrong end.",
        panels=tuple(panels),
    )
