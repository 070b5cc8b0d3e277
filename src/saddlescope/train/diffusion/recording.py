"""What a diffusion model in training is asked for: images of every class, and where they lie in concept space."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64, UInt8
from torch import Tensor

from saddlescope._shared.reprs import ReprMixin
from saddlescope.train.diffusion.bound import VariationalDiffusion
from saddlescope.train.diffusion.circles import CLASSES, CONCEPTS, CircleProcess
from saddlescope.train.diffusion.classifier import ConceptClassifier
from saddlescope.train.diffusion.positions import concept_positions
from saddlescope.train.numerics import Precision, autocast

if TYPE_CHECKING:
    import xarray as xr

_AT_ONCE = 128  # images of a class drawn together: bounds memory


class Samples(NamedTuple):
    """Images of some classes that a model drew, and what was read off them."""

    images: UInt8[Tensor, "classes image 3 side side"]
    position: Float[Tensor, "classes image 2"]
    blank: Bool[Tensor, "classes image"]
    probability: Float[Tensor, "classes image 2"]


class Sampler:
    """Draws images and reads them, every time from the same noise.

    The noise is a function of the seed, the class, the number of images and an image's place among them. So two records
    differ by the weights alone, and the curve of a position over training is smooth without having been smoothed; what
    a finite number of images leaves uncertain is seen between seeds and between images, not between records.

    Args:
        process: whose concepts are read, and whose class means are the prompts.
        images: of each class.
        steps: of ancestral sampling.
        seed: of the noise.
        device: where it is drawn; another device draws other noise.
        precision: of the network.
        classifier: reads the concepts a second time; None leaves the probabilities NaN.
    """

    def __init__(
        self,
        process: CircleProcess,
        *,
        images: int,
        steps: int,
        seed: int,
        device: torch.device,
        precision: Precision,
        classifier: ConceptClassifier | None,
    ) -> None:
        self._process, self._images, self._steps, self._seed = process, images, steps, seed
        self._device, self._classifier = device, classifier
        self._precision: Precision = precision

    def draw(self, model: VariationalDiffusion, classes: tuple[int, ...]) -> Samples:
        """Images of these classes, asked for by the class means of the conditions."""
        prompts = torch.from_numpy(self._process.prompts(list(classes))).to(self._device)
        generators = [torch.Generator(self._device).manual_seed(stream(self._seed, index)) for index in classes]
        drawn = []
        for start in range(0, self._images, _AT_ONCE):
            count = min(_AT_ONCE, self._images - start)
            with autocast(self._device, self._precision):
                found = model.sample(prompts.repeat_interleave(count, 0), steps=self._steps, generator=generators)
            # What is not finite becomes black, which is blank. What is read is what is stored: bytes.
            pixels = (found.nan_to_num(nan=0.0).clamp(0, 1) * 255).round().to(torch.uint8).cpu()
            drawn.append(pixels.unflatten(0, (len(classes), count)))
        images = torch.cat(drawn, dim=1)
        position, blank = concept_positions(images.numpy(), self._process)
        probability = np.full(position.shape, math.nan)
        if self._classifier is not None:
            probability = self._classifier.probabilities(images.flatten(0, 1).numpy()).reshape(position.shape)
        return Samples(images, *(torch.from_numpy(part) for part in (position, blank, probability)))


def stream(*numbers: int) -> int:
    """The seed of one stream of random numbers, unrelated to that of any other numbers given."""
    return int(np.random.PCG64(numbers).random_raw()) >> 1


@dataclass(frozen=True, eq=False, repr=False)
class DiffusionHistory(ReprMixin):
    """What a training run recorded. Concepts are (color, size), classes those of `CLASSES`, four.

    Attributes:
        model: with averaged weights, ready to draw images.
        steps: optimiser steps made at each record.
        images: drawn at each record, class by class, with averaged weights; 0 is black, 255 white.
        position: of each image in concept space by the direct estimator, NaN where blank.
        blank: whether an image shows no circle.
        probability: of blue and of small by the classifier; NaN without one.
        unseen: the classes that were not trained on.
        raw_position: `position` of unseen classes for weights as they were, not averaged, from the same noise; NaN
            where blank.
        loss: the variational bound on each step's batch, before the step, in bits per dimension.
        diffusion, prior, reconstruction: the three terms of it.
        gamma: the ends of the learnt schedule of noise, averaged like the weights: gamma at times 0 and 1.
        milliseconds: that one step took, records and checkpoints aside: the median over the times between records. The
            only number here that is not the same when a run is repeated.
    """

    model: VariationalDiffusion
    steps: Int64[np.ndarray, " record"]
    images: UInt8[np.ndarray, "record 4 image 3 side side"]
    position: Float[np.ndarray, "record 4 image 2"]
    blank: Bool[np.ndarray, "record 4 image"]
    probability: Float[np.ndarray, "record 4 image 2"]
    unseen: tuple[int, ...]
    raw_position: Float[np.ndarray, "record unseen image 2"]
    loss: Float32[np.ndarray, " steps"]
    diffusion: Float32[np.ndarray, " steps"]
    prior: Float32[np.ndarray, " steps"]
    reconstruction: Float32[np.ndarray, " steps"]
    gamma: Float[np.ndarray, "record 2"]
    milliseconds: float

    def to_xarray(self) -> "xr.Dataset":
        """Everything but the model, labelled; ready to be stored."""
        import xarray as xr

        image = ("step", "class", "image")
        return xr.Dataset(
            {
                "images": ((*image, "channel", "row", "column"), self.images),
                "position": ((*image, "concept"), self.position),
                "blank": (image, self.blank),
                "probability": ((*image, "concept"), self.probability),
                "raw_position": (("step", "unseen", "image", "concept"), self.raw_position),
                "loss": ("batch", self.loss),
                "diffusion": ("batch", self.diffusion),
                "prior": ("batch", self.prior),
                "reconstruction": ("batch", self.reconstruction),
                "gamma": (("step", "end"), self.gamma),
            },
            coords={
                "step": self.steps,
                "class": list(CLASSES),
                "concept": list(CONCEPTS),
                "unseen": [CLASSES[index] for index in self.unseen],
                "channel": ["red", "green", "blue"],
                "batch": np.arange(len(self.loss)),
                "end": [0.0, 1.0],
            },
            attrs={"milliseconds_a_step": self.milliseconds},
        )
