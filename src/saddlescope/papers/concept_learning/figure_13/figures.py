"""Figures of the entry `figure_13`: output trajectories and loss curves."""

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.figure_13.simulations import DEEP
from saddlescope.plot import Axis, Figure, Line, Panel

_CURVES = 12  # loss curves and trajectories in a figure, those of the figures first


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw output trajectories, as in Figure 13, and loss curves, as in Figure 14."""
    return [_trajectories(run), _losses(run)]


def _seeds_to_draw(run: xr.Dataset, task: str) -> list[int]:
    """Return the seeds to draw, the one with the largest rise first."""
    rises = run.rise.sel(kind=DEEP, task=task)
    rises = rises[rises.notnull()]
    first = rises.seed.values[int(rises.values.argmax())]
    return [int(first), *(int(seed) for seed in rises.seed.values[:_CURVES] if seed != first)]


def _trajectories(run: xr.Dataset) -> Figure:
    panels = []
    for task in run.task.values:
        mu, lines = run.mu.sel(task=task).values, []
        for n, seed in reversed(list(enumerate(_seeds_to_draw(run, task)))):
            path = run.output.sel(task=task, seed=seed).transpose("step", "concept").values
            look = {"group": "largest rise", "color": 1, "width": 2.2} if n == 0 else {"group": "others", "color": 0}
            lines.append(Line(x=path[:, 0], y=path[:, 1], opacity=1.0 if n == 0 else 0.35, **look))  # type: ignore[arg-type]
        centers = np.array([[mu[0], 0.0], [0.0, mu[1]], [0.0, 0.0]])
        lines.append(Line(x=centers[:, 0], y=centers[:, 1], style="points", group="training clusters", color=2))
        lines.append(Line(x=mu[:1], y=mu[1:], style="points", group="test point", color=3))
        panels.append(
            Panel(
                title=f"μ = ({mu[0]:g}, {mu[1]:g})", x=Axis("output along concept 1"), y=Axis("output along concept 2"),
                marks=tuple(lines),
            )
        )  # fmt: skip
    return Figure(
        name="trajectories",
        title="Output trajectories of three-layer networks at d = 3",
        caption="Figure 13: outputs at the test point over training. The network with the largest rise of the test "
        f"loss of all seeds stands out; the others are the first {_CURVES}.",
        panels=tuple(panels),
    )


def _losses(run: xr.Dataset) -> Figure:
    panels = [
        Panel(
            title=f"{task} μ", x=Axis("step", scale="log"), y=Axis("test loss over its start"),
            marks=tuple(_curves(run, task)),
        )
        for task in run.task.values
    ]  # fmt: skip
    return Figure(
        name="loss",
        title="Loss at the test point of three-layer networks at d = 3",
        caption="Figure 14: the networks of Figure 13, on either task; losses over their values at the start.",
        panels=tuple(panels),
    )


def _curves(run: xr.Dataset, task: str) -> list[Line]:
    lines = []
    for n, seed in reversed(list(enumerate(_seeds_to_draw(run, task)))):
        loss = run.test_loss.sel(task=task, seed=seed).values
        look = {"group": "largest rise", "color": 1, "width": 2.2} if n == 0 else {"group": "others", "color": 0}
        opacity = 1.0 if n == 0 else 0.35
        lines.append(Line(x=run.step.values[1:], y=loss[1:] / loss[0], opacity=opacity, **look))  # type: ignore[arg-type]
    return lines
