"""Appendix G: the bound, the sampler and the classifier of the diffusion models are what they should be.

The parts that Figure 6 needs, each compared with a reference that shares no code with the training:

    bound         the terms of the full model's variational bound and its gradients, against their definition in NumPy
                  and double precision: divergences of a Markov chain of 10^7 steps, central differences
    normal law    images whose best prediction of noise is known: the diffusion term is then the information that noise
                  takes away, and ancestral sampling a linear map, whose law follows without a draw
    classifier    of colour and size (appendix G.3), on true images it was not trained on, and beside the direct
                  estimator; and what its probability does between two class means, since the paper takes it for a
                  coordinate of concept space

The full model has 10.6 million parameters. Appendix G does not say how many it should have.
"""

from typing import Literal

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.appendix_g import simulations
from saddlescope.papers.concept_learning.appendix_g.claims import claims
from saddlescope.papers.concept_learning.appendix_g.figures import figures
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.device import prepare_device
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """The full model's bound; a small classifier."""

    pixels: int = param(32, "along a side, of the model's images")
    channels: tuple[int, ...] = param((64, 128, 256), "width of each level of the model, from the finest")
    images: int = param(8, "for each of which the bound is computed by hand", ge=1)
    directions: int = param(3, "in the space of weights, along which gradients are compared", ge=1)
    law_pixels: int = param(4, "along a side, of the images of normal law", ge=1)
    law_images: int = param(1024, "samples of each of four conditions", ge=2)
    law_steps: int = param(500, "of ancestral sampling, where the law should be recovered", ge=2)
    signals: tuple[float, ...] = param((0.7, 0.2), "colour signals with a classifier each; the ends of appendix G.1")
    classifier_pixels: int = param(16, "along a side, of the images that are classified")
    classifier_channels: tuple[int, ...] = param((16, 32), "width of each level of the classifier")
    classifier_blocks: int = param(1, "residual blocks a level of the classifier", ge=1)
    classifier_steps: int = param(1200, "of training, each on new images", ge=1)
    classifier_batch: int = param(32, "images a step", ge=1)
    held_out: int = param(8192, "true images, never trained on, for each classifier", ge=100)
    places: int = param(41, "between two class means, where classifier and direct estimator are read", ge=2)
    between: int = param(64, "images at each place", ge=2)
    seed: int = param(0, "of all draws", ge=0)
    device: Literal["cpu", "cuda"] = param("cpu", "where the classifiers are trained: the processor or a GPU")
    threads: int = param(1, "of PyTorch on the processor", ge=1)

    def check(self) -> None:
        if not self.signals or not all(0 < signal <= 1 for signal in self.signals):
            raise InputError(f"signals must be one or more, above 0 and at most 1; got {self.signals!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Compare the bound with its definition, sample a normal law, and train a classifier for each signal."""
    prepare_device(params.device)
    simulations.check_sizes(params)
    bound = context.cached("bound", lambda: simulations.compare_bound(params, context.part(0.0, 0.2)))
    law = context.cached("law", lambda: simulations.normal_law(params, context.part(0.2, 0.5)))
    share = 0.5 / len(params.signals)
    classified = [
        context.cached(
            f"classifier-{signal:g}",
            lambda k=k, signal=signal: simulations.evaluate_classifier(
                params,
                signal,
                checkpoint=context.scratch / f"classifier-{signal:g}.pt",
                report=context.part(0.5 + k * share, 0.5 + (k + 1) * share),
            ),
        )
        for k, signal in enumerate(params.signals)
    ]
    together = xr.concat(classified, dim="signal").assign_coords(signal=list(params.signals))
    context.report(1.0, "done")
    return xr.merge([bound, law, together], combine_attrs="no_conflicts")


entry = Entry(
    "concept-learning/appendix-g",
    "Appendix G: the bound, the sampler and the classifier of the diffusion models are what they should be",
    citation=CITATION,
    source="Appendix G",
    params=Params,
    quick=dict(
        pixels=12,
        channels=(8, 16),
        images=2,
        directions=1,
        law_pixels=2,
        law_images=100,
        law_steps=40,
        signals=(0.7,),
        classifier_pixels=12,
        classifier_channels=(4, 8),
        classifier_steps=8,
        held_out=100,
        places=11,
        between=4,
    ),
    paper=dict(
        classifier_pixels=32,
        classifier_channels=(64, 128, 256),
        classifier_blocks=2,
        classifier_steps=10_000,
        classifier_batch=128,
        device="cuda",
        threads=8,
    ),
    run=run,
    claims=claims,
    figures=figures,
)
