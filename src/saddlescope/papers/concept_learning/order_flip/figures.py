"""Figures of the entry `order_flip`."""

from typing import Any

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.order_flip.claims import flip_ratios
from saddlescope.papers.concept_learning.order_flip.simulations import diversity
from saddlescope.plot import Axis, Figure, Line, Mark, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw output trajectories across the flip, half-times, and the ratios at which starts and runs flip."""
    return [_trajectories(run), _flips(run)]


def _trajectories(run: xr.Dataset) -> Figure:
    sigmas = diversity(run.pictured.values, run.mu, run.sigma, 2) ** 0.5
    curves = tuple(
        Line(
            x=run.path.sel(pictured=ratio).values[:, 0], y=run.path.sel(pictured=ratio).values[:, 1], color=n,
            label=f"σ₁ = {sigmas[n]:.2f}",
        )
        for n, ratio in enumerate(run.pictured.values)
    )  # fmt: skip
    target = Line(x=np.array(run.mu[:1]), y=np.array(run.mu[1:]), style="points", color=0)
    late = run.half.isel(scale=-1, start=0)
    times = tuple(
        Line(x=run.ratio.values, y=late.sel(concept=k).values, label=f"T{'₁₂'[k - 1]}", color=k + 2, style="dashed")
        for k in (1, 2)
    )
    return Figure(
        name="trajectories",
        title="With more diversity the weaker signal is learned first",
        caption=f"Left: outputs at the test point of the symmetric network, from one start of scale "
        f"{float(run.scale[1]):g}, for growing diversity of the first concept; the test point is marked. Right: when "
        f"each concept is half learned, from a start of scale {float(run.scale[-1]):g}.",
        panels=(
            Panel(x=Axis("output along concept 1"), y=Axis("output along concept 2"), marks=(*curves, target)),
            Panel(x=Axis("a₁ / a₂"), y=Axis("T_k"), marks=times),
        ),
    )


def _flips(run: xr.Dataset) -> Figure:
    two, sgd, theorem = (flip_ratios(half) for half in (run.half, run.sgd_half, run.theorem_half))

    def steps(values: np.ndarray, **look: Any) -> Line:
        resolved = np.sort(values[np.isfinite(values)])
        return Line(x=resolved, y=(np.arange(len(resolved)) + 0.5) / values.size, style="steps", **look)

    curves = tuple(
        steps(two.isel(scale=n).values, label=f"scale {scale:g}", color=n) for n, scale in enumerate(run.scale.values)
    )
    one = []
    for n, clusters in enumerate(run.clusters.values):
        text = "two clusters" if clusters == 2 else "with one at the origin"
        one.append(
            Line(
                x=theorem.isel(clusters=n).values,
                y=sgd.isel(clusters=n).values,
                style="points",
                label=text,
                color=n + 3,
            )
        )
    ends = np.array([0.5, 1.6])
    one.append(Line(x=ends, y=ends, style="dotted", label="equal", width=1.0, color=8))
    return Figure(
        name="flips",
        title="Where the order flips",
        caption="Left: over starts of the symmetric network, the share that has flipped at a ratio of strengths, for "
        "three scales of U. Right: SGD of one layer, each run against Theorem 4.1 from its actual start.",
        panels=(
            Panel(x=Axis("a₁ / a₂"), y=Axis("share of starts"), marks=(*curves, Mark(at=1.0, label="a₁ = a₂"))),
            Panel(x=Axis("flip by Theorem 4.1"), y=Axis("flip by SGD"), marks=tuple(one)),
        ),
    )
