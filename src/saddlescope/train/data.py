"""Image data in the official formats of MNIST and CIFAR-10, and the digits that scikit-learn brings along.

    name           images                        files in the data folder
    digits         1,500 + 297, 1 x 8 x 8        none (embedded)
    mnist          60,000 + 10,000, 1 x 28 x 28  mnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte
    cifar10        50,000 + 10,000, 3 x 32 x 32  cifar-10-batches-py/{data_batch_1..5,test_batch}
    mnist-small    2,000 + 500, 1 x 28 x 28      mnist-small.npz
    cifar10-small  2,000 + 500, 3 x 32 x 32      cifar10-small.npz

The official files may lie there plain or compressed (.gz, .xz). The small sets are the first 200 + 50 images of each
class. Digits are split as scikit-learn orders them: the first 1,500 images are for training, the last 297 for testing.
"""

import gzip
import hashlib
import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, UInt8

from saddlescope.errors import InputError, unknown
from saddlescope.train.pickles import unpickle

_LARGEST = 2**28  # bytes of one unpacked file; the largest official one has 47 MB

# MD5 of the unpacked official files, of which the publishers' own checksums (of the .gz for MNIST) were checked.
_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


@dataclass(frozen=True, eq=False)
class ImageData:
    """Labelled images for training and testing.

    Attributes:
        name: what was loaded.
        train_images, test_images: shape (n, channels, height, width), as stored: 0 is black, `white` is white.
        train_labels, test_labels: shape (n,), from 0 to `classes` - 1.
        classes: how many there are.
        white: the largest pixel value of the format, 255 or, for digits, 16.
        mean, deviation: of the pixels of each channel over the whole training set, after division by `white`;
            `subset` keeps them, so that a subset's images are the same numbers as in the whole.
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
        """Balanced random subsets: the same number of images of each class, in their original order.

        Args:
            train: images to keep for training, a multiple of the number of classes.
            test: images to keep for testing, the same; None keeps all.
            seed: of the choice. The same seed gives the same images on every machine and NumPy version, and a larger
                subset contains a smaller one.

        Raises:
            InputError: a number that is no positive multiple of the number of classes, or more than there are.
        """
        kept = _balanced("train", self.train_labels, train, self.classes, seed)
        smaller = replace(self, train_images=self.train_images[kept], train_labels=self.train_labels[kept])
        if test is None:
            return smaller
        kept = _balanced("test", self.test_labels, test, self.classes, seed)
        return replace(smaller, test_images=self.test_images[kept], test_labels=self.test_labels[kept])

    def digest(self) -> str:
        """A fingerprint of all images and labels, by which a resumed run knows its data."""
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


def load(name: str, folder: Path | str | None = None, *, verify: bool = True) -> ImageData:
    """Reads a data set; see the module for the names, their files and splits.

    Standardisation is left to whoever computes with the images: (pixel / white - mean) / deviation for each channel.

    Args:
        name: one of the names above.
        folder: the folder that holds the data sets; digits need none.
        verify: whether MNIST's and CIFAR-10's files must be the official ones, byte for byte once unpacked. False
            admits one's own data in the same formats.

    Raises:
        InputError: an unknown name, or files that are absent, damaged or not the official ones.

    >>> load("digits").train_images.shape
    (1500, 1, 8, 8)
    """
    if name not in _READERS:
        raise unknown("data set", name, _READERS)
    if name == "digits":
        return _digits()
    if folder is None:
        raise InputError(
            f"folder must be the folder with the data set {name!r}; got None. Only 'digits' needs no files."
        )
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"folder must be an existing folder of data sets; got {str(folder)!r}.")
    return _READERS[name](name, folder, verify)


def _assemble(
    name: str, train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray], white: int = 255
) -> ImageData:
    """Checks the parts against each other; the mean and deviation are exact, from the counts of each pixel value."""
    for images, labels in (train, test):
        if len(images) != len(labels) or not len(images):
            raise InputError(f"{name} must have one label an image; got {len(images)} images and {len(labels)} labels.")
        if labels.min() < 0 or labels.max() > 9:
            raise InputError(f"{name} must have labels from 0 to 9; got {labels.min()} to {labels.max()}.")
    if train[0].shape[1:] != test[0].shape[1:]:
        raise InputError(f"{name} must have images of one shape; got {train[0].shape[1:]} and {test[0].shape[1:]}.")
    levels = np.arange(256) / white
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
        classes=10,
        white=white,
        mean=mean,
        deviation=deviation,
    )


def _digits() -> ImageData:
    from sklearn.datasets import load_digits

    images, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    images = images.astype(np.uint8).reshape(-1, 1, 8, 8)
    return _assemble("digits", (images[:1500], labels[:1500]), (images[1500:], labels[1500:]), white=16)


def _mnist(name: str, folder: Path, verify: bool) -> ImageData:
    def part(prefix: str) -> tuple[np.ndarray, np.ndarray]:
        images = _idx(*_official(folder / "mnist", f"{prefix}-images-idx3-ubyte", verify), dimensions=3)
        labels = _idx(*_official(folder / "mnist", f"{prefix}-labels-idx1-ubyte", verify), dimensions=1)
        return images[:, None], labels

    return _assemble(name, part("train"), part("t10k"))


def _idx(path: Path, content: bytes, *, dimensions: int) -> np.ndarray:
    """An IDX file of bytes: two zeros, the type 8, the number of dimensions, the sizes big-endian, then the bytes."""
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


def _cifar10(name: str, folder: Path, verify: bool) -> ImageData:
    def part(stems: list[str]) -> tuple[np.ndarray, np.ndarray]:
        batches = [_cifar_batch(*_official(folder / "cifar-10-batches-py", stem, verify)) for stem in stems]
        return np.concatenate([images for images, _ in batches]), np.concatenate([labels for _, labels in batches])

    return _assemble(name, part([f"data_batch_{k}" for k in range(1, 6)]), part(["test_batch"]))


def _cifar_batch(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    batch = unpickle(content, str(path))
    entries = (
        {k.decode("latin1") if isinstance(k, bytes) else k: v for k, v in batch.items()}
        if isinstance(batch, dict)
        else {}
    )
    images, labels = entries.get("data"), entries.get("labels")
    if not (
        isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.ndim == 2 and images.shape[1] == 3072
    ):
        raise InputError(f"{path} must hold 'data', bytes of shape (n, 3072). Fetch the official file again.")
    if not (isinstance(labels, list) and all(type(label) is int for label in labels)):
        raise InputError(f"{path} must hold 'labels', a list of integers. Fetch the official file again.")
    return images.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def _small(name: str, folder: Path, verify: bool) -> ImageData:
    path = folder / f"{name}.npz"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = [stored[key] for key in ("x_train", "y_train", "x_test", "y_test")]
    except FileNotFoundError:
        raise InputError(f"folder must hold {path.name}; got {str(folder)!r}, which does not.") from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(
            f"{path} must be a whole .npz file of images; it is damaged ({error}). Copy it again."
        ) from error
    x_train, y_train, x_test, y_test = arrays
    if any(images.dtype != np.uint8 or images.ndim not in (3, 4) for images in (x_train, x_test)):
        raise InputError(f"{path} must hold images of bytes, shape (n, height, width[, channels]).")
    if any(labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer) for labels in (y_train, y_test)):
        raise InputError(f"{path} must hold integer labels, shape (n,).")

    def channels_first(images: np.ndarray) -> np.ndarray:
        return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)

    return _assemble(name, (channels_first(x_train), y_train), (channels_first(x_test), y_test))


def _official(folder: Path, stem: str, verify: bool) -> tuple[Path, bytes]:
    """The unpacked content of `stem`, stored plain, as .gz or as .xz, and its path."""
    path = next((p for ending in ("", ".gz", ".xz") if (p := folder / (stem + ending)).is_file()), None)
    if path is None:
        raise InputError(
            f"folder must hold {folder.name}/{stem} (or .gz, .xz); got {str(folder.parent)!r}, which does not."
        )
    try:
        opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
        with opener(path, "rb") as file:
            content = file.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{path} must be a whole, readable file; got: {error}. Fetch it again.") from error
    if len(content) > _LARGEST:
        raise InputError(f"{path} must unpack to at most {_LARGEST} bytes. Fetch the official file again.")
    if verify and hashlib.md5(content, usedforsecurity=False).hexdigest() != _MD5[stem]:
        raise InputError(
            f"{path} must be the official file; its MD5 differs, so it is damaged or another. Fetch it again, or pass "
            "verify=False if it holds your own data in this format."
        )
    return path, content


_READERS: dict[str, Callable[[str, Path, bool], ImageData]] = {
    "digits": lambda name, folder, verify: _digits(),
    "mnist": _mnist,
    "cifar10": _cifar10,
    "mnist-small": _small,
    "cifar10-small": _small,
}
