"""Data sets: contents of the official files, balanced subsets, and one-sentence errors."""

import gzip
import lzma
import pickle
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.training import load


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture
def own_mnist(tmp_path) -> Path:
    """Write your own images in MNIST's format: 20 for training, 10 for testing."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "mnist"
    folder.mkdir()
    for prefix, count in (("train", 20), ("t10k", 10)):
        images = rng.integers(0, 256, (count, 28, 28))
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(np.arange(count) % 10))
    return tmp_path


@pytest.fixture
def own_cifar(tmp_path) -> Path:
    """Write your own images in CIFAR-10's format: 10 per batch."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for stem in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        batch = {b"data": rng.integers(0, 256, (10, 3072), dtype=np.uint8), b"labels": list(range(10))}
        (folder / f"{stem}.xz").write_bytes(lzma.compress(pickle.dumps(batch)))
    return tmp_path


def test_digits_are_embedded_and_split_as_documented():
    from sklearn.datasets import load_digits

    data, original = load("digits"), load_digits()
    assert data.train_images.shape == (1500, 1, 8, 8)
    np.testing.assert_array_equal(data.test_images[:, 0], original.images[1500:])
    np.testing.assert_array_equal(data.train_labels, original.target[:1500])
    assert data.white == 16
    pixels = original.images[:1500] / 16
    assert (data.mean[0], data.deviation[0]) == pytest.approx((pixels.mean(), pixels.std()), rel=1e-12)


def test_official_mnist(data_folder):
    data = load("mnist", data_folder)
    assert data.train_images.shape == (60000, 1, 28, 28)
    assert data.test_images.shape == (10000, 1, 28, 28)
    counts = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    np.testing.assert_array_equal(np.bincount(data.test_labels), counts)
    assert (data.mean[0], data.deviation[0]) == pytest.approx((0.13066, 0.30811), abs=1e-5)
    small = load("mnist-small", data_folder)
    first = [np.flatnonzero(data.train_labels == label)[:200] for label in range(10)]
    np.testing.assert_array_equal(small.train_images, data.train_images[np.sort(np.concatenate(first))])


def test_official_cifar10(data_folder):
    data = load("cifar10", data_folder)
    assert data.train_images.shape == (50000, 3, 32, 32)
    np.testing.assert_array_equal(np.bincount(data.train_labels), 5000)
    np.testing.assert_array_equal(np.bincount(data.test_labels), 1000)
    assert data.mean == pytest.approx([0.49139968, 0.48215841, 0.44653091], abs=1e-8)
    assert data.deviation == pytest.approx([0.24703223, 0.24348513, 0.26158784], abs=1e-8)
    small = load("cifar10-small", data_folder)  # stored channels last: the two agree on what is up, left and red
    first = [np.flatnonzero(data.test_labels == label)[:50] for label in range(10)]
    np.testing.assert_array_equal(small.test_images, data.test_images[np.sort(np.concatenate(first))])


def test_formats_admit_data_of_ones_own(own_mnist, own_cifar):
    mnist, cifar = load("mnist", own_mnist, verify=False), load("cifar10", own_cifar, verify=False)
    assert mnist.train_images.shape == (20, 1, 28, 28)
    assert cifar.train_images.shape == (50, 3, 32, 32)
    np.testing.assert_array_equal(cifar.test_labels, np.arange(10))


def test_subsets_are_balanced_ordered_nested_and_repeatable():
    data = load("digits")
    small, again = data.subset(100, 50, seed=3), data.subset(100, 50, seed=3)
    np.testing.assert_array_equal(small.train_images, again.train_images)
    np.testing.assert_array_equal(np.bincount(small.train_labels), 10)
    np.testing.assert_array_equal(np.bincount(small.test_labels), 5)
    np.testing.assert_array_equal(small.mean, data.mean)
    assert small.digest() != data.subset(100, 50, seed=4).digest()
    assert len(data.subset(100).test_labels) == 297

    def rows(images):
        return [image.tobytes() for image in images]

    whole, larger = rows(data.train_images), rows(data.subset(500, seed=3).train_images)
    assert set(rows(small.train_images)) <= set(larger)
    positions = [whole.index(row) for row in rows(small.train_images)]
    assert positions == sorted(positions)
    labels = data.train_labels[positions]
    np.testing.assert_array_equal(labels, small.train_labels)
    # The stream is pinned: another choice would silently change every stored result.
    assert positions[:5] == [20, 28, 74, 89, 104]


