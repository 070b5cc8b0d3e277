"""CIFAR-10 and CIFAR-100 in their official Python files, which are pickles; nothing in them is executed."""

from pathlib import Path

import numpy as np

from saddlescope._shared.errors import InputError
from saddlescope.training.data.image_pairs import pair_images
from saddlescope.training.data.labelled_images import ImageData, assemble
from saddlescope.training.data.official_files import read_official
from saddlescope.training.data.untrusted_pickle import unpickle

# MD5 of the unpacked official files, as the publisher's archive has them and torchvision checks them.
_MD5_10 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
_MD5_100 = {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"}


def read_cifar10(folder: Path, verify: bool) -> ImageData:
    """Read 50,000 + 10,000 images of 3 x 32 x 32 in 10 classes."""

    def part(stems: list[str]) -> tuple[np.ndarray, np.ndarray]:
        batches = [_batch(folder / "cifar-10-batches-py", stem, _MD5_10, verify, "labels") for stem in stems]
        return np.concatenate([images for images, _ in batches]), np.concatenate([labels for _, labels in batches])

    return assemble("cifar10", part([f"data_batch_{k}" for k in range(1, 6)]), part(["test_batch"]))


def read_cifar10_pairs(folder: Path, verify: bool) -> ImageData:
    """Build 50,000 + 10,000 images of 3 x 32 x 32 with 100 classes: two of CIFAR-10 side by side at half width."""
    data = read_cifar10(folder, verify)
    train, test = (data.train_images, data.train_labels), (data.test_images, data.test_labels)
    return pair_images("cifar10-pairs", train, test, each=(500, 100), stretch=False)


def read_cifar100(folder: Path, verify: bool) -> ImageData:
    """Read 50,000 + 10,000 images of 3 x 32 x 32 in the 100 fine classes."""
    train, test = (
        _batch(folder / "cifar-100-python", stem, _MD5_100, verify, "fine_labels") for stem in ("train", "test")
    )
    return assemble("cifar100", train, test, classes=100)


def _batch(folder: Path, stem: str, md5: dict[str, str], verify: bool, key: str) -> tuple[np.ndarray, np.ndarray]:
    """Read images and labels of one file; a row is 1,024 red, then green, then blue pixels, row by row."""
    path, content = read_official(folder, stem, md5[stem] if verify else None)
    batch = unpickle(content, str(path))
    entries = (
        {k.decode("latin1") if isinstance(k, bytes) else k: v for k, v in batch.items()}
        if isinstance(batch, dict)
        else {}
    )
    images, labels = entries.get("data"), entries.get(key)
    if not (
        isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.ndim == 2 and images.shape[1] == 3072
    ):
        raise InputError(f"{path} must hold 'data', bytes of shape (n, 3072). Fetch the official file again.")
    if not (isinstance(labels, list) and all(type(label) is int for label in labels)):
        raise InputError(f"{path} must hold '{key}', a list of integers. Fetch the official file again.")
    return images.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)
