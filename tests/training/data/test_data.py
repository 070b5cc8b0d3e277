"""Data sets: contents of the official files, balanced subsets, and one-sentence errors."""

import lzma
import pickle
from pathlib import Path

import numpy as np
import pytest
from own_sets import CIFAR10, batch, idx, npz, write_sets

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.training import load


@pytest.fixture
def own(tmp_path) -> Path:
    return write_sets(tmp_path)


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


@pytest.mark.slow  # unpacks all of CIFAR-10
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


def test_formats_admit_data_of_ones_own(own):
    mnist, cifar, hundred = (load(name, own, verify=False) for name in ("mnist", "cifar10", "cifar100"))
    assert mnist.train_images.shape == (20, 1, 28, 28)
    assert cifar.train_images.shape == (50, 3, 32, 32)
    np.testing.assert_array_equal(cifar.test_labels, np.arange(10))
    assert (hundred.train_images.shape, hundred.test_images.shape) == ((200, 3, 32, 32), (100, 3, 32, 32))
    assert hundred.classes == 100
    np.testing.assert_array_equal(hundred.train_labels, np.arange(200) % 100)
    raw = pickle.loads((own / "cifar-100-python" / "train").read_bytes())[b"data"]  # colours in planes
    assert hundred.train_images[3, 2, 5, 7] == raw[3, 2 * 1024 + 5 * 32 + 7]
    assert len(hundred.subset(100).train_labels) == 100


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


@pytest.mark.parametrize("name", ["mnist", "cifar10", "cifar100"])
def test_files_that_are_not_the_official_ones_are_refused(own, name):
    refused("must be the official file; its MD5 differs", load, name, own)


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


def of(content: bytes, *, packed: bool = True):
    """Return a function that puts content in the place of a file."""
    return lambda _: lzma.compress(content) if packed else content


IMAGES, LABELS = "train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte"
DAMAGES = [
    ("mnist", IMAGES, cut, "complete, readable file"),
    ("mnist", IMAGES, flip, "complete, readable file"),
    ("mnist", LABELS, cut, "bytes after its header"),
    ("mnist", LABELS, lambda _: b"", "magic number 2049; got nothing"),
    ("mnist", LABELS, lambda _: idx(np.zeros((10, 1))), "magic number 2049"),
    ("mnist", LABELS, lambda _: idx(np.full(10, 11)), "labels from 0 to 9"),
    ("mnist", LABELS, lambda _: idx(np.zeros(9)), "one label per image; got 10 images and 9"),
    ("cifar10", "data_batch_2.xz", cut, "complete, readable file"),
    ("cifar10", "data_batch_2.xz", flip, "complete, readable file"),
    ("cifar10", "test_batch.xz", of(pickle.dumps([1])), "must hold 'data'"),
    ("cifar10", "test_batch.xz", of(batch([0], labels=["x"])), "must hold 'labels'"),
    ("cifar100", "test.xz", of(batch([100] * 200)), "labels from 0 to 99; got 100 to 100"),
    ("cifar100", "test.xz", of(batch([0], fine_labels=None)), "must hold 'fine_labels'"),
    ("cifar100", "test.xz", of(batch([0], data=np.zeros((1, 3071), np.uint8))), "must hold 'data'"),
    *(("mnist-small", "mnist-small.npz", damage, "mnist-small.npz must be a complete .npz file")
      for damage in (cut, flip, lambda _: b"", lambda _: b"text",
                     of(npz(**dict.fromkeys(("x_train", "y_train", "x_test", "y_test"), np.array([None]))),
                        packed=False))),  # objects are never unpickled
]  # fmt: skip


@pytest.mark.parametrize(("name", "file", "damage", "message"), DAMAGES)
def test_damaged_files_are_named(own, name, file, damage, message):
    (path,) = own.rglob(file)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=message) as error:
        load(name, own, verify=False)
    assert path.name in str(error.value) or "must have" in str(error.value)


@pytest.mark.parametrize("half", ["data", "test"])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([11, *range(1, 10)] * 4, "from 0 to 9, and no other; got .1, .*9, 11"),
        ([-1, *range(1, 10)] * 4, "from 0 to 9, and no other; got .-1, 1"),
        ([*range(9), 8] * 4, "must have each class from 0 to 9"),
        ([*range(10)] * 3, "one label per image; got 40 images and 30 labels"),
        ([*range(10)] * 5, "one label per image; got 40 images and 50 labels"),
    ],
)
def test_pairs_of_wrong_labels_are_refused(own, half, labels, message):
    for stem in CIFAR10:
        wrong = {"labels": labels} if stem.startswith(half) else {}
        (own / "cifar-10-batches-py" / f"{stem}.xz").write_bytes(lzma.compress(batch([*range(10)] * 4, **wrong)))
    refused(message, load, "cifar10-pairs", own, verify=False)
