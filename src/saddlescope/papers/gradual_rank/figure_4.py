"""Figures 4, 5 and 15: a vision transformer learns by updates of low and growing rank.

A ViT is trained with Adam on real images. For every head the spectra of what training added to W_K W_Q^T and
W_V W_O^T are recorded; the initial products are the comparison.
Terms are those of `shared.vit_training`.
"""

import xarray as xr

from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.shared import vit_training
from saddlescope.papers.gradual_rank.shared.training_metrics import image_metrics as metrics
from saddlescope.papers.gradual_rank.shared.vit_claims import (
    LEARNED,
    low_claims,
    rise_claims,
    spectrum_claim,
    trend_claims,
)
from saddlescope.papers.gradual_rank.shared.vit_figures import final_spectrum_figures as figures
from saddlescope.papers.gradual_rank.shared.vit_training import PAPER_TRAINING, QUICK
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param


class Params(vit_training.Training):
    """A small ViT on the digits embedded in scikit-learn: real images, minutes on two cores."""

    seeds: tuple[int, ...] = param((0, 1, 2), "one training run each; few, since the demo waits for them")
    initial_scale: float = param(
        1.0, "factor on the default initial weights, all but the patch embedding", ge=1e-6, le=1e6
    )


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train one ViT per seed."""
    return vit_training.train(params, context, initial_scale=params.initial_scale)


_RISES = "Section 5, Figures 4 and 15: 'gradually increases in stable rank'"

claims = (
    LEARNED,
    *rise_claims(_RISES),
    *trend_claims(_RISES),
    *low_claims("Section 5: 'ultimately low-rank when compared to the initial spectrum'"),
    spectrum_claim("KQ", "Figure 5, caption"),
)

entry = Entry(
    "gradual-rank/figure-4",
    "Figures 4, 5 and 15: a vision transformer learns by updates of low and growing rank",
    citation=CITATION,
    source="Section 5 and appendix B.2",
    params=Params,
    quick=QUICK,
    paper=PAPER_TRAINING,
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
