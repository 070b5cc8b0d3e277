"""Handwritten digits as token data: patches of an image, of which attention should choose that of the highest score.

X      the four 4 x 4 patches of an 8 x 8 image of scikit-learn's digits, pixels in [0, 1]: L = 4, d = 16
z      the image's mean patch
y      1 for the first digit, -1 for the second
v      a linear head: the ridge regression of the labels on the mean patches of all images of the two digits, times a
       factor that sets the size of the scores' gaps
"""

from typing import TYPE_CHECKING

import numpy as np

from saddlescope._shared.errors import InputError

if TYPE_CHECKING:
    from saddlescope.models.tokens.data import TokenData

SIDE = 4  # pixels of a patch

_RIDGE = 1.0  # of the regression, in units of one image's pixel


def digit_tokens(first: int, second: int, *, images: int, skip: int, head: float) -> "tuple[TokenData, np.ndarray]":
    """Return tokens of some images of two digits, and the images.

    Args:
        first: the digit of label 1.
        second: the digit of label -1.
        images: number of images of each digit, in the order of the data set; images of which two patches share the
            highest score are left out.
        skip: number of images of each digit to leave out before.
        head: factor of the head.

    Raises:
        InputError: the data set has fewer images.
    """
    from sklearn.datasets import load_digits

    from saddlescope.models.tokens.data import TokenData

    flat, digits = (np.asarray(part) for part in load_digits(return_X_y=True))
    pixels = flat.reshape(-1, 2 * SIDE, 2 * SIDE) / 16.0
    chosen = [np.flatnonzero(digits == digit) for digit in (first, second)]
    every = np.concatenate(chosen)
    mean = _split_patches(pixels[every]).mean(axis=1)
    labels = np.where(digits[every] == first, 1.0, -1.0)
    centred = mean - mean.mean(axis=0)
    v = head * np.linalg.solve(centred.T @ centred + _RIDGE * np.eye(mean.shape[1]), centred.T @ labels)
    taken, signs = [], []
    for own, sign in zip(chosen, (1.0, -1.0), strict=True):
        scores = np.sort(sign * _split_patches(pixels[own]) @ v, axis=1)
        clear = own[scores[:, -1] - scores[:, -2] > 1e-6 * np.abs(scores).max()]
        if len(clear) < skip + images:
            raise InputError(f"images and skip must add up to {len(clear)} or less; got {images!r} and {skip!r}.")
        taken.append(clear[skip : skip + images])
        signs.append(np.full(images, sign))
    at = np.concatenate(taken)
    X = _split_patches(pixels[at])
    return TokenData(X, X.mean(axis=1), np.concatenate(signs), v), pixels[at]


def _split_patches(images: np.ndarray) -> np.ndarray:
    """Return (images, patches, pixels), the patches row by row."""
    count, height, width = images.shape
    split = images.reshape(count, height // SIDE, SIDE, width // SIDE, SIDE)
    return split.transpose(0, 1, 3, 2, 4).reshape(count, -1, SIDE * SIDE)
