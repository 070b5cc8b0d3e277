"""Images of one circle each, with two concepts, colour and size, whose signals are set separately (Figure 15).

    class    index = 2 color + size: 0 (red, big), 1 (red, small), 2 (blue, big), 3 (blue, small)
    color    0 red = (high, low, low), 1 blue = (low, low, high); high - low is the colour signal, their mean is 0.5
    size     0 big, 1 small: the diameter as a fraction of the image's side; their difference is the size signal
    prompt   (size, R, G, B), the condition of an image: its own diameter and colour, without blur and noise

The data of section 5 and appendix G.1, which names diameters and colours and refers to Park et al. (2024) for the rest;
the defaults are theirs: jitter, places, background, blur and noise. Differences from their public code: pixels have
their centres inside the image, half a pixel from its edge, not on it; the blur extends the circle beyond the edge of
the image, without a mirror image; and a jittered colour is clipped to [0, 1] before it is drawn, so that the prompt is
the colour shown (this matters only at colour signals above 0.8).
"""

import hashlib
import math
from dataclasses import asdict, dataclass
from typing import Annotated, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int, Int64, UInt64

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import in_line
from saddlescope.training.configuration import Bounds, Configuration

CONCEPTS = ("color", "size")
"""Names of the concepts, in the order of every array that has an axis of concepts."""
CLASSES = ("red, big", "red, small", "blue, big", "blue, small")
"""Names of the classes by index; see the module."""
UNSEEN = 3
"""Class of both new values, (blue, small), that a model of the other three must compose."""

_SCENE = 9  # random numbers per image besides noise: place, diameter, colour, background
_AT_ONCE = 256  # images drawn together: the working arrays stay small
_GRID = 2.0**-24  # weights of the blur are multiples of this, so sums of their products are exact
_Share = Annotated[float, Bounds(0, 1, open_low=True)]


