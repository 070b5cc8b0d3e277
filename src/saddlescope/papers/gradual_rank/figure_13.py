"""Figure 13: gradual rank increase with SGD on 100 classes   (Appendix B.1, Figure 13)

As Figure 12 on data with 100 classes. The default's stand-in for CIFAR-100 are pairs of the digits embedded in
scikit-learn, side by side; `--data DIR --set dataset=cifar100` takes CIFAR-100. Terms are those of `shared.vit_training`.
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
class Params(vit_training.PairsTraining):
    """A narrow ViT on pairs of embedded digits, for CIFAR-100."""

    optimizer: Literal["adam", "sgd"] = "sgd"  # sgd without momentum, or adam
    learning_rate: float = 0.3  # of the optimiser, at its peak; the paper's

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: two blocks, two heads, a few epochs."""
        return replace(cls(**vit_training.QUICK_PAIRS), learning_rate=0.3)

    @classmethod
    def paper(cls) -> "Params":
        """Appendix B.1: ViT with 6 blocks on CIFAR-100 for 500 epochs; for a GPU."""
        return cls(dataset="cifar100", **vit_training.CIFAR)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Trains one ViT a seed."""
    return vit_training.train(params, context)


claims = said.growth_claims("Appendix B.1, Figure 13: 'similar gradual rank increase behavior' with SGD")

metrics = IMAGES


def figures(run: xr.Dataset) -> list[Figure]:
    """Stable ranks over training, as the figure; spectra; the training itself."""
    return [stable_rank_figure(run), spectrum_figure(run), said.training_figure(run)]
