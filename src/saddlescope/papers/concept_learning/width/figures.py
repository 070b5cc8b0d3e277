"""Figures of the entry `width`."""

import itertools

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.width.simulations import BATCH, RATE
from saddlescope.plot import Axis, Figure, Line, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw P(two or more) against the width, and the loss of SGD beside the flow's."""
    curves: dict[str, list[Line]] = {"several": [], "visible": []}
    for (k, scale), dim in itertools.product(enumerate(run.scale.values), (0, 1)):
        one = run.isel(dim=dim, scale=k)
        label = f"τ = {scale:g}, d = {int(one.dim)}"
        for name, lines in curves.items():
            lines.append(
                Line(
                    x=np.log2(run.width.values), y=(one[name] / one.starts).values, group=label, color=k,
                    style="dashed" if dim else "solid",
                )
            )  # fmt: skip
    x, y = Axis("log₂ of the width d'"), Axis("P(two or more descents)")
    loss = Axis("loss / (|x|²/2)")
    sgd = [
        Line(x=run.time.values, y=run.sgd_loss.values[n], group="SGD", color=0, width=0.8, opacity=0.6)
        for n in range(run.sizes["run"])
    ]
    sgd.append(Line(x=run.time.values, y=run.flow_loss.values, group="gradient flow", color=1, style="dashed"))
    return [
        Figure(
            name="width",
            title="The wider the network, the fewer starts have a second descent; of large ones, the higher d, too",
            caption="Part of normal starts with two or more descents, two concepts, for scales τ and dimensions "
            "d; the second panel counts rises of more than 0.1 % of the first loss alone. The smaller the "
            "start, the wider a network must be.",
            panels=(
                Panel(title="any rise", x=x, y=y, marks=tuple(curves["several"])),
                Panel(title="visible rises", x=x, y=y, marks=tuple(curves["visible"])),
            ),
        ),
        Figure(
            name="sgd",
            title="Minibatch SGD on U keeps three descents",
            caption=f"Loss out of distribution over |x|²/2, Figure 8's data, batches of {BATCH}, learning rate "
            f"{RATE}, against time, steps times the rate; and gradient flow from the same start, on infinitely many "
            "samples.",
            panels=(Panel(title="three descents", x=Axis("time", "t", range=(0.0, 20.0)), y=loss, marks=tuple(sgd)),),
        ),
    ]
