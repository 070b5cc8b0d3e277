"""Figures 1 and 14: spectra of what attention learned, at stages of training   (Section 1 and appendix B.2)

A ViT is trained with Adam on real images. At every record the spectrum of what training added to W_K W_Q^T and
W_V W_O^T is held against that of the initial product. Terms are those of `shared.vit_training`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.shared import vit_claims as said
from saddlescope.papers.gradual_rank.shared import vit_training
from saddlescope.papers.gradual_rank.shared.training_metrics import IMAGES
from saddlescope.plot import Figure
from saddlescope.plot.ranks import spectrum_stages_figure
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext


@dataclass(frozen=True, kw_only=True)
class Params(vit_training.NarrowTraining):
    """A narrow ViT on the digits embedded in scikit-learn, for CIFAR-10."""

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: two blocks, two heads, a few epochs."""
        return cls(**vit_training.QUICK)

    @classmethod
    def paper(cls) -> "Params":
        """Appendix B.2: ViT with 6 blocks on CIFAR-10 for 500 epochs; for a GPU."""
        return cls(dataset="cifar10", learning_rate=1e-4, **vit_training.CIFAR)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Trains one ViT a seed."""
    return vit_training.train(params, context)


# The bounds. The figures show spectra of updates that fall far faster than that of the initial product at all stages,
# and later ones that fall slower than earlier ones, without numbers. Read here as: at every record since the end of the
# first epoch the update needs at most half the directions of the initial product for 90 % of its energy; and the last
# one needs more of them than the one at the end of the first epoch.
def _directions(run: xr.Dataset, product: str) -> np.ndarray:
    """Directions for 90 % of the energy, mean over heads, at each record since the first epoch: (seeds, records)."""
    from saddlescope.measure import energy_rank

    since = said.since_first_epoch(run.update_spectrum.sel(product=product), run)
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
    said.LEARNED,
    *(
        claim
        for product, name in said.NAMES.items()
        for claim in (
            Claim(
                name=f"narrow-{product}",
                says=f"The spectrum of the update of {name} is narrow at all stages: directions for 90 % of its energy"
                " over those of the initial product, at the record where they are most",
                source="Figures 1 and 14; half is this project's reading of what they show",
                statistic=_widest(product),
                high=0.5,
            ),
            Claim(
                name=f"widens-{product}",
                says=f"The spectrum of the update of {name} widens: directions for 90 % of its energy, last record"
                " minus end of the first epoch",
                source="Section 1: 'the rank of this difference grows gradually during training; see Figure 1'",
                statistic=_widening(product),
                low=0.0,
            ),
        )
    ),
)

metrics = IMAGES


def figures(run: xr.Dataset) -> list[Figure]:
    """Spectra at stages of training: the mean over heads, and the first head alone, as in the paper; the training."""
    return [spectrum_stages_figure(run), spectrum_stages_figure(run, head=0), said.training_figure(run)]
