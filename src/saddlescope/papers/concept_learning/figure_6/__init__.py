"""Figure 6: a diffusion model learns concepts by signal, memorizes for a while, slows down.

Models are trained on circles that are red or blue, big or small, all but (blue, small), and asked for that one while
they train, at several strengths of the colour signal. Parts (a) to (c) are read off the same runs, and beside them
is shown the trajectory, not in the paper, that the SIM theory predicts from the images' mu and sigma.
Terms are those of `training`, `curves` and `theory`.
"""

import xarray as xr

from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.figure_6 import training
from saddlescope.papers.concept_learning.figure_6.claims import claims
from saddlescope.papers.concept_learning.figure_6.figures import figures
from saddlescope.papers.concept_learning.figure_6.predictions import predict_trajectories
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry


class Params(training.TrainingParams):
    """Small images and a small U-Net: minutes on two cores."""


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train a model for each signal and seed, then fit and apply the theory."""
    trained = training.train(params, context)
    theory = predict_trajectories(trained, starts=params.starts)
    context.report(1.0, "done")
    return trained.merge(theory)


entry = Entry(
    "concept-learning/figure-6",
    "Figure 6: a diffusion model learns concepts by signal, memorizes for a while, slows down",
    citation=CITATION,
    source="Section 5",
    params=Params,
    quick=dict(**training.QUICK),
    paper=dict(**training.PAPER),
    run=run,
    claims=claims,
    figures=figures,
)
