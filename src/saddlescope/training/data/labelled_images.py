"""Labelled images in memory or mapped from disk, and the checks common to all readers."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int, Int64, UInt8

from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin


@dataclass(frozen=True, eq=False, repr=False)
class ImageData(ReprMixin):
    """Labelled images for training and testing.

    Attributes:
        name: name of the data set.
        train_images, test_images: images (n, channels, height, width), as stored: 0 is black, `white` is white.
        train_labels, test_labels: labels (n,), from 0 to `classes` - 1.
        classes: number of classes.
        white: the largest pixel value of the format, 255 or, for digits, 16.
        mean, deviation: mean and standard deviation of the pixels of each channel over the full training set, after
            division by `white`; `subset` keeps them, so a standardised image does not depend on the subset.
    """

    name: str
    train_images: UInt8[np.ndarray, "n channels height width"]
    train_labels: Int[np.ndarray, " n"]
    test_images: UInt8[np.ndarray, "m channels height width"]
    test_labels: Int[np.ndarray, " m"]
    classes: int
    white: int
    mean: Float[np.ndarray, " channels"]
    deviation: Float[np.ndarray, " channels"]

    def subset(self, train: int, test: int | None = None, *, seed: int = 0) -> "ImageData":
        """Return balanced random subsets: the same number of images of each class, in their original order.

        Args:
            train: number of training images, a multiple of the number of classes.
            test: number of test images, likewise; None keeps all.
            seed: seed of the selection. The same seed gives the same images on every machine and NumPy version, and a
                larger subset contains a smaller one.

        Raises:
            InputError: a number that is not a positive multiple of the number of classes, or too large.
        """
        kept = _balanced("train", self.train_labels, train, self.classes, seed)
        smaller = replace(self, train_images=self.train_images[kept], train_labels=self.train_labels[kept])
        if test is None:
            return smaller
        kept = _balanced("test", self.test_labels, test, self.classes, seed)
        return replace(smaller, test_images=self.test_images[kept], test_labels=self.test_labels[kept])

    def digest(self) -> str:
        """Return the SHA-256 of all images and labels, by which a resumed run recognizes its data."""
        digest = hashlib.sha256(repr((self.classes, self.white, self.mean.tolist(), self.deviation.tolist())).encode())
        for part in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            digest.update(repr((part.shape, str(part.dtype))).encode())
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


def _balanced(name: str, labels: np.ndarray, wanted: int, classes: int, seed: int) -> np.ndarray:
    each, rest = divmod(wanted, classes)
    if each < 1 or rest:
        raise InputError(f"{name} must be a positive multiple of the {classes} classes; got {wanted!r}.")
    available = int(np.bincount(labels, minlength=classes).min())
    if each > available:
        raise InputError(
            f"{name} must be at most {available * classes}, the images of the rarest class; got {wanted!r}."
        )
    # Raw bits rather than Generator.permutation, whose stream may change from one NumPy release to the next.
    order = np.argsort(np.random.PCG64(seed).random_raw(len(labels)), kind="stable")
    return np.sort(np.concatenate([order[labels[order] == label][:each] for label in range(classes)]))


def assemble(
    name: str,
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    *,
    classes: int = 10,
    white: int = 255,
    counts: Int64[np.ndarray, "channels 256"] | None = None,
) -> ImageData:
    """Check images and labels, and compute the exact mean and deviation from counts of pixel values.

    Args:
        name: name of the data set, for messages.
        train: images of bytes, (n, channels, height, width), and their labels.
        test: test images and labels, likewise.
        classes: number of classes.
        white: the largest pixel value of the format.
        counts: count of each pixel value in each channel of the training images; None computes them.

    Raises:
        InputError: inconsistent images and labels, a label outside of the classes, or images of one colour.
    """
    for images, labels in (train, test):
        if len(images) != len(labels) or not len(images):
            raise InputError(
                f"{name} must have one label per image; got {len(images)} images and {len(labels)} labels."
            )
        if labels.min() < 0 or labels.max() >= classes:
            raise InputError(f"{name} must have labels from 0 to {classes - 1}; got {labels.min()} to {labels.max()}.")
    if train[0].shape[1:] != test[0].shape[1:]:
        raise InputError(f"{name} must have images of one shape; got {train[0].shape[1:]} and {test[0].shape[1:]}.")
    levels = np.arange(256) / white
    if counts is None:
        counts = np.stack([np.bincount(channel.ravel(), minlength=256) for channel in train[0].swapaxes(0, 1)])
    mean = counts @ levels / counts.sum(axis=1)
    deviation = np.sqrt(np.sum(counts * (levels - mean[:, None]) ** 2, axis=1) / counts.sum(axis=1))
    if not np.all(deviation > 0):
        raise InputError(f"{name} must have training images that are not all of one colour.")
    return ImageData(
        name=name,
        train_images=np.ascontiguousarray(train[0]),
        train_labels=train[1].astype(np.int64),
        test_images=np.ascontiguousarray(test[0]),
        test_labels=test[1].astype(np.int64),
        classes=classes,
        white=white,
        mean=mean,
        deviation=deviation,
    )
