"""Positions of images in concept space, read off their pixels: the direct estimator, which needs no classifier.

    position    (color, size): 0 at the class mean of red and of big, 1 at that of blue and of small; linear between
                and beyond
    depth       of a pixel: distance of its green channel below the background's, as a fraction of the distance of
                the circle's, which is the same for red and blue
    weight      of a pixel: 0 below a depth of 1/4, 1 above 3/4, linear between
    blank       no visible circle, or no background around it

The size is the diameter of a disk of the sum of all weights, the colour is B - R averaged with weights to the power 4.
Both are calibrated: an affine map takes their means over true images without jitter to 0 and 1. Weights that saturate
make the size nearly independent of the colour's jitter, and neither noise nor a faint pattern in the background counts.
It cannot distinguish a circle from other dark shapes: an image of strong noise alone has a position too.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float64, UInt8

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import in_line
from saddlescope.training.diffusion.circles import CircleProcess

_FAINT, _FULL = 0.25, 0.75  # depths at which the weight of a pixel is 0 and 1
_CORE = 4  # power of the weights in the colour's mean: the edge, where background shows through, has little weight
_LEFT = 0.05  # least fraction of pixels that are background
_SMALLEST = 1 / 3  # of the smallest diameter of the process: smaller circles count as none
_CALIBRATION = 256  # true images per class, without jitter
_CALIBRATION_SEED = (0, 0, 3)  # the third number separates these images from training images


class Positions(NamedTuple):
    """Positions of images in concept space.

    Attributes:
        position: (color, size), NaN where blank, (..., 2).
        blank: True for images without a position, (...).
    """

    position: Float64[np.ndarray, "... 2"]
    blank: Bool[np.ndarray, "..."]

    def __repr__(self) -> str:
        return in_line("Positions", self._asdict().items())


@validate_arguments
def concept_positions(
    images: Float[np.ndarray, "... 3 side side"] | UInt8[np.ndarray, "... 3 side side"], process: CircleProcess
) -> Positions:
    """Estimate colour and size of images.

    On true images the error is about 0.03 per concept (root mean square, defaults of the process): by the jitter of the
    green channel, by circles that extend beyond the image, and by the grid of pixels.

    Args:
        images: numbers from 0 to 1, or bytes from 0 to 255. Values outside are not clipped; an image with a number
            that is not finite is blank.
        process: process of the images.

    Raises:
        InputError: images of another shape, or a process whose background is not lighter than its circles.
    """
    if process.background[0] <= process.colors[0][1] + process.color_jitter * process.color_signal:
        raise InputError(
            f"background must be lighter than the green of every circle; got {process.background!r} with a "
            f"color_signal of {process.color_signal!r}."
        )
    expected = (3, process.pixels, process.pixels)
    if images.shape[-3:] != expected:
        raise InputError(f"images must have shape (..., {', '.join(map(str, expected))}); got {images.shape!r}.")
    shape = images.shape[:-3]
    raw, blank = _raw(images.reshape(math.prod(shape), *expected), process)
    origin, unit = _calibrated(process)
    return Positions(((raw - origin) / unit).reshape(*shape, 2), blank.reshape(shape))


@lru_cache(maxsize=32)
def _calibrated(process: CircleProcess) -> tuple[Float64[np.ndarray, "2"], Float64[np.ndarray, "2"]]:
    """Return raw (color, size) of true images at the class means: at position 0, and from there to 1."""
    classes = np.arange(4 * _CALIBRATION) % 4
    means = replace(process, color_jitter=0.0, size_jitter=0.0)
    raw, _ = _raw(means.draw(classes, seed=_CALIBRATION_SEED).images, process)
    values = np.stack([classes // 2, classes % 2], axis=1)
    origin = np.array([raw[values[:, k] == 0, k].mean() for k in range(2)])
    return origin, np.array([raw[values[:, k] == 1, k].mean() for k in range(2)]) - origin


def _raw(
    images: Float[np.ndarray, "n 3 side side"] | UInt8[np.ndarray, "n 3 side side"], process: CircleProcess
) -> tuple[Float64[np.ndarray, "n 2"], Bool[np.ndarray, " n"]]:
    """Return B - R of the circle and its diameter in pixels, NaN where blank, and the mask of blank images."""
    white = 255.0 if images.dtype == np.uint8 else 1.0
    pixels = images.reshape(len(images), 3, process.pixels**2).astype(np.float64) / white
    inside = process.colors[0][1]  # green, of red and of blue
    behind = pixels[:, 1] > (inside + process.background[0]) / 2
    blank = ~(np.isfinite(pixels).all(axis=(1, 2)) & (behind.mean(axis=1) >= _LEFT))
    raw = np.full((len(images), 2), np.nan)
    if blank.all():
        return raw, blank
    green, tint = pixels[~blank, 1], pixels[~blank, 2] - pixels[~blank, 0]
    background = _median(green, behind[~blank])[:, None]
    depth = (background - green) / (background - inside)
    weight = np.clip((depth - _FAINT) / (_FULL - _FAINT), 0.0, 1.0)
    diameter = 2 * np.sqrt(weight.sum(axis=1) / np.pi)
    core = weight**_CORE
    color = (core * tint).sum(axis=1) / np.maximum(core.sum(axis=1), np.finfo(float).tiny)
    seen = diameter >= _SMALLEST * process.diameter_range[0] * process.pixels
    raw[~blank] = np.where(seen[:, None], np.stack([color, diameter], axis=1), np.nan)
    blank[~blank] = ~seen
    return raw, blank


def _median(values: Float64[np.ndarray, "n pixels"], chosen: Bool[np.ndarray, "n pixels"]) -> Float64[np.ndarray, " n"]:
    """Return the (lower) median over the chosen pixels, at least one per row."""
    ordered = np.sort(np.where(chosen, values, np.inf), axis=1)
    middle = (chosen.sum(axis=1) - 1) // 2
    return ordered[np.arange(len(values)), middle]
