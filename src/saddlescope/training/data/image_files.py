"""Readers of labelled images: MNIST and CIFAR in their official files, small sets, digits, and pairs of images.

Each returns images (n, channels, height, width) of bytes with their labels, for training and for testing.
"""

import gzip
import hashlib
import lzma
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from saddlescope._shared.errors import InputError
from saddlescope._shared.npz_files import read_npz
from saddlescope.training.data.cifar_batch import read_batch

Labelled = tuple[np.ndarray, np.ndarray]
"""Images and their labels."""
Split = tuple[Labelled, Labelled]
"""Images for training and for testing."""

# MD5 of the unpacked official files: for MNIST computed after verifying the publishers' own checksums (of the .gz), for
# CIFAR as the publisher's archive has them and torchvision checks them.
_MD5 = {
    "mnist/train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "mnist/train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "mnist/t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "mnist/t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
    "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
    "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
    "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
    "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}
_LARGEST = 2**28  # bytes of one unpacked file; the largest official one, the training images of CIFAR-100, has 155 MB
_TRAIN = 1500  # of the 1,797 digits, as scikit-learn orders them


def read_mnist(folder: Path, verify: bool) -> Split:
    """Read 60,000 + 10,000 images of 1 x 28 x 28."""

    def part(prefix: str) -> Labelled:
        images, labels = (
            _idx(*_official(folder, f"mnist/{prefix}-{stem}-ubyte", verify), dimensions=int(stem[-1]))
            for stem in ("images-idx3", "labels-idx1")
        )
        return images[:, None], labels

    return part("train"), part("t10k")


def read_cifar10(folder: Path, verify: bool) -> Split:
    """Read 50,000 + 10,000 images of 3 x 32 x 32 in 10 classes."""
    *train, test = (
        _batch(folder, f"cifar-10-batches-py/{stem}", verify, "labels")
        for stem in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
    )
    images, labels = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return (images, labels), test


def read_cifar10_pairs(folder: Path, verify: bool) -> Split:
    """Build 50,000 + 10,000 images of 3 x 32 x 32 with 100 classes: two of CIFAR-10 side by side at half width."""
    train, test = read_cifar10(folder, verify)
    return pair_images(*train, each=500, stretch=False), pair_images(*test, each=100, stretch=False)


def read_cifar100(folder: Path, verify: bool) -> Split:
    """Read 50,000 + 10,000 images of 3 x 32 x 32 in the 100 fine classes."""
    train, test = (_batch(folder, f"cifar-100-python/{stem}", verify, "fine_labels") for stem in ("train", "test"))
    return train, test


def read_digits() -> Split:
    """Read 1,500 + 297 images of 1 x 8 x 8 that come with scikit-learn; white is 16."""
    from sklearn.datasets import load_digits

    images, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    images = images.astype(np.uint8).reshape(-1, 1, 8, 8)
    return (images[:_TRAIN], labels[:_TRAIN]), (images[_TRAIN:], labels[_TRAIN:])


def read_digit_pairs() -> Split:
    """Build 6,000 + 1,000 images of 1 x 16 x 16 with 100 classes: two digits side by side, each of double height."""
    train, test = read_digits()
    return pair_images(*train, each=60, stretch=True), pair_images(*test, each=10, stretch=True)


def read_small(path: Path) -> Split:
    """Read an .npz file of images with the channels last: the first 200 + 50 of each class of MNIST or CIFAR-10."""
    try:
        stored = read_npz(path, ("x_train", "y_train", "x_test", "y_test"))
    except FileNotFoundError:
        raise InputError(f"folder must hold {path.name}; got {str(path.parent)!r}, which does not.") from None
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path} must be a complete .npz file of images; it is damaged ({error}). Copy it again."
        ) from error

    def part(images: np.ndarray, labels: np.ndarray) -> Labelled:
        if images.dtype != np.uint8 or images.ndim not in (3, 4):
            raise InputError(f"{path} must hold images of bytes, shape (n, height, width[, channels]).")
        if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            raise InputError(f"{path} must hold integer labels, shape (n,).")
        return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2), labels

    return part(stored["x_train"], stored["y_train"]), part(stored["x_test"], stored["y_test"])


def pair_images(images: np.ndarray, labels: np.ndarray, *, each: int, stretch: bool) -> Labelled:
    """Return pairs of images of ten classes: class 10 a + b has one of class a on the left, one of b on the right.

    The pairs are the same on every machine and NumPy version.

    Args:
        images: images (n, channels, height, width) of bytes, the width even.
        labels: labels from 0 to 9.
        each: number of pairs of each of the 100 classes.
        stretch: keep the images square by drawing each row twice; False: by averaging neighbouring columns.

    Raises:
        InputError: other labels than 0 to 9, or a class without images.
    """
    present = np.unique(labels)
    if not np.array_equal(present, np.arange(10)):
        raise InputError(f"labels must have each class from 0 to 9, and no other; got {present.tolist()!r}.")
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


def stored_file(folder: Path, place: str) -> Path | None:
    """Return the path of a file below `folder`, plain or compressed; None if it is absent."""
    return next((p for ending in ("", ".gz", ".xz") if (p := folder / f"{place}{ending}").is_file()), None)


def _official(folder: Path, place: str, verify: bool) -> tuple[Path, bytes]:
    """Return the path and unpacked content of a file below `folder` that is stored plain, as .gz or as .xz."""
    path = stored_file(folder, place)
    if path is None:
        raise InputError(f"folder must hold {place} (or .gz, .xz); got {str(folder)!r}, which does not.")
    try:
        opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
        with opener(path, "rb") as file:
            content = file.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{path} must be a complete, readable file; got: {error}. Fetch it again.") from error
    if len(content) > _LARGEST:
        raise InputError(f"{path} must unpack to at most {_LARGEST} bytes. Fetch the official file again.")
    if verify and hashlib.md5(content, usedforsecurity=False).hexdigest() != _MD5[place]:
        raise InputError(
            f"{path} must be the official file; its MD5 differs, so it is damaged or a different file. Fetch it "
            "again, or pass verify=False if it holds your own data in this format."
        )
    return path, content


def _batch(folder: Path, place: str, verify: bool, key: str) -> Labelled:
    path, content = _official(folder, place, verify)
    return read_batch(content, str(path), key)


def _idx(path: Path, content: bytes, *, dimensions: int) -> np.ndarray:
    """Parse an IDX file of bytes: two zeros, the type 8, the number of dimensions, big-endian sizes, then the bytes."""
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes((0, 0, 8, dimensions)):
        raise InputError(
            f"{path} must be an IDX file with magic number {2048 + dimensions}; got {content[:4].hex() or 'nothing'}. "
            "Fetch the official file again."
        )
    sizes = struct.unpack_from(f">{dimensions}I", content, 4)
    if len(content) - header != math.prod(sizes):
        raise InputError(
            f"{path} must have {math.prod(sizes)} bytes after its header; got {len(content) - header}. "
            "Fetch the official file again."
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(sizes)
