"""Concept learning in a conditional diffusion model of images: data, model, training and records.

Section 5 and appendix G of Yang et al. (2024). One file per topic: the circles and their signals, the positions of
images in concept space, the classifier, the U-Net, the variational bound and its sampler, and the training.
"""

from saddlescope.train.diffusion.circles import CLASSES, CONCEPTS, UNSEEN, CircleProcess, Circles
from saddlescope.train.diffusion.classifier import ClassifierConfig, ConceptClassifier, FittedClassifier, fit_classifier
from saddlescope.train.diffusion.history import DiffusionHistory
from saddlescope.train.diffusion.positions import Positions, concept_positions, true_positions
from saddlescope.train.diffusion.signals import ConceptGeometry, PixelSignals, concept_geometry, pixel_signals
from saddlescope.train.diffusion.training import DiffusionConfig, fit_diffusion
from saddlescope.train.diffusion.unet import UNet, UNetConfig
from saddlescope.train.diffusion.variational_diffusion import Bound, VariationalDiffusion

__all__ = [
    "CLASSES",
    "CONCEPTS",
    "UNSEEN",
    "Bound",
    "CircleProcess",
    "Circles",
    "ClassifierConfig",
    "ConceptClassifier",
    "ConceptGeometry",
    "DiffusionConfig",
    "DiffusionHistory",
    "FittedClassifier",
    "PixelSignals",
    "Positions",
    "UNet",
    "UNetConfig",
    "VariationalDiffusion",
    "concept_geometry",
    "concept_positions",
    "fit_classifier",
    "fit_diffusion",
    "pixel_signals",
    "true_positions",
]
