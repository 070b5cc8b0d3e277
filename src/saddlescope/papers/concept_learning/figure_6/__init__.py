"""Figure 6: a diffusion model learns concepts by signal, memorizes for a while, slows down   (Section 5)

Models are trained on circles that are red or blue, big or small, all but (blue, small), and asked for that one while
they train, at several strengths of the colour signal. Parts (a) to (c) are read off the same runs, and beside them
is shown the trajectory, not in the paper, that the SIM theory predicts from the images' mu and sigma.
Terms are those of `training`, `curves` and `theory`.
"""

from dataclasses import dataclass

import xarray as xr

from saddlescope.papers.concept_learning.figure_6 import training
from saddlescope.papers.concept_learning.figure_6.claims import claims
from saddlescope.papers.concept_learning.figure_6.figures import figures
from saddlescope.papers.concept_learning.figure_6.predictions import predict_trajectories
from saddlescope.reproduction.context import RunContext

__all__ = ["Params", "claims", "figures", "run"]


@dataclass(frozen=True, kw_only=True)
class Params(training.TrainingParams):
    """Small images and a small U-Net: minutes on two cores."""

    @classmethod
    def quick(cls) -> "Params":
        """Return parameters for a run of seconds: images of 8 pixels and a few steps, which learn nothing yet."""
        return cls(**training.QUICK)

    @classmethod
    def paper(cls) -> "Params":
        """Return the sizes of appendix G: 32 x 32 pixels, 20k steps, five seeds; for a GPU."""
        return cls(**training.PAPER)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train a model for each signal and seed, then fit and apply the theory."""
    trained = training.train(params, context)
    theory = predict_trajectories(trained, starts=params.starts)
    context.report(1.0, "done")
    return trained.merge(theory)
