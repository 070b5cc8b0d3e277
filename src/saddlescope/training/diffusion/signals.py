"""Concept signals of circle images, measured in pixels, and the (mu, sigma) of the SIM task that matches them.

Yang et al. (2024) use two definitions of the signal of a concept; both are measured:

    between class means    |E x' - E x|, "the difference of class mean pixel values" (section 5, appendix G.1)
    between images         sqrt E |x' - x|^2 of images that differ only in this concept's class, with the same place,
                           background and jitter: the sensitivity of the process (section 1, after Park et al.)

The first is smaller, since random places smear the mean of a class. |.| is the L2 norm over all pixels and channels.

With m the mean over sizes and places of the fraction of a pixel that a circle covers, the means differ by
(blue - red) m in colour, and by (m_big - m_small)(color - background) in size. So the colour's signal is proportional
to `color_signal` and larger for big circles. The size's signal is the same for red and blue, and it also grows with
`color_signal`, since a stronger colour is farther from the background: the two signals are not independent in pixels.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import in_line
from saddlescope.training.diffusion.circles import CLASSES, CONCEPTS, UNSEEN, CircleProcess
from saddlescope.training.diffusion.positions import true_positions

_AT_ONCE = 256  # images of each class in memory together


class PixelSignals(NamedTuple):
    """L2 norms in pixels by concept and by the other concept's value: color at (big, small), size at (red, blue).

    Attributes:
        means: between class means.
        images: between images that differ only in the concept's class, root of the mean square.
        pixels: number of values of an image, 3 x pixels x pixels.
    """

    means: Float64[np.ndarray, "concept 2"]
    images: Float64[np.ndarray, "concept 2"]
    pixels: int

    @property
    def root_mean_square(self) -> Float64[np.ndarray, "concept 2"]:
        """`means` for a single pixel and channel: divided by the root of their number."""
        return self.means / math.sqrt(self.pixels)

    def __repr__(self) -> str:
        return in_line("PixelSignals", self._asdict().items())


class ConceptGeometry(NamedTuple):
    """Trained classes (red, big), (red, small) and (blue, big) as three clusters of a SIM task in pixel space.

    The first is the origin; two directions, one per concept, lead to the means of (blue, big) and (red, small).

    Attributes:
        mu: distance from the origin along each direction.
        sigma: standard deviation within a class along each direction, root of the mean variance of the three classes.
            All variation counts: place and background as well as the concept itself.
        jitter: standard deviation of the concept's own value within a class, in the units of mu: the part of sigma
            without place and background if images were linear in the concept.
        overlap: cosine of the angle between the two directions; the SIM task has 0.
    """

    mu: Float64[np.ndarray, " concept"]
    sigma: Float64[np.ndarray, " concept"]
    jitter: Float64[np.ndarray, " concept"]
    overlap: float

    def __repr__(self) -> str:
        return in_line("ConceptGeometry", self._asdict().items())


@validate_arguments
def pixel_signals(process: CircleProcess, *, images: int = 2048, seed: int = 0) -> PixelSignals:
    """Measure both signals of both concepts on images of all four classes.

    Args:
        process: process of the images.
        images: number of images of each class, with the same places, backgrounds and jitter in all classes, so that
            their differences have little variance.
        seed: seed of the images.

    Raises:
        InputError: fewer than 2 images, or a seed below 0.
    """
    means, squares = np.zeros((4, 3 * process.pixels**2)), np.zeros((2, 2))
    for drawn, _ in _by_class(process, images, seed):
        means += drawn.sum(axis=1) / images
        for concept, other in np.ndindex(2, 2):
            without, with_ = _pair(concept, other)
            squares[concept, other] += np.sum((drawn[with_] - drawn[without]) ** 2) / images
    apart = [[np.linalg.norm(np.subtract(*means[list(_pair(k, other))])) for other in range(2)] for k in range(2)]
    return PixelSignals(np.array(apart), np.sqrt(squares), means.shape[1])


@validate_arguments
def concept_geometry(process: CircleProcess, *, images: int = 2048, seed: int = 0) -> ConceptGeometry:
    """Measure (mu, sigma) of the matching SIM task on images of the three trained classes.

    Args:
        process: process of the images.
        images: number of images of each class; see `pixel_signals`.
        seed: seed of the images.

    Raises:
        InputError: fewer than 2 images, or a seed below 0.
    """
    means = np.zeros((UNSEEN, 3 * process.pixels**2))
    for drawn, _ in _by_class(process, images, seed, classes=UNSEEN):
        means += drawn.sum(axis=1) / images
    apart = means[[_pair(concept, 0)[1] for concept in range(2)]] - means[0]
    mu = np.linalg.norm(apart, axis=1)
    directions = apart / mu[:, None]
    along, values = [], []
    for drawn, conditions in _by_class(process, images, seed, classes=UNSEEN):  # drawn again rather than stored
        along.append((drawn - means[:, None]) @ directions.T)
        values.append(true_positions(conditions, process))
    spread = np.concatenate(along, axis=1).var(axis=1)
    own = np.concatenate(values, axis=1).std(axis=1)
    return ConceptGeometry(
        mu, np.sqrt(spread.mean(axis=0)), mu * own.mean(axis=0), float(directions[0] @ directions[1])
    )


def _pair(concept: int, other: int) -> tuple[int, int]:
    """Return the classes without and with the new value of a concept, the other concept at value `other`."""
    return (other, 2 + other) if concept == CONCEPTS.index("color") else (2 * other, 2 * other + 1)


def _by_class(
    process: CircleProcess, images: int, seed: int, classes: int = len(CLASSES)
) -> Iterator[tuple[Float64[np.ndarray, "class n pixels"], Float64[np.ndarray, "class n 4"]]]:
    """Yield images and conditions of the first classes, a part at a time, with the same scenes in every class."""
    if images < 2:
        raise InputError(f"images must be at least 2; got {images!r}.")
    if seed < 0:
        raise InputError(f"seed must be at least 0; got {seed!r}.")
    for part, start in enumerate(range(0, images, _AT_ONCE)):
        count = min(_AT_ONCE, images - start)
        drawn = [process.draw(np.full(count, each), seed=(seed, part)) for each in range(classes)]
        pixels = np.stack([each.images for each in drawn]).reshape(classes, count, -1)
        yield pixels.astype(np.float64), np.stack([each.conditions for each in drawn]).astype(np.float64)
