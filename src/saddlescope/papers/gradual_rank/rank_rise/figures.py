"""Pictures of ranks against steps, of trained networks and of accumulated gradient noise, by layer."""

import xarray as xr

from saddlescope.papers.gradual_rank.rank_rise.measures import RANKS, TRANSIENT
from saddlescope.plot import Axis, Band, Figure, Line, Mark, Panel
from saddlescope.plot.rank_figures import PRODUCTS

NAMES = {
    "usual": {
        "labels": "trained on labels",
        "noise": "gradient noise",
        "shuffled": "shuffled labels",
        "linear": "linear attention",
    },
    "small": {"small": "trained on labels", "small_noise": "gradient noise"},
}
"""Names of the networks and nulls, by their initial weights."""


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw both ranks of both products against the steps, by layer; a figure for each size of the initial weights."""
    return [
        _by_layer(run, measure, start, drawn)
        for start, names in NAMES.items()
        if (drawn := {name: label for name, label in names.items() if f"{name}_rank" in run})
        for measure in RANKS
    ]


def _by_layer(run: xr.Dataset, measure: str, start: str, drawn: dict[str, str]) -> Figure:
    panels = []
    for layer in run.layer.values:
        for product, title in PRODUCTS.items():
            last = float(run.step[-1])
            marks: list[Band | Line | Mark] = [Mark(at=TRANSIENT * last, label="16 % of training", axis="x")]
            if "warmup" in run.attrs:
                marks.append(Mark(at=float(run.attrs["warmup"]), label="end of warm-up", axis="x"))
            for color, (name, label) in enumerate(drawn.items()):
                rank = run[f"{name}_rank"].sel(measure=measure, product=product, layer=layer)
                marks += _curve(rank, label, color)
            axes = {"x": Axis("optimiser steps", scale="log"), "y": Axis(RANKS[measure])}
            panels.append(Panel(title=f"{title}, layer {layer}", marks=tuple(marks), **axes))
    return Figure(
        name=f"{start}-{measure}",
        title=f"{RANKS[measure].capitalize()} of the updates from {start} initial weights",
        caption="Median over heads and seeds. Bands: quartiles over heads and seeds for trained networks, the central "
        "95 % of the medians of the draws for gradient noise.",
        panels=tuple(panels),
    )


def _curve(rank: xr.DataArray, label: str, color: int) -> list[Band | Line | Mark]:
    """Draw the median over heads and seeds, with its band over heads and seeds, or over the draws of a null."""
    of_heads, noise = ["seed", "head"], "draw" in rank.dims
    within = rank.median(of_heads).quantile([0.025, 0.975], "draw") if noise else rank.quantile([0.25, 0.75], of_heads)
    low, high = within.transpose("quantile", "step").values
    middle = rank.median([*of_heads, "draw"] if noise else of_heads).values
    style = "dashed" if noise else "solid"
    return [
        Band(x=rank.step.values, low=low, high=high, group=label, color=color),
        Line(x=rank.step.values, y=middle, label=label, group=label, color=color, style=style),
    ]
