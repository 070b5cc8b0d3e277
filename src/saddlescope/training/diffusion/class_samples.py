"""Images of each class that a diffusion model draws at a record, and their positions in concept space."""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from saddlescope.training.diffusion.circles import CircleProcess
from saddlescope.training.diffusion.classifier import ConceptClassifier
from saddlescope.training.diffusion.positions import concept_positions
from saddlescope.training.diffusion.variational_diffusion import VariationalDiffusion
from saddlescope.training.torch_settings import Precision, autocast

_AT_ONCE = 128  # images of a class drawn together: bounds memory


class Samples(NamedTuple):
    """Images of some classes drawn from a model, and their concepts."""

    images: UInt8[Tensor, "classes image 3 side side"]
    position: Float[Tensor, "classes image 2"]
    blank: Bool[Tensor, "classes image"]
    probability: Float[Tensor, "classes image 2"]


class ClassSampler:
    """Sampler of images of each class and their concepts, always from the same noise.

    The noise is a function of the seed, the class, the number of images and an image's index. So two records differ by
    the weights alone, and the curve of a position over training is smooth without smoothing. The uncertainty due to a
    finite number of images shows between seeds and between images, not between records.

    Args:
        process: process of the images; its class means are the prompts.
        images: number of images of each class.
        steps: steps of ancestral sampling.
        seed: seed of the noise.
        device: device that draws the noise; another device draws other noise.
        precision: of the network.
        classifier: second estimator of the concepts; None leaves the probabilities NaN.
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
        """Draw images of these classes, conditioned on the class means of the conditions."""
        prompts = torch.from_numpy(self._process.prompts(list(classes))).to(self._device)
        generators = [torch.Generator(self._device).manual_seed(stream_seed(self._seed, index)) for index in classes]
        drawn = []
        for start in range(0, self._images, _AT_ONCE):
            count = min(_AT_ONCE, self._images - start)
            with autocast(self._device, self._precision):
                found = model.sample(prompts.repeat_interleave(count, 0), steps=self._steps, generator=generators)
            # Numbers that are not finite become black, which is blank. Concepts are read off the stored bytes.
            pixels = (found.nan_to_num(nan=0.0).clamp(0, 1) * 255).round().to(torch.uint8).cpu()
            drawn.append(pixels.unflatten(0, (len(classes), count)))
        images = torch.cat(drawn, dim=1)
        position, blank = concept_positions(images.numpy(), self._process)
        probability = np.full(position.shape, math.nan)
        if self._classifier is not None:
            probability = self._classifier.probabilities(images.flatten(0, 1).numpy()).reshape(position.shape)
        return Samples(images, *(torch.from_numpy(part) for part in (position, blank, probability)))


def stream_seed(*numbers: int) -> int:
    """Return the seed of a stream of random numbers, unrelated to the seeds of other arguments."""
    return int(np.random.PCG64(numbers).random_raw()) >> 1
