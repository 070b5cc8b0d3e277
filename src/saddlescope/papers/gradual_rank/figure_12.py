"""Figure 12: gradual rank increase in a vision transformer trained with SGD   (Appendix B.1, Figure 12)

As Figure 4 with stochastic gradient descent, without momentum, at the paper's learning rate.
Terms are those of `shared.vit_training`.
"""

from dataclasses import dataclass, replace
from typing import Literal

from saddlescope.papers.gradual_rank.shared.training_metrics import image_metrics as metrics
from saddlescope.papers.gradual_rank.shared.vit_claims import growth_claims
from saddlescope.papers.gradual_rank.shared.vit_figures import final_spectrum_figures as figures
from saddlescope.papers.gradual_rank.shared.vit_training import NarrowTraining, Training
from saddlescope.papers.gradual_rank.shared.vit_training import train as run

__all__ = ["Params", "claims", "figures", "metrics", "run"]


@dataclass(frozen=True, kw_only=True)
class Params(NarrowTraining):
    """A narrow ViT on the digits embedded in scikit-learn, for CIFAR-10."""

    optimizer: Literal["adam", "sgd"] = "sgd"  # sgd without momentum, or adam
    learning_rate: float = 0.3  # of the optimiser, at its peak; the paper's

    @classmethod
    def quick(cls) -> Training:
        """Seconds: two blocks, two heads, a few epochs."""
        return replace(super().quick(), learning_rate=0.3)

    @classmethod
    def paper(cls) -> Training:
        """Appendix B.1: ViT with 6 blocks on CIFAR-10 for 500 epochs; for a GPU."""
        return replace(super().paper(), learning_rate=0.3)


claims = growth_claims("Appendix B.1, Figure 12: 'similar gradual rank increase behavior' with SGD")
