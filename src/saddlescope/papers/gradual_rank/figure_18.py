"""Figures 18 and 19: updates of low and growing rank in a deep ViT with 12 heads.

The paper trains ViT-B/16 on ImageNet. The default's stand-in has its 12 blocks, 12 heads and a feedforward layer four
times as wide as a token, but narrow ones, and the digits embedded in scikit-learn; the paper's size reads ImageNet from
folders of classes in the data folder.
Terms are those of `shared.vit_training`.
"""

from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.shared.training_metrics import image_metrics as metrics
from saddlescope.papers.gradual_rank.shared.vit_claims import growth_claims
from saddlescope.papers.gradual_rank.shared.vit_figures import spectrum_stages_figures as figures
from saddlescope.papers.gradual_rank.shared.vit_training import GPU, QUICK, Training
from saddlescope.papers.gradual_rank.shared.vit_training import train as run
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param


class Params(Training):
    """A narrow ViT of 12 blocks on the embedded digits, for ViT-B/16 on ImageNet."""

    depth: int = param(12, "transformer blocks")
    embedding: int = param(96, "dimension of a token")
    heads: int = param(12, "attention heads in a block")
    head_width: int = param(16, "columns of W_K, W_Q, W_V and W_O of one head")
    mlp: int = param(384, "width of the feedforward layer")
    epochs: int = param(8, "passes through the training images")
    batch: int = param(64, "images in a step")


claims = growth_claims(
    "Appendix B.2, Figure 19: 'gradual increase in stable rank'; Section 1: 'easier to see for ImageNet'"
)

entry = Entry(
    "gradual-rank/figure-18",
    "Figures 18 and 19: updates of low and growing rank in a deep ViT with 12 heads",
    citation=CITATION,
    source="Appendix B.2, Figures 18 and 19",
    params=Params,
    quick=QUICK | dict(depth=3),
    paper=dict(
        dataset="imagenet",
        seeds=(0,),
        patch=16,
        depth=12,
        embedding=768,
        heads=12,
        head_width=64,
        mlp=3072,
        epochs=360,
        batch=4096,
        pieces=8,
        learning_rate=3e-3,
        warmup_epochs=15,
        test_every=5,
        **GPU,
    ),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
