"""Figures 6 and 7: smaller initial weights lead to updates of lower rank.

A ViT is trained with Adam at several initial scales. A scale is a factor on the default initial weights of all layers
but the patch embedding, never a standard deviation. Seeds give the same draws at every scale.
Terms are those of `shared.vit_training`.
"""

from dataclasses import replace

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.shared.training_metrics import LONG, image_metrics, of_both
from saddlescope.papers.gradual_rank.shared.vit_training import (
    CIFAR,
    QUICK,
    REDUCED,
    NarrowTraining,
    changes,
    learned,
    train,
    training_figure,
)
from saddlescope.papers.image_data import IMAGES
from saddlescope.plot import Figure
from saddlescope.plot.rank_figures import PRODUCTS, evolution_figure, scale_rank_figure
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param


class Params(NarrowTraining, depth=3):
    """A narrow ViT of three blocks on the digits embedded in scikit-learn, for CIFAR-10."""

    scales: tuple[float, ...] = param(
        (1.0, 0.3, 0.1),
        "initial scales; 1 is the default of all layers",
        ge=1e-6,
        le=1e6,
        least=2,
        order="decreasing",
        scale="log",
    )


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train one ViT per scale and seed."""
    parts = []
    for scale, step in context.steps(params.scales):
        step = replace(step, report=step.note(f"scale {scale:g}"))
        parts.append(train(params, step, initial_scale=scale))
    return xr.concat(parts, dim="scale", combine_attrs="override").assign_coords(scale=list(params.scales))


claims = Claims(
    limits="'Smaller initialization scales lead to lower-rank attention heads' has no numbers; it is read as a slope "
    "of the logarithms. Three scales make a slope, and training ends after as many epochs at each, not at the same "
    "loss. Figure 7 shows the product of keys and queries, Figure 6 both; the worse one decides, and the remark has "
    "both.",
    requires=[learned],
)


@claims.stand_in(
    "falls",
    "Vision transformers that start from smaller weights end with learned updates of lower stable rank",
    "Figure 7: 'smaller initialization scales lead to lower-rank attention heads'",
    low=0.0,
    sizes=LONG,
)
def _falls(run: xr.Dataset) -> Estimate:
    """Slope of the log final stable rank of the update, mean over heads, over log initial scale, mean over seeds."""

    def slope(run: xr.Dataset, product: str) -> np.ndarray:
        rank = run.stable_rank.sel(product=product).isel(step=-1).mean(("layer", "head")).transpose("scale", "seed")
        return np.polyfit(np.log10(run.scale.values), np.log10(rank.values), 1)[0]

    return of_both(slope, run, low=0.0)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw singular values of one head over training (Figure 6), stable rank over scale (Figure 7), the training."""
    layer = run.layer.values.tolist()[1]
    each = [evolution_figure(run.sel(scale=scale), layer=layer) for scale in run.scale.values]
    panels = [
        replace(figure.panels[k], title=f"{figure.panels[k].title}, scale {scale:g}")
        for k in range(len(PRODUCTS))
        for scale, figure in zip(run.scale.values, each, strict=True)
    ]
    return [
        Figure(
            name="evolution",
            title="Singular values of one head's update at each initial scale",
            caption=f"{each[0].caption} One run (seed {int(run.seed[0])}) at each initial scale.",
            panels=tuple(panels),
            columns=len(each),
        ),
        scale_rank_figure(run),
        *(
            replace(training_figure(run.sel(scale=scale)), name=f"training-{k}", title=f"Training at scale {scale:g}")
            for k, scale in enumerate(run.scale.values)
        ),
    ]


entry = Entry(
    "gradual-rank/figure-6",
    "Figures 6 and 7: smaller initial weights lead to updates of lower rank",
    citation=CITATION,
    source="Section 5, effect of initialization scale",
    params=Params,
    quick=QUICK | dict(scales=(1.0, 0.3), epochs=6),
    reduced=changes(Params, REDUCED),
    paper=changes(Params, CIFAR),
    run=run,
    claims=claims,
    figures=figures,
    metrics=image_metrics,
    data=IMAGES,
)
