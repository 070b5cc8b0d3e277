"""Classifier of colour and size: outputs, accuracy, and resumption to the same bits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from saddlescope._shared.errors import InputError
from saddlescope.ranks.state_files import read_state
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


class KilledError(Exception):
    pass


def kill_at(fraction):
    def report(done, note):
        if done >= fraction:
            raise KilledError(note)

    return report


def same_weights(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


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


def test_initial_weights_are_a_function_of_the_seed():
    sizes = UNetConfig(pixels=8, channels=(8, 16), blocks=1)
    before = torch.get_rng_state()
    assert same_weights(ConceptClassifier(sizes, seed=3), ConceptClassifier(sizes, seed=3))
    assert not same_weights(ConceptClassifier(sizes, seed=3), ConceptClassifier(sizes, seed=4))
    assert torch.equal(before, torch.get_rng_state())


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


def test_a_killed_run_goes_on_to_the_same_bits(fitted, tmp_path):
    file = tmp_path / "classifier.pt"
    for fraction in (0.2, 0.7):
        with pytest.raises(KilledError):
            fit_classifier(PROCESS, TINY, checkpoint=file, report=kill_at(fraction))
    state = read_state(file)
    assert state is not None
    assert 0 < state["step"] < TINY.steps
    again = fit_classifier(PROCESS, TINY, checkpoint=file)
    assert same_weights(again.classifier, fitted.classifier)
    np.testing.assert_array_equal(again.accuracy, fitted.accuracy)
    finished = fit_classifier(PROCESS, TINY, checkpoint=file, report=kill_at(0.0))  # makes no step
    assert same_weights(finished.classifier, fitted.classifier)
    np.testing.assert_array_equal(finished.accuracy, fitted.accuracy)


@pytest.mark.parametrize(
    ("process", "config", "part"),
    [
        (PROCESS, replace(TINY, batch=16), "configuration"),
        (replace(PROCESS, color_signal=0.6), TINY, "data"),
        (PROCESS, replace(TINY, seed=1), "configuration and initial weights"),
    ],
)
def test_checkpoints_of_other_runs_are_refused(process, config, part, tmp_path):
    file = tmp_path / "classifier.pt"
    with pytest.raises(KilledError):
        fit_classifier(PROCESS, TINY, checkpoint=file, report=kill_at(0.0))
    with pytest.raises(InputError, match=f"must belong to this run; got .* differs in {part}"):
        fit_classifier(process, config, checkpoint=file)


def test_a_learning_rate_that_diverges_is_named():
    with pytest.raises(InputError, match="learning_rate must be small enough for a finite loss; got 1e\\+20"):
        fit_classifier(PROCESS, replace(TINY, learning_rate=1e20))


def test_images_that_cannot_be_halved_are_refused():
    with pytest.raises(InputError, match="pixels must be a multiple of 2"):
        fit_classifier(CircleProcess(pixels=33), TINY)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named():
    with pytest.raises(InputError, match="device='cuda' was requested, but PyTorch found no GPU"):
        fit_classifier(PROCESS, TINY, device="cuda")
