"""Figures of the entry `early_alignment`."""

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.early_alignment.claims import alignment, predicted_alignment
from saddlescope.plot import Axis, Figure, Line, Mark, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw neurons turning, alignment against scale, and losses."""
    return [_turning(run), _scales(run, 1 - alignment(run), 1 - predicted_alignment(run))]


def _turning(run: xr.Dataset) -> Figure:
    panels = []
    for place in (0, run.sizes["scale"] - 1):
        one = run.isel(scale=place)
        angles = one.angle.values.copy()
        angles[1:][np.abs(np.diff(angles, axis=0)) > 180] = np.nan  # a turn through 180 degrees is no line
        lines = [
            Line(x=one.early_time.values, y=angles[:, n], group="a neuron", color=0, width=0.9, opacity=0.6)
            for n in range(angles.shape[1])
        ]
        predicted = one.predicted_first.isel(run=0).values
        lines.append(
            Line(
                x=np.full(len(predicted), float(one.leaving[0])), y=np.degrees(np.arctan2(*predicted.T[::-1])),
                group="predicted when the loss leaves", color=1, style="points",
            )
        )  # fmt: skip
        fastest = float(np.degrees(np.arctan2(*run.fastest.values[::-1])))
        marks = (*lines, Mark(at=fastest, axis="y", label="fastest"), Mark(at=float(one.leaving[0])))
        y = Axis("direction of w", unit="degrees", range=(-180.0, 180.0))
        panels.append(Panel(title=f"scale {float(one.scale):g}", x=Axis("time t"), y=y, marks=marks))
    return Figure(
        name="turning",
        title="Neurons turn to fixed directions before the loss falls, if they are small",
        caption="The direction of every neuron's input weights over time in one network of the largest and of the "
        "smallest scale: 0 degrees is the weaker concept, 90 the stronger one. The vertical line is where the loss has "
        "fallen by 2 %, the points on it are the predicted directions.",
        panels=tuple(panels),
    )


def _scales(run: xr.Dataset, found: xr.DataArray, expected: xr.DataArray) -> Figure:
    missing = (
        Line(x=run.scale.values, y=expected.mean("run").values, label="predicted", color=1),
        Line(
            x=run.scale.values.repeat(run.sizes["run"]), y=found.transpose("scale", "run").values.ravel(),
            label="found", color=0, style="points",
        ),
    )  # fmt: skip
    losses = tuple(
        Line(
            x=one.time.values, y=one.loss.isel(run=0).values, label=f"scale {float(one.scale):g}", color=n + 2
        )
        for n, one in ((n, run.isel(scale=n)) for n in range(run.sizes["scale"]))
    )  # fmt: skip
    return Figure(
        name="scales",
        title="Alignment when the loss leaves its plateau, against the initial scale",
        caption="Left: what the mean cosine to the fastest direction, by weight, lacks of 1, per network. Right: the "
        "loss of one network of each scale: two concepts, two drops.",
        panels=(
            Panel(x=Axis("initial scale", scale="log"), y=Axis("1 − cosine", scale="log"), marks=missing),
            Panel(x=Axis("time t"), y=Axis("loss"), marks=losses),
        ),
    )
