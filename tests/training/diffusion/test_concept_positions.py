"""Direct estimator of colour and size: calibrated, accurate on true images, blank without a circle."""

from dataclasses import replace

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.training.diffusion.circles import CircleProcess
from saddlescope.training.diffusion.positions import concept_positions

ALL = [0, 1, 2, 3]
PROCESSES = {
    "default": CircleProcess(),
    "weak colour": CircleProcess(color_signal=0.2),
    "strong colour": CircleProcess(color_signal=1.0),
    "few pixels": CircleProcess(pixels=16, diameter=0.625, size_signal=0.35, color_signal=0.7),
    "weak size": CircleProcess(size_signal=0.2),
}


def drawn_by_hand(process: CircleProcess, size: float, color: tuple[float, ...], background: float = 0.9) -> np.ndarray:
    """Return a circle in the middle."""
    cover = process.covered(np.full((1, 2), 0.5), np.array([size]))
    return cover * np.array(color)[:, None, None] + (1 - cover) * background


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
def test_class_means_lie_at_the_corners(process):
    means = replace(process, color_jitter=0.0, size_jitter=0.0)
    for index in ALL:
        found = concept_positions(means.draw(np.full(256, index), seed=4).images, process)
        assert not found.blank.any()
        np.testing.assert_allclose(found.position.mean(axis=0), [index // 2, index % 2], atol=0.035)


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
def test_true_images_lie_where_they_are(process):
    drawn = process.draw(np.arange(1000) % 4, seed=9)
    found = concept_positions(drawn.images, process)
    size, red, _, blue = drawn.conditions.astype(float).T
    true = np.stack(
        [((blue - red) / process.color_signal + 1) / 2, (process.diameters[0] - size) / process.size_signal], axis=1
    )
    assert not found.blank.any()
    error = found.position - true
    assert np.all(np.sqrt(np.mean(error**2, axis=0)) < [0.05, 0.09])
    assert np.all(np.abs(error.mean(axis=0)) < 0.025)
    apart = true - np.stack([drawn.classes // 2, drawn.classes % 2], axis=1)  # within classes
    slopes = np.linalg.lstsq(apart, found.position - true + apart, rcond=None)[0]
    np.testing.assert_allclose(slopes, np.eye(2), atol=0.12)


def test_positions_are_linear_in_between_and_beyond():
    process = CircleProcess()
    (red, blue), (big, small) = np.array(process.colors), process.diameters
    for color in (-0.25, 0.0, 0.5, 1.0, 1.25):
        for size in (-0.25, 0.0, 0.5, 1.0, 1.25):
            image = drawn_by_hand(process, big + size * (small - big), tuple(red + color * (blue - red)))
            assert concept_positions(image, process).position == pytest.approx([color, size], abs=0.08)


def test_blank_images_have_no_position():
    process = CircleProcess()
    side = process.pixels
    plain = [np.full((3, side, side), value) for value in (0.0, 0.3, 0.9, 1.0, np.nan, np.inf)]
    faint = drawn_by_hand(process, 0.5, (0.78, 0.78, 0.78))  # a fifth of the depth of a circle
    speck = drawn_by_hand(process, 0.04, (0.7, 0.3, 0.3))
    hole = drawn_by_hand(process, 0.5, (0.7, 0.3, 0.3))
    hole[0, 3, 3] = np.nan
    whole = drawn_by_hand(process, 0.5, (0.7, 0.3, 0.3))
    found = concept_positions(np.stack([*plain, faint, speck, hole, whole]), process)
    np.testing.assert_array_equal(found.blank, [True] * 9 + [False])
    np.testing.assert_array_equal(np.isnan(found.position), np.repeat(found.blank[:, None], 2, axis=1))


def test_noise_and_a_faint_pattern_change_little():
    process = CircleProcess()
    drawn = process.draw(np.arange(400) % 4, seed=1)
    clean = concept_positions(drawn.images, process).position
    rng = np.random.default_rng(0)
    waves = 0.05 * np.sin(np.arange(32) / 3)[:, None] * np.cos(np.arange(32) / 5)
    for worse in (0.03 * rng.standard_normal(drawn.images.shape), waves):
        change = concept_positions(drawn.images + worse, process).position - clean
        assert np.all(np.abs(change.mean(axis=0)) < 0.03)
        assert np.all(change.std(axis=0) < 0.08)


def test_bytes_are_read_as_well():
    process = CircleProcess()
    images = process.draw(np.arange(40) % 4, seed=2).images
    found = concept_positions(np.round(images * 255).astype(np.uint8), process).position
    np.testing.assert_allclose(found, concept_positions(images, process).position, atol=0.01)


def test_leading_axes_are_kept():
    process = CircleProcess(pixels=16, diameter=0.625, size_signal=0.35)
    images = process.draw(np.arange(12) % 4, seed=3).images
    flat, found = concept_positions(images, process), concept_positions(images.reshape(3, 4, 3, 16, 16), process)
    np.testing.assert_array_equal(found.position, flat.position.reshape(3, 4, 2))
    assert found.blank.shape == (3, 4)
    one = concept_positions(images[5], process)
    np.testing.assert_array_equal(one.position, flat.position[5])
    assert concept_positions(images[:0], process).position.shape == (0, 2)


def test_images_of_another_process_are_refused():
    images = CircleProcess(pixels=16, diameter=0.625, size_signal=0.35).draw(ALL, seed=0).images
    with pytest.raises(InputError, match=r"images must have shape \(..., 3, 32, 32\); got \(4, 3, 16, 16\)"):
        concept_positions(images, CircleProcess())


def test_a_background_as_dark_as_circles_is_refused():
    process = CircleProcess(background=(0.3, 1.0))
    with pytest.raises(InputError, match="background must be lighter than the green of every circle"):
        concept_positions(process.draw(ALL, seed=0).images, process)
