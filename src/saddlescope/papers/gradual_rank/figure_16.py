"""Figures 16 and 17: updates of low and growing rank on 100 classes   (Appendix B.2, Figures 16 and 17)

As Figures 14 and 15 on data with 100 classes. The default's stand-in for CIFAR-100 are pairs of the digits embedded in
scikit-learn, side by side; `--data DIR --set dataset=cifar100` takes CIFAR-100. Terms are those of `shared.vit_training`.
"""

from dataclasses import dataclass

import xarray as xr

from saddlescope.papers.gradual_rank.shared import vit_claims as said
from saddlescope.papers.gradual_rank.shared import vit_training
from saddlescope.papers.gradual_rank.shared.training_metrics import IMAGES
from saddlescope.plot import Figure
from saddlescope.plot.ranks import spectrum_stages_figure, stable_rank_figure
from saddlescope.reproduction.context import RunContext


@dataclass(frozen=True, kw_only=True)
class Params(vit_training.PairsTraining):
    """A narrow ViT on pairs of embedded digits, for CIFAR-100."""

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: two blocks, two heads, a few epochs."""
        return cls(**vit_training.QUICK_PAIRS)

    @classmethod
    def paper(cls) -> "Params":
        """Appendix B.2: ViT with 6 blocks on CIFAR-100 for 500 epochs; for a GPU."""
        return cls(dataset="cifar100", learning_rate=1e-4, **vit_training.CIFAR)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Trains one ViT a seed."""
    return vit_training.train(params, context)


claims = said.growth_claims("Appendix B.2, Figure 17: 'gradual increase in stable rank'")

metrics = IMAGES


def figures(run: xr.Dataset) -> list[Figure]:
    """Spectra at stages of training (Figure 16), stable ranks (Figure 17), the training itself."""
    return [stable_rank_figure(run), spectrum_stages_figure(run), said.training_figure(run)]
