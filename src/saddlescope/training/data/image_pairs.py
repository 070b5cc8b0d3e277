"""Pairs of images, side by side: 100 classes from data of ten."""

import numpy as np

from saddlescope.training.data.labelled_images import ImageData, assemble

Labelled = tuple[np.ndarray, np.ndarray]
"""Images and their labels."""


def pair_images(
    name: str, train: Labelled, test: Labelled, *, each: tuple[int, int], stretch: bool, white: int = 255
) -> ImageData:
    """Return pairs of images of ten classes: class 10 a + b has one of class a on the left, one of b on the right.

    Training pairs contain only training images, so no image of a test pair is in the training set. The pairs are the
    same on every machine and NumPy version.

    Args:
        name: of the new data set.
        train: images (n, channels, height, width) of bytes, the width even, and labels from 0 to 9.
        test: likewise.
        each: number of pairs of each of the 100 classes, for training and for testing.
        stretch: keep the images square by drawing each row twice; False: by averaging neighbouring columns.
        white: the largest pixel value of the format.
    """
    pairs = (_pair(*part, count, stretch) for part, count in zip((train, test), each, strict=True))
    return assemble(name, *pairs, classes=100, white=white)


def _pair(images: np.ndarray, labels: np.ndarray, each: int, stretch: bool) -> Labelled:
    classes = np.repeat(np.arange(100), each)
    # Raw bits rather than Generator.integers, whose stream may change from one NumPy release to the next.
    bits = np.random.PCG64(0).random_raw(2 * len(classes)).reshape(2, -1)
    of_class = [np.flatnonzero(labels == label) for label in range(10)]
    left, right = (
        np.array([of_class[d][int(draw % len(of_class[d]))] for d, draw in zip(shown, bits[side], strict=True)])
        for side, shown in enumerate((classes // 10, classes % 10))
    )
    if stretch:
        return np.concatenate([images[left], images[right]], axis=-1).repeat(2, axis=-2), classes
    sums = images[..., ::2].astype(np.uint16) + images[..., 1::2]
    narrow = ((sums + 1) // 2).astype(np.uint8)
    return np.concatenate([narrow[left], narrow[right]], axis=-1), classes
