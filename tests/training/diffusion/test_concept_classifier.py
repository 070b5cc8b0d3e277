"""Classifier of colour and size: outputs and accuracy."""

import numpy as np
import pytest
import torch

from refusals import refused
from saddlescope.training.diffusion.circles import CircleProcess
from saddlescope.training.diffusion.classifier import ClassifierConfig, ConceptClassifier, fit_classifier
from saddlescope.training.diffusion.unet import UNetConfig

PROCESS = CircleProcess(pixels=8, diameter=0.6, size_signal=0.4, size_jitter=0.2, color_signal=0.7)
TINY = ClassifierConfig(
    channels=(8, 16), blocks=1, hidden=16, steps=120, batch=32, learning_rate=5e-3, held_out=600, threads=1
)


@pytest.fixture(scope="module")
def fitted():
    return fit_classifier(PROCESS, TINY)


def test_log_odds_come_from_the_largest_feature_over_all_pixels():
    model = ConceptClassifier(UNetConfig(pixels=8, channels=(8, 16), blocks=1), hidden=16, seed=1).eval()
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = model.backbone(images).numpy().reshape(3, 8, 64).max(axis=2)
        weights = {name: part.numpy() for name, part in model.head.state_dict().items()}
        hidden = torch.nn.functional.gelu(torch.from_numpy(features @ weights["0.weight"].T + weights["0.bias"]))
        wanted = hidden.numpy() @ weights["2.weight"].T + weights["2.bias"]
        np.testing.assert_allclose(model(images).numpy(), wanted, atol=1e-5)
        np.testing.assert_allclose(model.probabilities(images.numpy()), 1 / (1 + np.exp(-wanted)), atol=1e-6)


def test_it_learns_both_concepts(fitted):
    assert np.all(fitted.accuracy >= 0.98)
    drawn = PROCESS.draw(np.arange(400) % 4, seed=(7, 7, 7))
    found = fitted.classifier.probabilities(drawn.images)
    assert np.mean((found[:, 0] > 0.5) == (drawn.classes >= 2)) >= 0.98  # blue
    assert np.mean((found[:, 1] > 0.5) == (drawn.classes % 2 == 1)) >= 0.98  # small
    assert found.min() >= 0
    assert found.max() <= 1


def test_accuracy_is_of_images_held_out(fitted):
    classes = np.arange(600) % 4
    images = PROCESS.draw(classes, seed=(0, 0, 2)).images
    right = (fitted.classifier.probabilities(images) > 0.5) == np.stack([classes >= 2, classes % 2 == 1], axis=1)
    np.testing.assert_array_equal(fitted.accuracy, right.mean(axis=0))


def test_bytes_and_few_images_are_classified_alike(fitted):
    images = PROCESS.draw(np.arange(300) % 4, seed=1).images
    whole = fitted.classifier.probabilities(images)
    np.testing.assert_allclose(fitted.classifier.probabilities(images[290:]), whole[290:], atol=1e-5)
    found = fitted.classifier.probabilities(np.round(images * 255).astype(np.uint8))
    np.testing.assert_allclose(found, whole, atol=0.1)
    assert fitted.classifier.probabilities(images[:0]).shape == (0, 2)


def test_images_that_cannot_be_halved_are_refused():
    refused("pixels must be a multiple of 2", fit_classifier, CircleProcess(pixels=33), TINY)
