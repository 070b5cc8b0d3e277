"""Figure 12: gradual rank increase in a vision transformer trained with SGD   (Appendix B.1, Figure 12)

As Figure 4 with stochastic gradient descent, without momentum, at the paper's learning rate. Terms are those of `shared.vit_training`.
"""

from dataclasses import dataclass, replace
from typing import Literal

import xarray as xr

from saddlescope.papers.gradual_rank.shared import vit_claims as said
from saddlescope.papers.gradual_rank.shared import vit_training
from saddlescope.papers.gradual_rank.shared.training_metrics import IMAGES
from saddlescope.plot import Figure
from saddlescope.plot.ranks import spectrum_figure, stable_rank_figure
from saddlescope.reproduction.context import RunContext


@dataclass(frozen=True, kw_only=True)
class Params(vit_training.NarrowTraining):
    """A narrow ViT on the digits embedded in scikit-learn, for CIFAR-10."""

    optimizer: Literal["adam", "sgd"] = "sgd"  # sgd without momentum, or adam
    learning_rate: float = 0.3  # of the optimiser, at its peak; the paper's

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: two blocks, two heads, a few epochs."""
        return replace(cls(**vit_training.QUICK), learning_rate=0.3)

    @classmethod
    def paper(cls) -> "Params":
        """Appendix B.1: ViT with 6 blocks on CIFAR-10 for 500 epochs; for a GPU."""
        return cls(dataset="cifar10", **vit_training.CIFAR)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Trains one ViT a seed."""
    return vit_training.train(params, context)


claims = said.growth_claims("Appendix B.1, Figure 12: 'similar gradual rank increase behavior' with SGD")

metrics = IMAGES


def figures(run: xr.Dataset) -> list[Figure]:
    """Stable ranks over training, as the figure; spectra; the training itself."""
    return [stable_rank_figure(run), spectrum_figure(run), said.training_figure(run)]
