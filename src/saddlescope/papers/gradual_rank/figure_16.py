"""Figures 16 and 17: updates of low and growing rank on 100 classes.

As Figures 14 and 15 on data with 100 classes. The default's stand-in for CIFAR-100 are pairs of the digits embedded in
scikit-learn, side by side; `--data DIR --set dataset=cifar100` takes CIFAR-100.
Terms are those of `shared.vit_training`.
"""

from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.shared.training_metrics import image_metrics as metrics
from saddlescope.papers.gradual_rank.shared.vit_claims import growth_claims
from saddlescope.papers.gradual_rank.shared.vit_figures import spectrum_stages_figures as figures
from saddlescope.papers.gradual_rank.shared.vit_training import PAPER_PAIRSTRAINING, QUICK_PAIRS, PairsTraining
from saddlescope.papers.gradual_rank.shared.vit_training import train as run
from saddlescope.reproduction.entry import Entry


class Params(PairsTraining):
    """A narrow ViT on pairs of embedded digits, for CIFAR-100."""


claims = growth_claims("Appendix B.2, Figure 17: 'gradual increase in stable rank'")

entry = Entry(
    "gradual-rank/figure-16",
    "Figures 16 and 17: updates of low and growing rank on 100 classes",
    citation=CITATION,
    source="Appendix B.2, Figures 16 and 17",
    params=Params,
    quick=QUICK_PAIRS,
    paper=PAPER_PAIRSTRAINING,
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
