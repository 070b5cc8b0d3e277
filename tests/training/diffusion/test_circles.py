"""Circle images: every law of the process, against a slow renderer, exact values and moments."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.training.diffusion.circles import CircleProcess

STILL = CircleProcess(color_jitter=0.0, size_jitter=0.0, place=0.0, background=(0.9, 0.9), noise=0.0)
ALL = [0, 1, 2, 3]


def slow_cover(process: CircleProcess, centre: tuple[float, float], size: float) -> np.ndarray:
    """Render pixel by pixel on a canvas three images wide, blur by SciPy, then crop."""
    n = process.pixels
    canvas = np.zeros((3 * n, 3 * n))
    for i in range(3 * n):
        for j in range(3 * n):
            down, right = (i - n + 0.5) / n, (j - n + 0.5) / n
            canvas[i, j] = np.hypot(down - centre[0], right - centre[1]) < size / 2
    return gaussian_filter(canvas, process.blur, truncate=4.0)[n : 2 * n, n : 2 * n]


@pytest.mark.parametrize("blur", [0.0, 0.5, 1.0, 1.7])
def test_a_circle_covers_the_pixels_that_a_slow_renderer_says(blur):
    process = CircleProcess(pixels=20, blur=blur)
    places, sizes = np.array([[0.5, 0.5], [0.27, 0.61], [0.75, 0.25]]), np.array([0.7, 0.31, 0.8])
    for k, covered in enumerate(process.covered(places, sizes)):
        wanted = slow_cover(process, tuple(places[k]), sizes[k])
        np.testing.assert_allclose(covered, wanted, rtol=0, atol=1e-6)


def test_without_chance_images_are_colour_on_background():
    drawn = STILL.draw(ALL, seed=0)
    big, small = STILL.covered(np.full((2, 2), 0.5), np.array([0.7, 0.3]))
    for index, (cover, color) in enumerate(
        [(big, (0.7, 0.3, 0.3)), (small, (0.7, 0.3, 0.3)), (big, (0.3, 0.3, 0.7)), (small, (0.3, 0.3, 0.7))]
    ):
        for channel in range(3):
            wanted = cover * color[channel] + (1 - cover) * 0.9
            np.testing.assert_allclose(drawn.images[index, channel], wanted, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(drawn.conditions, STILL.prompts(ALL))


def test_prompts_are_diameter_and_colour_of_the_class():
    wanted = [[0.7, 0.7, 0.3, 0.3], [0.3, 0.7, 0.3, 0.3], [0.7, 0.3, 0.3, 0.7], [0.3, 0.3, 0.3, 0.7]]
    np.testing.assert_allclose(CircleProcess().prompts(ALL), wanted, rtol=1e-6)
    wanted = [[0.45, 0.4, 0.4, 0.6], [0.8, 0.6, 0.4, 0.4]]
    process = CircleProcess(color_signal=0.2, size_signal=0.35, diameter=0.625)
    np.testing.assert_allclose(process.prompts([3, 0]), wanted, rtol=1e-6)


def test_conditions_are_uniform_around_the_prompt_and_independent():
    process = CircleProcess(pixels=16, noise=0.0)
    for index in ALL:
        found = process.draw(np.full(4000, index), seed=index).conditions.astype(float)
        offset = (found - process.prompts([index])) / (0.4 * np.array([0.375, 0.125, 0.125, 0.125]))
        assert np.abs(offset).max() <= 1 + 1e-5
        np.testing.assert_allclose(offset.mean(axis=0), 0, atol=0.04)  # 4 deviations of the mean
        np.testing.assert_allclose(offset.var(axis=0), 1 / 3, atol=0.02)
        np.testing.assert_allclose(np.corrcoef(offset.T) - np.eye(4), 0, atol=0.07)


def test_places_and_backgrounds_are_uniform():
    process = CircleProcess(pixels=24, diameter=0.3, size_signal=0.1, noise=0.0, blur=0.0)
    images = process.draw(np.full(3000, 1), seed=3).images.astype(float)
    background = images.reshape(3000, 3, -1).max(axis=2)
    assert 0.8 <= background.min() < 0.801
    assert 0.999 < background.max() <= 1
    np.testing.assert_allclose(background.var(axis=0), 0.2**2 / 12, rtol=0.1)
    np.testing.assert_allclose(np.corrcoef(background.T) - np.eye(3), 0, atol=0.08)
    weight = background[:, 1, None, None] - images[:, 1]
    at = (np.arange(24) + 0.5) / 24
    down = (weight.sum(axis=2) @ at) / weight.sum(axis=(1, 2))
    right = (weight.sum(axis=1) @ at) / weight.sum(axis=(1, 2))
    for place in (down, right):
        assert abs(place.min() - 0.25) < 0.01
        assert abs(place.max() - 0.75) < 0.01
        assert place.mean() == pytest.approx(0.5, abs=0.011)
        assert place.var() == pytest.approx(0.5**2 / 12, rel=0.1)
    assert abs(np.corrcoef(down, right)[0, 1]) < 0.08


def test_noise_is_normal_and_independent():
    process = replace(STILL, background=(0.5, 0.5), noise=0.02, pixels=16, color_signal=0.001)
    noise = (process.draw(np.ones(500, int), seed=2).images.astype(float) - 0.5) / 0.02
    assert noise.mean() == pytest.approx(0, abs=0.01)
    assert noise.var() == pytest.approx(1, abs=0.01)
    assert np.mean(noise**3) == pytest.approx(0, abs=0.03)
    assert np.mean(noise**4) == pytest.approx(3, abs=0.06)
    flat = noise.reshape(500, -1)
    half = flat.shape[1] // 2
    for first, second in ((flat[:, :half], flat[:, half:]), (flat[:, 1:], flat[:, :-1]), (flat[1:], flat[:-1])):
        assert np.mean(first * second) == pytest.approx(0, abs=0.012)  # neighbours, and the two of one word
        assert np.mean((first**2 - 1) * (second**2 - 1)) == pytest.approx(0, abs=0.03)


def test_a_longer_draw_begins_with_a_shorter_one():
    process = CircleProcess(pixels=7, diameter=0.6, size_signal=0.3)  # an odd number of pixels
    classes = np.arange(600) % 4
    long = process.draw(classes, seed=5)
    short = process.draw(classes[:300], seed=5)
    for ours, theirs in zip(long, short, strict=True):
        np.testing.assert_array_equal(ours[:300], theirs)
    others = process.draw(3 - classes[:300], seed=5)  # other classes, the same places and jitter
    offset = [part.conditions - process.prompts(part.classes) for part in (short, others)]
    np.testing.assert_allclose(offset[0], offset[1], atol=1e-6)
    assert not np.array_equal(process.draw(classes[:300], seed=6).images, short.images)
    assert not np.array_equal(process.draw(classes[:300], seed=(5, 1)).images, short.images)


def test_images_are_the_same_on_every_machine():
    drawn = CircleProcess(noise=0.0).draw(ALL, seed=11)
    digest = hashlib.sha256(drawn.images.tobytes() + drawn.conditions.tobytes()).hexdigest()
    assert digest == "af785ab10bd22ff4f47e9f1f020711348f935c39b0427cf89cd5a24890f3585b"


@pytest.mark.parametrize("signal", [0.2, 0.7])
def test_without_chance_class_means_are_the_images(signal):
    process = replace(STILL, color_signal=signal)
    np.testing.assert_allclose(process.class_means(images=2, seed=0), process.draw(ALL, seed=0).images.reshape(4, -1))


def test_parts_of_a_class_mean_join_without_a_seam():
    """Draw 600 images in three parts, of the same places and backgrounds in all classes."""
    process = CircleProcess(pixels=8, diameter=0.625, size_signal=0.35)
    parts = [[process.draw(np.full(n, c), seed=(3, k)).images for k, n in enumerate((256, 256, 88))] for c in ALL]
    wanted = [np.concatenate(part).astype(np.float64).mean(axis=0).ravel() for part in parts]
    np.testing.assert_allclose(process.class_means(images=600, seed=3), wanted, rtol=1e-9)


def test_the_stronger_signal_changes_hands():
    """Check the premise of Figure 6 (a): the setting of colour alone determines which concept is stronger in pixels."""
    for process in (CircleProcess(), CircleProcess(pixels=16, diameter=0.625, size_signal=0.35)):
        for signal, ratio in ((0.2, (0, 0.75)), (0.7, (1.15, 2))):
            means = replace(process, color_signal=signal).class_means(images=300, seed=0)
            color, size = np.linalg.norm(means[[2, 1]] - means[0], axis=1)
            assert ratio[0] < color / size < ratio[1]


def test_jittered_colours_stop_at_black_and_white():
    drawn = CircleProcess(color_signal=1.0).draw(np.zeros(200, int), seed=0)
    colors = drawn.conditions[:, 1:]
    assert colors.min() == 0
    assert colors.max() == 1
    assert 0.3 < np.mean(colors[:, 0] == 1) < 0.7  # half of the jitter would carry red beyond 1


def test_digests_know_every_field():
    changed = {
        "pixels": 16, "color_signal": 0.5, "size_signal": 0.3, "diameter": 0.45, "color_jitter": 0.1,
        "size_jitter": 0.1, "place": 0.1, "background": (0.7, 1.0), "blur": 0.5, "noise": 0.0,
    }  # fmt: skip
    assert set(changed) == set(CircleProcess.__dataclass_fields__)
    digests = {replace(CircleProcess(), **{name: value}).digest() for name, value in changed.items()}
    assert len(digests | {CircleProcess().digest()}) == 11
    assert CircleProcess().digest() == CircleProcess().digest()


@pytest.mark.parametrize("classes", [[4], [-1], [[0, 1]], [0.5]])
def test_classes_that_are_none_are_refused(classes, types_unchecked):
    for use in (CircleProcess().prompts, lambda given: CircleProcess().draw(given, seed=0)):
        with types_unchecked(), pytest.raises(InputError, match="classes must be whole numbers from 0 to 3"):
            use(np.asarray(classes))


def test_seeds_below_zero_are_refused():
    refused("seed must be at least 0; got -1", CircleProcess().draw, ALL, seed=-1)


@pytest.mark.parametrize("images", [0, -3])
def test_means_of_no_images_are_refused(images):
    refused(f"images must be at least 1; got {images}", CircleProcess().class_means, images=images, seed=0)
