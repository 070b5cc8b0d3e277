"""Figure of Theorem 5.1: flows against quadratures, and nuclear-norm excesses."""

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention.shared.aligned_params import KINDS
from saddlescope.papers.softmax_attention.theorem_5_1.claims import FLOWS
from saddlescope.plot import Axis, Figure, Line, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the error of the quadrature, and the nuclear-norm excess of both flows."""
    of = run.sel(kind=KINDS[0])
    x = run.log_time.values
    later = x > 0

    def lines(name: str) -> tuple[Line, ...]:
        return tuple(
            Line(x=x[later], y=np.maximum(values[later], 1e-17), group=flow, color=k, opacity=0.5, width=1.0)
            for k, flow in enumerate(FLOWS)
            for values in of[name].sel(flow=flow).values
        )

    return [
        Figure(
            name="quadrature",
            title="Aligned flows are n scalars, and both end at one solution",
            caption="Left: relative difference of W = K Qᵀ, and of W alone, from the quadrature of n scalar equations. "
            "Right: nuclear norm of W / μ over its least value, less 1: the flow on W alone "
            "gets there, too, since the solutions of least nuclear and least Frobenius norm coincide here. Each line "
            "one instance.",
            panels=(
                Panel(
                    title="flow against quadrature",
                    x=Axis("ln t", scale="log"),
                    y=Axis("relative difference", scale="log"),
                    marks=lines("error"),
                ),
                Panel(
                    title="nuclear-norm excess",
                    x=Axis("ln t", scale="log"),
                    y=Axis("excess", scale="log"),
                    marks=lines("excess"),
                ),
            ),
        )
    ]
