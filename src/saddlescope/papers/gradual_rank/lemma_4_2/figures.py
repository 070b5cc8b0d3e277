"""The figures of Lemma 4.2."""

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.lemma_4_2.claims import LEARNED, conserved_kappa, kappa_decay
from saddlescope.plot import Axis, Figure, Line, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the drift over time and by learning rate, and the error of float64 at each scale."""
    kappa, first = conserved_kappa(run), conserved_kappa(run).isel(time=0)
    start = slice(1, None)  # at time 0 nothing is lost, which a logarithmic axis cannot show
    time = run.time.values[start]

    def lost(of: xr.DataArray) -> np.ndarray:
        relative = abs(of / first - 1).median("coordinate").isel(time=start)
        return np.maximum(relative.values, 1e-16)

    curves = [
        Line(x=time, y=lost(run.descent_kappa.sel(rate=rate)), group="gradient descent", color=3, width=1.1)
        for rate in run.rate.values
    ]
    law = abs(run.rate.isel(rate=-1) * run.integral_of_g2).median("coordinate").isel(time=start)
    curves += [
        Line(x=time, y=law.values, group="eta ∫ g²", style="dashed", width=1.2),
        Line(x=time, y=lost(kappa), label="explicit solver", color=0),
        Line(x=time, y=lost(conserved_kappa(run, "flow_u", "flow_v")), label="flow of this package", color=2),
    ]
    decay, rates = kappa_decay(run).median("coordinate").values, run.rate.values
    first_order = run.rate * run.integral_of_g2.isel(time=-1).median("coordinate")
    by_rate = (
        Line(x=rates, y=decay, group="gradient descent", color=3),
        Line(x=rates, y=first_order.values, group="eta ∫ g²", style="dashed", width=1.2),
    )
    learned = abs(run.rounded_beta) >= LEARNED
    alpha = 10.0**run.scale.values
    rounded = [
        Line(
            x=alpha,
            y=np.where(learned.sel(coordinate=i), np.maximum(run.rounded_error.sel(coordinate=i), 1e-17), np.nan),
            group="learned coordinates, rounded",
            color=4,
            width=0.8,
        )
        for i in run.coordinate.values
        if learned.sel(coordinate=i).any()
    ]
    rounded.append(Line(x=alpha, y=2.0**-53 / alpha**2, label="2⁻⁵³ / alpha²", style="dashed", width=1.2))
    drift = Axis("|u² − v²| lost, relative", scale="log")
    decayed = Axis("decay of log |u² − v²|", scale="log")
    return [
        Figure(
            name="conservation",
            title="Gradient flow conserves u² − v²; gradient descent does not, nor can float64 hold it",
            caption="Left: how much of u² − v² each way of training has lost, median over coordinates. Descent "
            "is drawn at each learning rate, with the first order for the smallest; what the explicit solver and the "
            "flow lose is rounding. Middle: descent's loss at the end is proportional to the learning rate, as "
            "1 − eta² g² for each step says. Right: the exact weights of learned coordinates, rounded to float64, and "
            "the relative error of their u² − v²: below alpha = 1e-8 nothing is left of it.",
            panels=(
                Panel(title="over time", x=Axis("time / log(1/alpha)"), y=drift, marks=tuple(curves)),
                Panel(title="by learning rate", x=Axis("learning rate eta", scale="log"), y=decayed, marks=by_rate),
                Panel(
                    title="weights rounded to float64",
                    x=Axis("alpha", scale="log"),
                    y=Axis("relative error of u² − v²", scale="log"),
                    marks=tuple(rounded),
                ),
            ),
            columns=3,
        )
    ]
