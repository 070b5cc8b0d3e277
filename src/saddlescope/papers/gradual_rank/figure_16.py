"""Figures 16 and 17: updates of low and growing rank on 100 classes   (Appendix B.2, Figures 16 and 17)

As Figures 14 and 15 on data with 100 classes. The default's stand-in for CIFAR-100 are pairs of the digits embedded in
scikit-learn, side by side; `--data DIR --set dataset=cifar100` takes CIFAR-100.
Terms are those of `shared.vit_training`.
"""

from dataclasses import dataclass

from saddlescope.papers.gradual_rank.shared.training_metrics import image_metrics as metrics
from saddlescope.papers.gradual_rank.shared.vit_claims import growth_claims
from saddlescope.papers.gradual_rank.shared.vit_figures import spectrum_stages_figures as figures
from saddlescope.papers.gradual_rank.shared.vit_training import PairsTraining
from saddlescope.papers.gradual_rank.shared.vit_training import train as run

__all__ = ["Params", "claims", "figures", "metrics", "run"]


@dataclass(frozen=True, kw_only=True)
class Params(PairsTraining):
    """A narrow ViT on pairs of embedded digits, for CIFAR-100."""


claims = growth_claims("Appendix B.2, Figure 17: 'gradual increase in stable rank'")