@pytest.mark.parametrize(("train", "message"), [(95, "multiple of the 10 classes"), (0, "positive"), (1500, "at most")])
def test_bad_subsets_are_refused(train, message):
    refused(message, load("digits").subset, train)


def test_the_digest_sees_every_pixel_and_label():
    data = load("digits").subset(10, 10)
    before = data.digest()
    data.test_images[9, 0, 7, 7] ^= 1
    assert data.digest() != before
    data.test_images[9, 0, 7, 7] ^= 1
    assert data.digest() == before
    data.train_labels[0] = 1 - data.train_labels[0]
    assert data.digest() != before


def test_unknown_names_and_folders(tmp_path):
    refused("no data set 'cifar'; did you mean cifar10", load, "cifar", tmp_path)
    refused("folder must be the folder with the data set 'mnist'; got None", load, "mnist")
    refused("folder must be an existing folder", load, "mnist", tmp_path / "none")
    for name, file in (
        ("mnist", "mnist/train-images"),
        ("cifar10", "data_batch_1"),
        ("mnist-small", "mnist-small.npz"),
    ):
        refused(f"folder must hold .*{file}", load, name, tmp_path)


def test_files_that_are_not_the_official_ones_are_refused(own_mnist, own_cifar):
    for name in ("mnist", "cifar10"):
        refused("must be the official file; its MD5 differs", load, name, own_mnist)


@pytest.mark.parametrize("verify", [True, False])
def test_a_hostile_batch_is_refused_and_not_executed(own_cifar, tmp_path, verify):
    import os

    class Hostile:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/marker",)

    path = own_cifar / "cifar-10-batches-py" / "data_batch_1"
    path.write_bytes(pickle.dumps({b"data": Hostile(), b"labels": [0]}))
    refused("data_batch_1", load, "cifar10", own_cifar, verify=verify)
    assert not (tmp_path / "marker").exists()


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("mnist/train-images-idx3-ubyte.gz", cut, "complete, readable file"),
        ("mnist/train-images-idx3-ubyte.gz", flip, "complete, readable file"),
        ("mnist/train-labels-idx1-ubyte", cut, "bytes after its header"),
        ("mnist/train-labels-idx1-ubyte", lambda _: b"", "magic number 2049; got nothing"),
        ("mnist/t10k-labels-idx1-ubyte", lambda _: idx(np.zeros((10, 1))), "magic number 2049"),
        ("mnist/t10k-labels-idx1-ubyte", lambda _: idx(np.full(10, 11)), "labels from 0 to 9"),
        ("mnist/t10k-labels-idx1-ubyte", lambda _: idx(np.zeros(9)), "one label per image; got 10 images and 9"),
        ("cifar-10-batches-py/data_batch_2.xz", cut, "complete, readable file"),
        ("cifar-10-batches-py/data_batch_2.xz", flip, "complete, readable file"),
        ("cifar-10-batches-py/test_batch.xz", lambda _: lzma.compress(pickle.dumps([1])), "must hold 'data'"),
        (
            "cifar-10-batches-py/test_batch.xz",
            lambda _: lzma.compress(pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": ["x"]})),
            "must hold 'labels'",
        ),
    ],
)
def test_damaged_files_are_named(own_mnist, own_cifar, file, damage, message):
    path = own_mnist / file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=message) as error:
        load("mnist" if "mnist/" in file else "cifar10", own_mnist, verify=False)
    assert path.name in str(error.value) or "must have" in str(error.value)


@pytest.mark.parametrize("damage", [cut, flip, lambda _: b"", lambda _: b"text"])
def test_a_damaged_small_set_is_named(tmp_path, data_folder, damage):
    shutil.copy(data_folder / "mnist-small.npz", tmp_path)
    path = tmp_path / "mnist-small.npz"
    path.write_bytes(damage(path.read_bytes()))
    refused(r"mnist-small.npz must be a complete .npz file", load, "mnist-small", tmp_path)


def test_a_small_set_of_objects_is_never_unpickled(tmp_path):
    np.savez(
        tmp_path / "mnist-small.npz", **dict.fromkeys(("x_train", "y_train", "x_test", "y_test"), np.array([None]))
    )
    refused("damaged", load, "mnist-small", tmp_path)
