"""Concept learning in a conditional diffusion model of images: data, model, training and records.

Section 5 and appendix G of Yang et al. (2024). One file per topic: the circles, their positions in concept space,
the classifier, the U-Net, the variational bound and its sampler, and the training.
"""

from saddlescope.training.diffusion.circles import CLASSES, CONCEPTS, UNSEEN, CircleProcess, Circles
from saddlescope.training.diffusion.classifier import (
    ClassifierConfig,
    ConceptClassifier,
    FittedClassifier,
    fit_classifier,
)
from saddlescope.training.diffusion.positions import Positions, concept_positions
from saddlescope.training.diffusion.training import DiffusionConfig, FittedDiffusion, fit_diffusion
from saddlescope.training.diffusion.unet import UNet, UNetConfig
from saddlescope.training.diffusion.variational_diffusion import Bound, VariationalDiffusion

__all__ = [
    "CLASSES",
    "CONCEPTS",
    "UNSEEN",
    "Bound",
    "CircleProcess",
    "Circles",
    "ClassifierConfig",
    "ConceptClassifier",
    "DiffusionConfig",
    "FittedClassifier",
    "FittedDiffusion",
    "Positions",
    "UNet",
    "UNetConfig",
    "VariationalDiffusion",
    "concept_positions",
    "fit_classifier",
    "fit_diffusion",
]
