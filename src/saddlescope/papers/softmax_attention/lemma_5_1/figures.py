"""Figure of Lemma 5.1: residuals of alignment over time, and nuclear-norm excesses."""

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention.shared.aligned_params import KINDS
from saddlescope.plot import Axis, Figure, Line, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the residual of alignment over time, and the nuclear-norm excess."""
    x = run.log_time.values
    later = np.isfinite(x)

    def line(values: np.ndarray, group: str, color: int) -> Line:
        return Line(x=x[later], y=np.maximum(values[later], 1e-17), group=group, color=color, opacity=0.5, width=1.0)

    aligned = [line(values, kind, k) for k, kind in enumerate(KINDS) for values in run.alignment.sel(kind=kind).values]
    colors = {eta: 3 + k for k, eta in enumerate(run.eta.values)}
    perturbed = [
        line(values, f"η = {eta:g}", color)
        for eta, color in colors.items()
        for values in run.perturbed_alignment.sel(eta=eta).values
    ]
    excesses = [
        line(values, f"η = {eta:g}", color)
        for eta, color in colors.items()
        for values in run.excess.sel(eta=eta).values
    ]
    x_axis = Axis("ln t", scale="log")
    return [
        Figure(
            name="alignment",
            title="Alignment is kept where it is, and not sought where it is not",
            caption="Residual of Definition 5.1 along flows of K and Q. Left: aligned starts, on data that meet "
            "Assumption 4 or break (ii) or (iii). Middle: aligned starts with noise of relative size η. Right: the "
            "nuclear norm of the direction of the latter, over its least value, less 1. Each line one flow.",
            panels=(
                Panel(title="aligned starts", x=x_axis, y=Axis("residual", scale="log"), marks=tuple(aligned)),
                Panel(title="perturbed starts", x=x_axis, y=Axis("residual", scale="log"), marks=tuple(perturbed)),
                Panel(
                    title="their directions",
                    x=x_axis,
                    y=Axis("nuclear-norm excess", scale="log"),
                    marks=tuple(excesses),
                ),
            ),
            columns=3,
        )
    ]
