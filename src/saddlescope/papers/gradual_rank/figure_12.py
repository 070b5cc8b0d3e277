"""Figure 12: gradual rank increase in a vision transformer trained with SGD.

As Figure 4 with stochastic gradient descent, without momentum, at the paper's learning rate.
Terms are those of `shared.vit_training`.
"""

from typing import Literal

from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.shared.training_metrics import image_metrics as metrics
from saddlescope.papers.gradual_rank.shared.vit_claims import growth_claims
from saddlescope.papers.gradual_rank.shared.vit_figures import final_spectrum_figures as figures
from saddlescope.papers.gradual_rank.shared.vit_training import PAPER_TRAINING, QUICK, NarrowTraining
from saddlescope.papers.gradual_rank.shared.vit_training import train as run
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param


class Params(NarrowTraining):
    """A narrow ViT on the digits embedded in scikit-learn, for CIFAR-10."""

    optimizer: Literal["adam", "sgd"] = param("sgd", "sgd without momentum, or adam")
    learning_rate: float = param(0.3, "of the optimiser, at its peak; the paper's")


claims = growth_claims("Appendix B.1, Figure 12: 'similar gradual rank increase behavior' with SGD")

entry = Entry(
    "gradual-rank/figure-12",
    "Figure 12: gradual rank increase in a vision transformer trained with SGD",
    citation=CITATION,
    source="Appendix B.1, Figure 12",
    params=Params,
    quick=QUICK | dict(learning_rate=0.3),
    paper=PAPER_TRAINING | dict(learning_rate=0.3),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
