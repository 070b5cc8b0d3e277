"""Digits that come with scikit-learn, single (10 classes) and in pairs (100 classes)."""

import numpy as np

from saddlescope.training.data.image_pairs import pair_images
from saddlescope.training.data.labelled_images import ImageData, assemble

_TRAIN = 1500  # of the 1,797 images, as scikit-learn orders them


def read_digits() -> ImageData:
    """Read 1,500 + 297 images of 1 x 8 x 8; white is 16."""
    train, test = _split()
    return assemble("digits", train, test, white=16)


def read_digit_pairs() -> ImageData:
    """Build 6,000 + 1,000 images of 1 x 16 x 16 with 100 classes: two digits side by side, each of double height."""
    return pair_images("digit-pairs", *_split(), each=(60, 10), stretch=True, white=16)


def _split() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    from sklearn.datasets import load_digits

    images, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    images = images.astype(np.uint8).reshape(-1, 1, 8, 8)
    return (images[:_TRAIN], labels[:_TRAIN]), (images[_TRAIN:], labels[_TRAIN:])
