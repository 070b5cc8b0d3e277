"""Digits that come with scikit-learn, single (10 classes) and in pairs (100 classes)."""

import numpy as np

from saddlescope.train.data.labelled_images import ImageData, assemble

_TRAIN = 1500  # of the 1,797 images, as scikit-learn orders them
_PAIRS = {"train": 60, "test": 10}  # pairs of each of the 100 classes


def read_digits() -> ImageData:
    """Read 1,500 + 297 images of 1 x 8 x 8; white is 16."""
    train, test = _split()
    return assemble("digits", train, test, white=16)


def read_digit_pairs() -> ImageData:
    """Build 6,000 + 1,000 images of 1 x 16 x 16 with 100 classes: two digits side by side, each of double height.

    Class 10 a + b shows a on the left and b on the right. Training pairs contain only training digits, so no digit of a
    test pair is in the training set. The pairs are the same on every machine and NumPy version.
    """
    train, test = (_pairs(*part, each) for part, each in zip(_split(), _PAIRS.values(), strict=True))
    return assemble("digit-pairs", train, test, classes=100, white=16)


def _split() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    from sklearn.datasets import load_digits

    images, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    images = images.astype(np.uint8).reshape(-1, 1, 8, 8)
    return (images[:_TRAIN], labels[:_TRAIN]), (images[_TRAIN:], labels[_TRAIN:])


def _pairs(images: np.ndarray, labels: np.ndarray, each: int) -> tuple[np.ndarray, np.ndarray]:
    classes = np.repeat(np.arange(100), each)
    # Raw bits rather than Generator.integers, whose stream may change from one NumPy release to the next.
    bits = np.random.PCG64(0).random_raw(2 * len(classes)).reshape(2, -1)
    sides = []
    for side, shown in enumerate((classes // 10, classes % 10)):
        of_class = [np.flatnonzero(labels == label) for label in range(10)]
        sides.append([of_class[d][int(draw % len(of_class[d]))] for d, draw in zip(shown, bits[side], strict=True)])
    flat = np.concatenate([images[sides[0]], images[sides[1]]], axis=-1)
    return flat.repeat(2, axis=-2), classes