class Circles(NamedTuple):
    """Images with their prompts.

    Attributes:
        images: numbers from 0 to 1, (n, 3, pixels, pixels).
        conditions: (size, R, G, B) of each image, (n, 4).
        classes: class of each image, (n,).
    """

    images: Float32[np.ndarray, "n 3 side side"]
    conditions: Float32[np.ndarray, "n 4"]
    classes: Int64[np.ndarray, " n"]

    def __repr__(self) -> str:
        return in_line("Circles", self._asdict().items())


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class CircleProcess(Configuration):
    """Random process of circle images. Lengths are fractions of the image's side unless stated otherwise.

    >>> process = CircleProcess(pixels=16, color_signal=0.7)
    >>> process.draw([0, 3], seed=0).images.shape
    (2, 3, 16, 16)
    >>> process.prompts([3])
    array([[0.3 , 0.15, 0.15, 0.85]], dtype=float32)
    """

    pixels: Annotated[int, Bounds(4, 1024)] = 32  # along a side
    color_signal: _Share = 0.4  # difference of red and blue in their channels R and B
    size_signal: _Share = 0.4  # difference of the diameters of big and small
    diameter: _Share = 0.5  # mean of the diameters of big and small
    color_jitter: float = 0.125  # every channel of an image's colour is uniform within +- this times color_signal
    size_jitter: float = 0.375  # an image's diameter is uniform within +- this times size_signal
    place: Annotated[float, Bounds(0, 0.5)] = (
        0.25  # the centre is uniform within +- this of the middle, along both sides
    )
    background: tuple[float, float] = (0.8, 1.0)  # range of every channel, uniform
    blur: float = 1.0  # standard deviation of the Gaussian that blurs the circle's edge, in pixels
    noise: Annotated[float, Bounds(0, 1)] = 1e-3  # standard deviation of normal noise on every pixel

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("color_jitter", "size_jitter"):
            if not 0 <= getattr(self, name) < 0.5:
                raise InputError(
                    f"{name} must be at least 0 and below 0.5, so that the two values of a concept do not overlap; got "
                    f"{getattr(self, name)!r}."
                )
        low, high = self.background
        if not 0 <= low <= high <= 1:
            raise InputError(f"background must be two numbers from 0 to 1, the lower first; got {self.background!r}.")
        Bounds(0, self.pixels / 4).check("blur", self.blur)
        smallest, largest = self.diameter_range
        if smallest * self.pixels < math.sqrt(2):
            raise InputError(
                f"The smallest circle must be at least {math.sqrt(2):.2f} pixels across, or it can fall between them; "
                f"got {smallest * self.pixels:.3g}. Choose a larger diameter or more pixels, or a lower size_signal or "
                "size_jitter."
            )
        if largest > 1:
            raise InputError(
                f"The largest circle must be at most as wide as the image, so that background remains; got "
                f"{largest:.3g} of its side. Choose a smaller diameter, or a lower size_signal or size_jitter."
            )

    @property
    def diameters(self) -> tuple[float, float]:
        """Class means of the diameter: big, small."""
        return self.diameter + self.size_signal / 2, self.diameter - self.size_signal / 2

    @property
    def diameter_range(self) -> tuple[float, float]:
        """Smallest and largest possible diameter."""
        big, small = self.diameters
        return small - self.size_jitter * self.size_signal, big + self.size_jitter * self.size_signal

    @property
    def colors(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """Class means of (R, G, B): red, blue."""
        high, low = 0.5 + self.color_signal / 2, 0.5 - self.color_signal / 2
        return (high, low, low), (low, low, high)

    def prompts(self, classes: "Int[np.ndarray, ' n'] | list[int]") -> Float32[np.ndarray, "n 4"]:
        """Return the class means of the conditions, to condition a model on.

        Args:
            classes: classes from 0 to 3.

        Raises:
            InputError: another class.
        """
        known = _known(classes)
        size = np.asarray(self.diameters)[known % 2, None]
        return np.concatenate([size, np.asarray(self.colors)[known // 2]], axis=1).astype(np.float32)

    def draw(self, classes: "Int[np.ndarray, ' n'] | list[int]", *, seed: int | tuple[int, ...]) -> Circles:
        """Draw one random image for each entry of `classes`.

        Args:
            classes: class of each image, from 0 to 3.
            seed: at least 0. An image depends only on it, on its own class and on its index in `classes`: the first
                images of a longer draw are those of a shorter one. The same seed gives the same images on every
                machine and NumPy version; the last bit of a pixel may differ, very rarely, by its noise.

        Raises:
            InputError: another class, or a seed below 0.
        """
        known = _known(classes)
        parts = seed if isinstance(seed, tuple) else (seed,)
        if not parts or min(parts) < 0:
            raise InputError(f"seed must be at least 0; got {seed!r}.")
        bits = np.random.PCG64(parts)
        noisy = -(-3 * self.pixels**2 // 2) if self.noise else 0  # words; two normal numbers come from each
        images = np.empty((len(known), 3, self.pixels, self.pixels), dtype=np.float32)
        conditions = np.empty((len(known), 4), dtype=np.float32)
        for start in range(0, len(known), _AT_ONCE):
            chosen = slice(start, start + _AT_ONCE)
            words = bits.random_raw(len(known[chosen]) * (_SCENE + noisy)).reshape(-1, _SCENE + noisy)
            images[chosen], conditions[chosen] = self._drawn(known[chosen], words)
        return Circles(images, conditions, known)

    def class_means(self, *, images: int, seed: int) -> Float64[np.ndarray, "class pixels"]:
        """Return the mean image of each class over random images, flattened.

        Args:
            images: number of images of each class, with the same places, backgrounds and jitter in all classes, so that
                differences of the means have little variance.
            seed: seed of the images, at least 0.

        Raises:
            InputError: fewer than one image, or a seed below 0.
        """
        Bounds(1).check("images", images)
        Bounds(0).check("seed", seed)
        means = np.zeros((len(CLASSES), 3 * self.pixels**2))
        for index, mean in enumerate(means):
            for part, start in enumerate(range(0, images, _AT_ONCE)):
                count = min(_AT_ONCE, images - start)
                drawn = self.draw(np.full(count, index), seed=(seed, part)).images.reshape(count, -1)
                mean += drawn.astype(np.float64).sum(axis=0) / images
        return means

    def _drawn(
        self, classes: Int64[np.ndarray, " n"], words: UInt64[np.ndarray, "n words"]
    ) -> tuple[Float64[np.ndarray, "n 3 side side"], Float64[np.ndarray, "n 4"]]:
        """Return images and conditions from random bits."""
        uniform = (words[:, :_SCENE] >> np.uint64(11)) * 2.0**-53
        around = 2 * uniform - 1
        centre = 0.5 + self.place * around[:, 0:2]
        size = np.asarray(self.diameters)[classes % 2] + self.size_jitter * self.size_signal * around[:, 2]
        color = np.asarray(self.colors)[classes // 2] + self.color_jitter * self.color_signal * around[:, 3:6]
        color = np.clip(color, 0.0, 1.0)
        low, high = self.background
        behind = low + (high - low) * uniform[:, 6:9]
        covered = self.covered(centre, size)[:, None]
        images = covered * color[:, :, None, None] + (1 - covered) * behind[:, :, None, None]
        if self.noise:
            images += self.noise * _normal(words[:, _SCENE:], images[0].size).reshape(images.shape)
        return np.clip(images, 0.0, 1.0), np.concatenate([size[:, None], color], axis=1)

    def covered(
        self, centre: Float[np.ndarray, "n 2"], size: Float[np.ndarray, " n"]
    ) -> Float64[np.ndarray, "n side side"]:
        """Return the fraction of every pixel that the circle covers, blurred.

        Args:
            centre: coordinates down and to the right from the upper left corner.
            size: diameters.
        """
        beyond = math.ceil(4 * self.blur)  # radius of the blur
        at = (np.arange(-beyond, self.pixels + beyond) + 0.5) / self.pixels
        square = (at - centre[:, :, None]) ** 2
        inside = square[:, 0, :, None] + square[:, 1, None, :] < (size[:, None, None] / 2) ** 2
        return inside.astype(np.float64) if not beyond else self._blurred(inside, beyond)

    def _blurred(self, inside: Bool[np.ndarray, "n wide wide"], beyond: int) -> Float64[np.ndarray, "n side side"]:
        """Apply the Gaussian blur along both sides."""
        weights = np.array([math.exp(-((k / self.blur) ** 2) / 2) for k in range(-beyond, beyond + 1)])
        # On the grid every sum below is exact in float64, so it is the same on every machine and in every order
        weights = np.round(weights / weights.sum() / _GRID) * _GRID
        weights[beyond] += 1 - weights.sum()
        band = np.zeros((self.pixels, self.pixels + 2 * beyond))
        for row in range(self.pixels):
            band[row, row : row + len(weights)] = weights
        return band @ inside.astype(np.float64) @ band.T

    def digest(self) -> str:
        """Return the SHA-256 of the process, by which a resumed run recognizes its data."""
        return hashlib.sha256(("circles 1 " + repr(sorted(asdict(self).items()))).encode()).hexdigest()


def _normal(words: UInt64[np.ndarray, "n words"], count: int) -> Float64[np.ndarray, "n count"]:
    """Return normal numbers of mean 0 and variance 1 by the transformation of Box and Muller: two from each word.

    From raw bits rather than Generator.normal, whose stream may change from one NumPy release to the next.
    """
    upper = ((words >> np.uint64(32)).astype(np.float64) + 0.5) * 2.0**-32
    lower = ((words & np.uint64(0xFFFFFFFF)).astype(np.float64) + 0.5) * 2.0**-32
    radius, angle = np.sqrt(-2 * np.log(upper)), 2 * np.pi * lower
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)[:, :count]


def _known(classes: "Int[np.ndarray, ' n'] | list[int]") -> Int64[np.ndarray, " n"]:
    """Return the classes as an array; raise InputError for an unknown one."""
    given = np.asarray(classes)
    if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer) or np.any((given < 0) | (given > UNSEEN)):
        raise InputError(f"classes must be whole numbers from 0 to 3 in one dimension; got {classes!r}.")
    return given.astype(np.int64)
