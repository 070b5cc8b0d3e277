"""Figures 1 and 14: spectra of what attention learned, at stages of training.

A ViT is trained with Adam on real images. At every record the spectrum of what training added to W_K W_Q^T and
W_V W_O^T is compared with that of the initial product.
Terms are those of `shared.vit_training`.
"""

from collections.abc import Callable

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.shared.training_metrics import image_metrics as metrics
from saddlescope.papers.gradual_rank.shared.vit_claims import LEARNED, NAMES, since_first_epoch
from saddlescope.papers.gradual_rank.shared.vit_figures import training_figure
from saddlescope.papers.gradual_rank.shared.vit_training import PAPER_TRAINING, QUICK, NarrowTraining
from saddlescope.papers.gradual_rank.shared.vit_training import train as run
from saddlescope.plot import Figure
from saddlescope.plot.rank_figures import spectrum_stages_figure
from saddlescope.reproduction.claim import Claim, Estimate, Kind
from saddlescope.reproduction.entry import Entry


class Params(NarrowTraining):
    """A narrow ViT on the digits embedded in scikit-learn, for CIFAR-10."""


# The bounds. The figures show spectra of updates that fall far faster than that of the initial product at all stages,
# and later ones that fall slower than earlier ones, without numbers. Read here as: at every record since the end of the
# first epoch the update needs at most half the directions of the initial product for 90 % of its energy; and the last
# one needs more of them than the one at the end of the first epoch.
def _directions(run: xr.Dataset, product: str) -> np.ndarray:
    """Return the directions for 90 % of the energy, mean over heads, since the first epoch: (seeds, records)."""
    from saddlescope.measure import energy_rank

    since = since_first_epoch(run.update_spectrum.sel(product=product), run)
    ranks = energy_rank(since.transpose("seed", "step", "layer", "head", "index").values, fraction=0.9)
    return ranks.mean(axis=(-2, -1))


def _widest(product: str) -> Callable[[xr.Dataset], Estimate]:
    def statistic(run: xr.Dataset) -> Estimate:
        initial = run.initial_energy_rank.sel(product=product).mean(("layer", "head")).values
        return Estimate.mean(_directions(run, product).max(axis=1) / initial)

    return statistic


def _widening(product: str) -> Callable[[xr.Dataset], Estimate]:
    def statistic(run: xr.Dataset) -> Estimate:
        directions = _directions(run, product)
        return Estimate.mean(directions[:, -1] - directions[:, 0])

    return statistic


claims = (
    LEARNED,
    *(
        claim
        for product, name in NAMES.items()
        for claim in (
            Claim(
                name=f"narrow-{product}",
                statement=f"The spectrum of the update of {name} is narrow at all stages",
                quantity="directions for 90 % of its energy over those of the initial product, at the record where they are most",
                kind=Kind.OWN,
                source="Figures 1 and 14; half is this project's reading of what they show",
                high=0.5,
                statistic=_widest(product),
            ),
            Claim(
                name=f"widens-{product}",
                statement=f"The spectrum of the update of {name} widens",
                quantity="directions for 90 % of its energy, last record minus end of the first epoch",
                kind=Kind.READING,
                source="Section 1: 'the rank of this difference grows gradually during training; see Figure 1'",
                low=0.0,
                statistic=_widening(product),
            ),
        )
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw spectra at stages of training, of the mean over heads and of the first head; the training."""
    return [spectrum_stages_figure(run), spectrum_stages_figure(run, head=0), training_figure(run)]


entry = Entry(
    "gradual-rank/figure-1",
    "Figures 1 and 14: spectra of what attention learned, at stages of training",
    citation=CITATION,
    source="Section 1 and appendix B.2",
    params=Params,
    quick=QUICK,
    paper=PAPER_TRAINING,
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
