"""Concept learning in a conditional diffusion model of images: the data, the model, and how it is trained and read.

Section 5 and appendix G of Yang et al. (2024). One file a matter: the circles and their signals, the positions of
images among the concepts, the classifier, the U-Net, the variational bound and its sampler, and the training.
"""

from saddlescope.train.diffusion.bound import Bound, VariationalDiffusion
from saddlescope.train.diffusion.circles import CLASSES, CONCEPTS, UNSEEN, CircleProcess, Circles
from saddlescope.train.diffusion.classifier import ClassifierConfig, ConceptClassifier, FittedClassifier, fit_classifier
from saddlescope.train.diffusion.fitting import DiffusionConfig, fit_diffusion
from saddlescope.train.diffusion.positions import Positions, concept_positions, true_positions
from saddlescope.train.diffusion.recording import DiffusionHistory
from saddlescope.train.diffusion.signals import ConceptGeometry, PixelSignals, concept_geometry, pixel_signals
from saddlescope.train.diffusion.unet import UNet, UNetConfig

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
