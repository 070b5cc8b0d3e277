"""Pictures of ranks against steps, of trained networks and of accumulated gradient noise, by layer."""

import xarray as xr

from saddlescope.papers.gradual_rank.rank_rise.measures import RANKS
from saddlescope.plot import Axis, Band, Figure, Line, Panel
from saddlescope.plot.rank_figures import PRODUCTS

NAMES = {
    "labels": "trained on labels",
    "noise": "gradient noise",
    "shuffled": "shuffled labels",
    "linear": "linear attention",
    "small": "trained, small initial weights",
    "small_noise": "gradient noise, small initial weights",
}


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw both ranks of both products against the steps, by layer."""
    return [_by_layer(run, measure) for measure in RANKS]


def _by_layer(run: xr.Dataset, measure: str) -> Figure:
    drawn = [name for name in NAMES if f"{name}_rank" in run]
    panels = []
    for product, title in PRODUCTS.items():
        for layer in run.layer.values:
            marks: list[Band | Line] = []
            for name in drawn:
                rank = run[f"{name}_rank"].sel(measure=measure, product=product, layer=layer)
                noise, color = name.endswith("noise"), list(NAMES).index(name)
                x, over = rank.step.values, ["seed", "head"]
                middle = rank.median([*over, "draw"] if noise else over).values
                low, high = (
                    (rank.median(over).quantile(q, "draw") if noise else rank.quantile(q, over)).values
                    for q in ((0.025, 0.975) if noise else (0.25, 0.75))
                )
                group = NAMES[name]
                marks.append(Band(x=x, low=low, high=high, group=group, color=color))
                style = "dashed" if noise else "solid"
                marks.append(Line(x=x, y=middle, label=group, group=group, color=color, style=style))
            axes = {"x": Axis("step", scale="log"), "y": Axis(RANKS[measure])}
            panels.append(Panel(title=f"{title}, layer {layer}", marks=tuple(marks), **axes))
    return Figure(
        name=f"{measure}-rank",
        title=f"{RANKS[measure].capitalize()} of the updates, trained and of gradient noise",
        caption="Median over heads and seeds. Bands: quartiles over heads and seeds for trained networks, the central "
        "95 % of the medians of the draws for gradient noise.",
        panels=tuple(panels),
    )
