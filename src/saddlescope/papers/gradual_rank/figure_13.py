"""Figure 13: gradual rank increase with SGD on 100 classes.

As Figure 12 on data with 100 classes. The default's stand-in for CIFAR-100 are pairs of the digits embedded in
scikit-learn, side by side; `--data DIR --set dataset=cifar100` takes CIFAR-100.
Terms are those of `shared.vit_training`.
"""

from typing import Literal

from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.shared.training_metrics import image_metrics as metrics
from saddlescope.papers.gradual_rank.shared.vit_claims import growth_claims
from saddlescope.papers.gradual_rank.shared.vit_figures import final_spectrum_figures as figures
from saddlescope.papers.gradual_rank.shared.vit_training import PAPER_PAIRSTRAINING, QUICK_PAIRS, PairsTraining
from saddlescope.papers.gradual_rank.shared.vit_training import train as run
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param


class Params(PairsTraining):
    """A narrow ViT on pairs of embedded digits, for CIFAR-100."""

    optimizer: Literal["adam", "sgd"] = param("sgd", "sgd without momentum, or adam")
    learning_rate: float = param(0.3, "of the optimiser, at its peak; the paper's")


claims = growth_claims("Appendix B.1, Figure 13: 'similar gradual rank increase behavior' with SGD")

entry = Entry(
    "gradual-rank/figure-13",
    "Figure 13: gradual rank increase with SGD on 100 classes",
    citation=CITATION,
    source="Appendix B.1, Figure 13",
    params=Params,
    quick=QUICK_PAIRS | dict(learning_rate=0.3),
    paper=PAPER_PAIRSTRAINING | dict(learning_rate=0.3),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
