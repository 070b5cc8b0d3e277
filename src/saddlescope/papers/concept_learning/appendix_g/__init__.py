"""Appendix G: the bound, the sampler and the classifier of the diffusion models are what they should be   (Appendix G)

What Figure 6 stands on, each held against something that knows nothing of the code which trains:

    bound         the terms of the full model's variational bound and its gradients, against their definition in NumPy
                  and double precision: divergences of a Markov chain of 10^7 steps, central differences
    normal law    images whose best prediction of noise is known: the diffusion term is then the information that noise
                  takes away, and ancestral sampling a linear map, whose law follows without a draw
    classifier    of colour and size (appendix G.3), on true images it was not trained on, and beside the direct
                  estimator; and what its probability does between two class means, since the paper takes it for a
                  coordinate of concept space

The full model has 10.6 million parameters. Appendix G does not say how many it should have.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.appendix_g.figures import bound_figure, estimators_figure, law_figure
from saddlescope.plot import Figure
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.parameter_checks import at_least


@dataclass(frozen=True, kw_only=True)
class Params:
    """The full model's bound; a small classifier."""

    pixels: int = 32  # along a side, of the model's images
    channels: tuple[int, ...] = (64, 128, 256)  # width of each level of the model, from the finest
    images: int = 8  # for each of which the bound is computed by hand
    directions: int = 3  # in the space of weights, along which gradients are compared
    law_pixels: int = 4  # along a side, of the images of normal law
    law_images: int = 1024  # samples of each of four conditions
    law_steps: int = 500  # of ancestral sampling, where the law should be recovered
    signals: tuple[float, ...] = (0.7, 0.2)  # colour signals with a classifier each; the ends of appendix G.1
    classifier_pixels: int = 16  # along a side, of the images that are classified
    classifier_channels: tuple[int, ...] = (16, 32)  # width of each level of the classifier
    classifier_blocks: int = 1  # residual blocks a level of the classifier
    classifier_steps: int = 1200  # of training, each on new images
    classifier_batch: int = 32  # images a step
    held_out: int = 8192  # true images, never trained on, for each classifier
    places: int = 41  # between two class means, where classifier and direct estimator are read
    between: int = 64  # images at each place
    seed: int = 0  # of all draws
    device: Literal["cpu", "cuda"] = "cpu"  # where the classifiers are trained: the processor or a GPU
    threads: int = 1  # of PyTorch on the processor

    def __post_init__(self) -> None:
        at_least(1, self, "images", "directions", "law_pixels", "classifier_blocks", "classifier_steps", "threads")
        at_least(1, self, "classifier_batch")
        at_least(2, self, "places", "between", "law_images", "law_steps")
        at_least(100, self, "held_out")
        at_least(0, self, "seed")
        if not self.signals or not all(0 < signal <= 1 for signal in self.signals):
            raise InputError(f"signals must be one or more, above 0 and at most 1; got {self.signals!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: a small model, few samples, a classifier that has hardly begun."""
        return cls(
            pixels=12, channels=(8, 16), images=2, directions=1, law_pixels=2, law_images=100, law_steps=40,
            signals=(0.7,), classifier_pixels=12, classifier_channels=(4, 8), classifier_steps=8, held_out=100,
            places=11, between=4,
        )  # fmt: skip

    @classmethod
    def paper(cls) -> "Params":
        """The classifier of appendix G.3 at the size of the images there, 10k steps; for a GPU."""
        return cls(
            classifier_pixels=32, classifier_channels=(64, 128, 256), classifier_blocks=2, classifier_steps=10_000,
            classifier_batch=128, device="cuda", threads=8,
        )  # fmt: skip


def run(params: Params, context: RunContext) -> xr.Dataset:
    """The bound by hand, the normal law, then a classifier a signal."""
    from saddlescope.papers.concept_learning.appendix_g import parts as parts
    from saddlescope.reproduction.device import prepare_device

    prepare_device(params.device)
    parts.refuse_misfits(params)
    bound = context.cached("bound", lambda: parts.bound(params, context.part(0.0, 0.2)))
    law = context.cached("law", lambda: parts.normal_law(params, context.part(0.2, 0.5)))
    share = 0.5 / len(params.signals)
    classified = [
        context.cached(
            f"classifier-{signal:g}",
            lambda k=k, signal=signal: parts.classified(
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


# The bounds. 1e-4 is single precision on sums of thousands of numbers. The sampler's: with n samples of D numbers the
# mean squared deviation of a covariance, in units of its own chance, is 1 +- 2 / sqrt(D (D + 1)); 5 % of the variance
# is this project's bar at 500 steps, and 15 % at the paper's 100, whose exact law is 11 % short in a pilot with seed
# 100. The paper has 100 % on held-out images; all but one in a thousand is what so many images can show.
def _apart(term: str) -> Callable[[xr.Dataset], Estimate]:
    return lambda run: Estimate(float(abs(run.ours / run.by_hand - 1).sel(term=term).max()))


def _gradient(run: xr.Dataset) -> Estimate:
    return Estimate(float((abs(run.gradient - run.gradient_by_hand) / run.gradient_norm).max()))


def _information(run: xr.Dataset) -> Estimate:
    return Estimate(
        float(run.information_found / run.information), 1.96 * float(run.information_error / run.information)
    )


def _chain(run: xr.Dataset) -> Estimate:
    dims = run.sizes["direction"]
    chance = 1.96 * 2 / (dims * (dims + 1)) ** 0.5
    return Estimate(float(run.covariance_deviation.sel(against="chain")), chance)


def _mean(run: xr.Dataset) -> Estimate:
    deviations = run.mean_deviation.values
    return Estimate(float((deviations**2).mean()), 1.96 * (2 / deviations.size) ** 0.5)


def _covariance(run: xr.Dataset) -> Estimate:
    # What is beyond chance, a direction: chance has a mean square of (D + 1)/n there, and adds 2 (D + 1)^.5 / (n D^.5).
    dims, n = run.sizes["direction"], int(run.attrs["law_samples"])
    deviation = float(run.covariance_deviation.sel(against="law"))
    beyond = max((deviation - 1) * (dims + 1) / n, 0.0)
    most = beyond + 1.96 * 2 * (dims + 1) ** 0.5 / (n * dims**0.5)
    return Estimate(beyond**0.5, most**0.5 - beyond**0.5)


def _hundred(run: xr.Dataset) -> Estimate:
    return Estimate(float(run.shortfall.sel(steps=100, schedule="learned").max()))


def _accuracy(run: xr.Dataset) -> Estimate:
    images = int(run.attrs["held_out"])
    return Estimate.share(float(run.accuracy.min()) * images, images)


def _agreement(run: xr.Dataset) -> Estimate:
    images = int(run.attrs["held_out"])
    return Estimate.share(float(run.agreement.min()) * images, images)


def _rise(concept: str) -> Callable[[xr.Dataset], Estimate]:
    def statistic(run: xr.Dataset) -> Estimate:

        widths = []
        for signal in run.signal.values:
            mean = np.maximum.accumulate(run.between.sel(signal=signal, concept=concept).values)
            if not mean[0] < 0.1 < 0.9 < mean[-1]:
                return Estimate.unresolved("The classifier does not tell the two class means apart.")
            start, stop = (np.interp(level, mean, run.way.values) for level in (0.1, 0.9))
            widths.append(stop - start)
        return Estimate(float(max(widths)), float(run.way[1] - run.way[0]))

    return statistic


_BAR = "bar of this project, for single precision"
claims = (
    *(
        Claim(
            name=f"{term}-term",
            says=f"The {term} term of the full model is its definition by hand: largest relative difference",
            source=f"appendix G.2 and Kingma et al. (2021); {_BAR}",
            statistic=_apart(term),
            high=1e-4,
        )
        for term in ("diffusion", "prior", "reconstruction")
    ),
    Claim(
        name="gradient",
        says="The diffusion term's gradient along random directions of the weights, and by the schedule, is that of its"
        " definition by hand: largest difference over the gradient's norm",
        source=f"appendix G.2; {_BAR}",
        statistic=_gradient,
        high=1e-4,
    ),
    Claim(
        name="information",
        says="With the best prediction, the diffusion term is the information that noise takes away between time 0 and"
        " time 1: their ratio",
        source="normal law: I(x; z_0) - I(x; z_1) in closed form; 2 % is this project's bar",
        statistic=_information,
        low=0.98,
        high=1.02,
    ),
    Claim(
        name="sampler",
        says="Ancestral sampling has the covariance of the Markov chain it stands for: squared deviation over chance",
        source="normal law, whose chain is a linear map; 1 but for chance",
        statistic=_chain,
        low=0.8,
        high=1.2,
    ),
    Claim(
        name="mean",
        says="Ancestral sampling recovers the mean of a known normal law: mean squared deviation over its chance",
        source="normal law; 1 but for chance",
        statistic=_mean,
        low=0.5,
        high=1.5,
    ),
    Claim(
        name="covariance",
        says="Ancestral sampling recovers the covariance of a known normal law: relative error of a direction beyond"
        " chance, root of the mean square",
        source="normal law; 5 % is this project's bar",
        statistic=_covariance,
        high=0.05,
    ),
    Claim(
        name="hundred-steps",
        says="The paper's 100 sampling steps are enough where the schedule has learned the data noise: the largest part"
        " of a variance that is lost",
        source="appendix G.2: 'we use 100 steps for generation'; bar of this project, from another seed's exact law",
        statistic=_hundred,
        high=0.15,
    ),
    Claim(
        name="classifier",
        says="The classifier is right on true images it was not trained on: share, worst concept and signal",
        source="appendix G.3: '100 % accuracy on a held out test set', to one in a thousand",
        statistic=_accuracy,
        low=0.999,
    ),
    Claim(
        name="agreement",
        says="Classifier and direct estimator give true images the same class: share, worst concept and signal",
        source="both are meant to measure concept space; 99 % is this project's bar",
        statistic=_agreement,
        low=0.99,
    ),
    *(
        Claim(
            name=f"coordinate-{concept}",
            says=f"The classifier's probability is a coordinate of {concept}: on the way from one class mean to the"
            " other its mean takes this part of the way to rise from .1 to .9; a coordinate takes .8",
            source="appendix G.3 takes it for the representation in concept space; half of .8 is this project's bar",
            statistic=_rise(concept),
            low=0.4,
        )
        for concept in ("color", "size")
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """The bound beside its definition, the sampler's law, and both readings of concept space between class means."""
    return [bound_figure(run), law_figure(run), estimators_figure(run)]
