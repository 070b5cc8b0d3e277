"""Pairs of images, and ImageNet from small files in its official format."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from refusals import refused
from saddlescope.training import load
from saddlescope.training.data import imagenet
from saddlescope.training.data.image_files import pair_images
from saddlescope.training.data.imagenet import read_image_folder


def test_pairs_show_the_two_digits_of_their_class_each_twice_as_tall():
    digits, pairs = load("digits"), load("digit-pairs")
    assert (pairs.train_images.shape, pairs.test_images.shape) == ((6000, 1, 16, 16), (1000, 1, 16, 16))
    assert pairs.classes == 100
    np.testing.assert_array_equal(np.bincount(pairs.train_labels), 60)
    np.testing.assert_array_equal(np.bincount(pairs.test_labels), 10)
    for images, labels, single, of_single in (
        (pairs.train_images, pairs.train_labels, digits.train_images, digits.train_labels),
        (pairs.test_images, pairs.test_labels, digits.test_images, digits.test_labels),
    ):
        of_image = {image.tobytes(): label for image, label in zip(single, of_single, strict=True)}
        np.testing.assert_array_equal(images[:, :, ::2], images[:, :, 1::2])
        for image, label in zip(images[::37, :, ::2], labels[::37], strict=True):
            left, right = np.ascontiguousarray(image[..., :8]), np.ascontiguousarray(image[..., 8:])
            assert 10 * of_image[left.tobytes()] + of_image[right.tobytes()] == label
    # The stream is pinned: another choice would silently change every stored result.
    first = [i for i, image in enumerate(digits.train_images) if (image == pairs.train_images[0, :, ::2, :8]).all()]
    assert first == [78]


def test_pairs_of_half_width_have_the_means_of_neighbouring_columns():
    labels = np.arange(20) % 10
    images = (10 * labels[:, None, None, None] + np.array([0, 1, 0, 4])).astype(np.uint8).repeat(3, 1).repeat(4, 2)
    pairs, classes = pair_images(images, labels, each=2, stretch=False)
    assert pairs.shape == (200, 3, 4, 4)
    for image, label in zip(pairs, classes, strict=True):
        left, right = divmod(int(label), 10)
        expected = [10 * left + 1, 10 * left + 2, 10 * right + 1, 10 * right + 2]  # halves are rounded up
        np.testing.assert_array_equal(image, np.broadcast_to(expected, (3, 4, 4)))


@pytest.mark.slow  # unpacks all of CIFAR-10
def test_pairs_of_official_cifar10(data_folder):
    pairs = load("cifar10-pairs", data_folder)
    assert (pairs.train_images.shape, pairs.test_images.shape) == ((50_000, 3, 32, 32), (10_000, 3, 32, 32))
    np.testing.assert_array_equal(np.bincount(pairs.train_labels), 500)
    np.testing.assert_array_equal(np.bincount(pairs.test_labels), 100)


@pytest.fixture
def own_imagenet(tmp_path) -> Path:
    """Write two classes of three and two images in folders, one each for testing; one colour each except a corner."""
    for part, counts in (("train", (3, 2)), ("val", (1, 1))):
        for k, (name, count) in enumerate(zip(("n02", "n01"), counts, strict=True)):
            folder = tmp_path / "imagenet" / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                picture = np.full((300 + 20 * i, 400, 3), (40 * k, 50 * i, 200), np.uint8)
                picture[:, 200:] = (200, 100, 0)  # the right half
                Image.fromarray(picture).save(folder / f"{name}_{i}.JPEG", quality=95)
    return tmp_path


def test_image_folders_are_decoded_once_and_mapped(own_imagenet):
    reports = []
    data = read_image_folder(own_imagenet, False, size=56, report=lambda *report: reports.append(report))
    assert (data.train_images.shape, data.test_images.shape, data.classes) == ((5, 3, 56, 56), (2, 3, 56, 56), 2)
    np.testing.assert_array_equal(data.train_labels, [0, 0, 1, 1, 1])  # n01 before n02
    first_red, blue = data.train_images[:, 0, 28, 5], data.train_images[:, 2, 28, 5]
    np.testing.assert_allclose(first_red, [40, 40, 0, 0, 0], atol=4)
    np.testing.assert_allclose(blue, 200, atol=4)
    np.testing.assert_allclose(data.train_images[:, :, 28, 50], [[200, 100, 0]] * 5, atol=4)  # rows stay rows
    assert reports[-1][0] == 1
    stored = own_imagenet / "imagenet" / "decoded-56" / "train.npy"
    before = stored.stat().st_mtime_ns
    again = read_image_folder(own_imagenet, False, size=56)
    assert stored.stat().st_mtime_ns == before
    assert again.digest() == data.digest()
    pixels = np.asarray(data.train_images) / 255  # the stored counts are those of the decoded, cut images
    np.testing.assert_allclose(again.mean, pixels.mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(again.deviation, pixels.std(axis=(0, 2, 3)), rtol=1e-9)
    assert not again.train_images.flags.owndata


def test_a_killed_decoding_goes_on_where_it_was(own_imagenet, monkeypatch):
    whole = read_image_folder(own_imagenet, False, size=28).digest()
    for file in (own_imagenet / "imagenet" / "decoded-28").iterdir():
        file.unlink()
    monkeypatch.setattr(imagenet, "_CHUNK", 2)
    decoded = []

    def kill(file, size, decode=imagenet._decode):
        if len(decoded) == 3:
            raise KeyboardInterrupt
        decoded.append(file.name)
        return decode(file, size)

    monkeypatch.setattr(imagenet.os, "cpu_count", lambda: 1)
    monkeypatch.setattr(imagenet, "_decode", kill)
    with pytest.raises(KeyboardInterrupt):
        read_image_folder(own_imagenet, False, size=28)
    monkeypatch.undo()
    read = []
    monkeypatch.setattr(imagenet, "_decode", lambda f, s, d=imagenet._decode: (read.append(f.name), d(f, s))[1])
    assert read_image_folder(own_imagenet, False, size=28).digest() == whole
    assert decoded[:2] == ["n01_0.JPEG", "n01_1.JPEG"]
    assert len(read) == 5  # three of train, two of val; the first two of train were kept
    place = own_imagenet / "imagenet" / "decoded-28"
    (place / "train.npy").rename(place / "train.part")  # as if killed just before the move
    assert read_image_folder(own_imagenet, False, size=28).digest() == whole
    assert len(read) == 5
    (own_imagenet / "imagenet" / "train" / "n02" / "n02_2.JPEG").unlink()
    assert len(read_image_folder(own_imagenet, False, size=28).train_labels) == 4  # other files: decoded anew
    (place / "train.json").write_text('{"files": ')
    refused("delete the folder if it is damaged", read_image_folder, own_imagenet, False, size=28)


def test_image_folders_that_cannot_be_used_are_refused(own_imagenet, tmp_path):
    refused(r"images of ILSVRC 2012 in 1,000 classes; got 5 \+ 2 in 2", load, "imagenet", own_imagenet)
    home = own_imagenet / "imagenet"
    broken = home / "train" / "n01" / "n01_0.JPEG"
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) // 2])
    refused(r"n01_0.JPEG must be a complete JPEG or PNG image", load, "imagenet", own_imagenet, verify=False)
    broken.write_bytes(whole)
    (home / "val" / "n03").mkdir()
    refused("must hold classes of imagenet/train alone; got 'n03'", load, "imagenet", own_imagenet, verify=False)
    (tmp_path / "empty").mkdir()
    refused("folder must hold imagenet/train with a folder for each class", load, "imagenet", tmp_path / "empty")
