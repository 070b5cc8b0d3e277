"""Figures 4, 5 and 15: a vision transformer learns by updates of low and growing rank   (Section 5 and appendix B.2)

A ViT is trained with Adam on real images. For every head the spectra of what training added to W_K W_Q^T and
W_V W_O^T are recorded; the initial products are the comparison. Terms are those of `shared.vit_training`.
"""

from dataclasses import dataclass

import xarray as xr

from saddlescope.papers.gradual_rank.shared import vit_claims as said
from saddlescope.papers.gradual_rank.shared import vit_training
from saddlescope.papers.gradual_rank.shared.training_metrics import IMAGES
from saddlescope.plot import Figure
from saddlescope.plot.ranks import spectrum_figure, stable_rank_figure
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.parameter_checks import between


@dataclass(frozen=True, kw_only=True)
class Params(vit_training.Training):
    """A small ViT on the digits embedded in scikit-learn: real images, minutes on two cores."""

    seeds: tuple[int, ...] = (0, 1, 2)  # one training run each; few, since the demo waits for them
    initial_scale: float = 1.0  # factor on the default initial weights, all but the patch embedding

    def __post_init__(self) -> None:
        super().__post_init__()
        between(1e-6, 1e6, self, "initial_scale")  # below, float32 gradients of keys and queries vanish

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: two blocks, two heads, a few epochs."""
        return cls(**vit_training.QUICK)

    @classmethod
    def paper(cls) -> "Params":
        """Appendix B.2: ViT with 6 blocks on CIFAR-10 for 500 epochs; for a GPU."""
        return cls(dataset="cifar10", learning_rate=1e-4, **vit_training.CIFAR)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Trains one ViT a seed."""
    return vit_training.train(params, context, initial_scale=params.initial_scale)


_RISES = "Section 5, Figures 4 and 15: 'gradually increases in stable rank'"
claims = (
    said.LEARNED,
    *said.rise_claims(_RISES),
    *said.trend_claims(_RISES),
    *said.low_claims("Section 5: 'ultimately low-rank when compared to the initial spectrum'"),
    said.spectrum_claim("KQ", "Figure 5, caption"),
)

metrics = IMAGES


def figures(run: xr.Dataset) -> list[Figure]:
    """Stable ranks over training (Figures 4 and 15), spectra against initialization (Figure 5), the training itself."""
    return [stable_rank_figure(run), spectrum_figure(run), said.training_figure(run)]
