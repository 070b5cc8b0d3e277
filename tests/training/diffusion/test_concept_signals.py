"""Concept signals in pixels and the matching SIM task: exact without randomness, otherwise compared with references."""

import math
from dataclasses import replace

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.training.diffusion.circles import CircleProcess
from saddlescope.training.diffusion.signals import concept_geometry, pixel_signals

SMALL = CircleProcess(pixels=16, diameter=0.625, size_signal=0.35)
STILL = replace(SMALL, color_jitter=0.0, size_jitter=0.0, place=0.0, background=(0.9, 0.9), noise=0.0)


def covers(process: CircleProcess) -> np.ndarray:
    return process.covered(np.full((2, 2), 0.5), np.array(process.diameters))


@pytest.mark.parametrize("signal", [0.2, 0.7])
def test_without_chance_signals_are_exact(signal):
    process = replace(STILL, color_signal=signal)
    found = pixel_signals(process, images=2)
    big, small = covers(process)
    color = [signal * math.sqrt(2) * np.linalg.norm(cover) for cover in (big, small)]
    away = math.sqrt((0.4 - signal / 2) ** 2 + 2 * (0.4 + signal / 2) ** 2)  # colour from background
    size = [np.linalg.norm(big - small) * away] * 2
    np.testing.assert_allclose(found.means, [color, size], rtol=1e-5)
    np.testing.assert_allclose(found.images, found.means, rtol=1e-5)
    np.testing.assert_allclose(found.root_mean_square, found.means / math.sqrt(3 * 16 * 16), rtol=1e-12)


@pytest.mark.parametrize("signal", [0.2, 0.7])
def test_without_chance_the_geometry_is_exact(signal):
    process = replace(STILL, color_signal=signal)
    found = concept_geometry(process, images=4)
    big, small = covers(process)
    red, blue = np.array(process.colors)
    color = (blue - red)[:, None, None] * big
    size = (red - 0.9)[:, None, None] * (small - big)
    norms = np.array([np.linalg.norm(color), np.linalg.norm(size)])
    np.testing.assert_allclose(found.mu, norms, rtol=1e-5)
    assert found.overlap == pytest.approx(np.sum(color * size) / norms.prod(), abs=1e-5)
    assert found.overlap > 0.1  # a stronger red is farther from the background
    np.testing.assert_allclose(found.sigma, 0, atol=1e-5)
    np.testing.assert_allclose(found.jitter, 0, atol=1e-5)


def test_the_signal_of_colour_is_proportional_to_its_setting_and_that_of_size_follows():
    weak, strong = (pixel_signals(replace(SMALL, color_signal=signal), images=300) for signal in (0.2, 0.6))
    np.testing.assert_allclose(strong.means[0] / weak.means[0], 3, rtol=1e-3)
    grown = math.sqrt(0.1**2 + 2 * 0.7**2) / math.sqrt(0.3**2 + 2 * 0.5**2)
    np.testing.assert_allclose(strong.means[1] / weak.means[1], grown, rtol=5e-3)


def test_signals_between_means_are_smaller_than_between_images():
    found = pixel_signals(SMALL, images=400)
    assert np.all(found.means < 0.97 * found.images)
    assert found.means[0, 0] > 1.5 * found.means[0, 1]  # a big circle shows more colour
    assert found.means[1, 0] == pytest.approx(found.means[1, 1], rel=0.01)  # red and blue show size alike


def test_signals_agree_with_images_drawn_class_by_class():
    found = pixel_signals(SMALL, images=1000)
    means = [SMALL.draw(np.full(4000, index), seed=50 + index).images.mean(axis=0) for index in range(4)]
    color = [np.linalg.norm(means[2] - means[0]), np.linalg.norm(means[3] - means[1])]
    size = [np.linalg.norm(means[1] - means[0]), np.linalg.norm(means[3] - means[2])]
    np.testing.assert_allclose(found.means, [color, size], rtol=0.05)


def test_the_geometry_agrees_with_images_drawn_class_by_class():
    found = concept_geometry(SMALL, images=1000)
    images = [SMALL.draw(np.full(4000, index), seed=60 + index).images.reshape(4000, -1) for index in range(3)]
    directions = np.stack([images[2].mean(axis=0) - images[0].mean(axis=0), images[1].mean(axis=0) - images[0].mean(0)])
    mu = np.linalg.norm(directions, axis=1)
    units = directions / mu[:, None]
    spread = np.sqrt(np.mean([(each @ units.T).var(axis=0) for each in images], axis=0))
    np.testing.assert_allclose(found.mu, mu, rtol=0.05)
    np.testing.assert_allclose(found.sigma, spread, rtol=0.05)
    assert found.overlap == pytest.approx(units[0] @ units[1], abs=0.03)
    own = np.array([0.125 * math.sqrt(2 / 3) / 2, 0.375 / math.sqrt(3)])  # uniform in B - R and in the diameter
    np.testing.assert_allclose(found.jitter, found.mu * own, rtol=0.05)
    assert np.all(found.jitter < found.sigma)


def test_the_stronger_signal_changes_hands():
    """Check the premise of Figure 6 (a): the setting of colour alone determines which concept is stronger in pixels."""
    for process in (CircleProcess(), SMALL):
        weak, strong = (concept_geometry(replace(process, color_signal=each), images=300).mu for each in (0.2, 0.7))
        assert weak[0] < 0.75 * weak[1]
        assert strong[0] > 1.15 * strong[1]


def test_parts_of_a_draw_join_without_a_seam():
    """Draw 600 images in three parts; the sums over the parts equal those over all."""
    found = concept_geometry(SMALL, images=600)
    parts = [[SMALL.draw(np.full(n, c), seed=(0, k)).images for k, n in enumerate((256, 256, 88))] for c in range(3)]
    means = [np.concatenate(part).astype(np.float64).mean(axis=0) for part in parts]
    wanted = [np.linalg.norm(means[2] - means[0]), np.linalg.norm(means[1] - means[0])]
    np.testing.assert_allclose(found.mu, wanted, rtol=1e-9)


@pytest.mark.parametrize("measure", [pixel_signals, concept_geometry])
def test_too_few_images_are_refused(measure):
    with pytest.raises(InputError, match="images must be at least 2; got 1"):
        measure(SMALL, images=1)
    with pytest.raises(InputError, match="seed must be at least 0; got -1"):
        measure(SMALL, seed=-1)
