"""Records of the training of a diffusion model."""

from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Float32, Int64, UInt8

from saddlescope._shared.reprs import ReprMixin
from saddlescope.training.diffusion.circles import CLASSES, CONCEPTS
from saddlescope.training.diffusion.variational_diffusion import VariationalDiffusion


@dataclass(frozen=True, eq=False, repr=False)
class DiffusionHistory(ReprMixin):
    """Records of a training run. Concepts are (color, size); classes are the four of `CLASSES`.

    Attributes:
        model: model with averaged weights, ready to draw images.
        steps: optimiser steps made at each record.
        images: images drawn at each record, class by class, with averaged weights; 0 is black, 255 white.
        position: position of each image in concept space by the direct estimator, NaN where blank.
        blank: True for an image without a circle.
        probability: probability of blue and of small by the classifier; NaN without one.
        unseen: classes that are not in the training set.
        raw_position: `position` of unseen classes for the weights without averaging, from the same noise; NaN where
            blank.
        loss: the variational bound on each step's batch, before the step, in bits per dimension.
        diffusion, prior, reconstruction: the three terms of `loss`.
        gamma: gamma of the learned noise schedule at times 0 and 1, averaged like the weights.
        milliseconds: duration of one step without records and checkpoints, median over the times between records. The
            only number that changes when a run is repeated.
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

    def to_xarray(self) -> xr.Dataset:
        """Return everything but the model as a labelled data set."""
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
