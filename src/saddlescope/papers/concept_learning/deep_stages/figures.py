"""Figures of the entry `deep_stages`."""

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.deep_stages.claims import worst_errors
from saddlescope.plot import Axis, Figure, Line, Mark, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw staircases, errors of stage times, and the order of two concepts with what follows it."""
    errors = np.array([worst_errors(run, float(scale)) for scale in run.scale.values])
    return [_staircases(run), _errors(run, errors), _order(run)]


def _staircases(run: xr.Dataset) -> Figure:
    smallest, panels = float(run.scale.min()), []
    for depth in run.depth.values:
        one = run.sel(depth=depth)
        marks: list[Line | Mark] = []
        for k, a in enumerate(run.strength.values):
            group = f"a = {a:.3g}"
            marks.append(Line(x=one.time.values, y=one.w.values[:, k], group=group, color=k))
            marks.append(Mark(at=float(one.predicted.sel(scale=smallest)[0, k]), group=group, color=k))
        panels.append(
            Panel(title=f"L = {int(depth)}", x=Axis("time t", scale="log"), y=Axis("w_kk"), marks=tuple(marks))
        )
    return Figure(
        name="staircases",
        title="Deeper networks wait longer between concepts",
        caption=f"The major entries from one random start of deviation {smallest:g} by gradient flow, and as vertical "
        "lines the predicted times of their stages.",
        panels=tuple(panels),
        columns=3,
    )


def _errors(run: xr.Dataset, worst: np.ndarray) -> Figure:
    parity: list[Line] = []
    errors: list[Line] = []
    for n, depth in enumerate(run.depth.values):
        one, group = run.sel(depth=depth), f"L = {int(depth)}"
        parity.append(
            Line(x=one.predicted.values.ravel(), y=one.found.values.ravel(), group=group, color=n, style="points")
        )
        errors.append(Line(x=run.scale.values, y=np.median(worst[:, n], axis=1), group=group, color=n))
        errors.append(
            Line(
                x=np.repeat(run.scale.values, worst.shape[2]), y=worst[:, n].ravel(), group=group, color=n,
                style="points", opacity=0.6,
            )
        )  # fmt: skip
    ends = np.array([float(run.predicted.min()), float(run.predicted.max())])
    parity.append(Line(x=ends, y=ends, label="equal", style="dotted", width=1.0))
    return Figure(
        name="errors",
        title="Stage times from random starts, predicted and found",
        caption="Left: all stages of all starts. Right: the relative error of each start's worst stage against the "
        "scale of its weights, and their median as a line.",
        panels=(
            Panel(x=Axis("T predicted", scale="log"), y=Axis("T by gradient flow", scale="log"), marks=tuple(parity)),
            Panel(
                x=Axis("initial deviation ω", scale="log"), y=Axis("relative error", scale="log"), marks=tuple(errors)
            ),
        ),
    )


def _order(run: xr.Dataset) -> Figure:
    a, panels = run.pair_strength.values, []
    for depth in run.depth.values:
        one, marks = run.sel(depth=depth), []
        for n, pair in enumerate(run.pair.values):
            group = f"{pair} concept"
            marks.append(Line(x=run.ratio.values, y=one.diagonal_predicted.sel(pair=pair).values, group=group, color=n))
            marks.append(
                Line(
                    x=run.ratio.values, y=one.diagonal_found.sel(pair=pair).values, group=group, color=n, style="points"
                )
            )
        if depth > 2:
            marks.append(Mark(at=float((a[1] / a[0]) ** (1 / (depth - 2))), label="flip, leading order"))
        panels.append(
            Panel(
                title=f"diagonal, L = {int(depth)}", x=Axis("weaker one ahead by r"), y=Axis("T", scale="log"),
                marks=tuple(marks),
            )
        )  # fmt: skip
    curves = tuple(
        Line(
            x=run.noisy_time.values, y=run.noisy_w.sel(noise=noise, pair=pair).values, group=f"{pair} concept", color=n,
            style=("solid", "dashed")[min(m, 1)],
        )
        for m, noise in enumerate(run.noise.values)
        for n, pair in enumerate(run.pair.values)
    )  # fmt: skip
    panels.append(Panel(title=f"with noise, L = {run.noisy_depth}", x=Axis("time t"), y=Axis("w_kk"), marks=curves))
    return Figure(
        name="order",
        title="Beyond depth 2 a head start decides which concept comes first, and a weaker one is given up again",
        caption="Times of two concepts from balanced diagonal starts against the head start of the weaker one, lines "
        "in closed form and points by gradient flow. Last panel: the same start four times ahead with a little noise "
        f"({run.noise.values[0]:g} solid, {run.noise.values[-1]:g} dashed): the network that has learned the weaker "
        "concept turns over to the stronger one, and has to learn the weaker one again much later.",
        panels=tuple(panels),
        columns=2,
    )
