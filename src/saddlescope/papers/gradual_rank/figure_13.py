"""Figure 13: gradual rank increase with SGD on 100 classes   (Appendix B.1, Figure 13)

As Figure 12 on data with 100 classes. The default's stand-in for CIFAR-100 are pairs of the digits embedded in
scikit-learn, side by side; `--data DIR --set dataset=cifar100` takes CIFAR-100.
Terms are those of `shared.vit_training`.
"""

from dataclasses import dataclass, replace
from typing import Literal

from saddlescope.papers.gradual_rank.shared.training_metrics import image_metrics as metrics
from saddlescope.papers.gradual_rank.shared.vit_claims import growth_claims
from saddlescope.papers.gradual_rank.shared.vit_figures import final_spectrum_figures as figures
from saddlescope.papers.gradual_rank.shared.vit_training import PairsTraining
from saddlescope.papers.gradual_rank.shared.vit_training import train as run

__all__ = ["Params", "claims", "figures", "metrics", "run"]


@dataclass(frozen=True, kw_only=True)
class Params(PairsTraining):
    """A narrow ViT on pairs of embedded digits, for CIFAR-100."""

    optimizer: Literal["adam", "sgd"] = "sgd"  # sgd without momentum, or adam
    learning_rate: float = 0.3  # of the optimiser, at its peak; the paper's

    @classmethod
    def quick(cls) -> PairsTraining:
        """Seconds: two blocks, two heads, a few epochs."""
        return replace(super().quick(), learning_rate=0.3)

    @classmethod
    def paper(cls) -> PairsTraining:
        """Appendix B.1: ViT with 6 blocks on CIFAR-100 for 500 epochs; for a GPU."""
        return replace(super().paper(), learning_rate=0.3)


claims = growth_claims("Appendix B.1, Figure 13: 'similar gradual rank increase behavior' with SGD")
