"""Batches of images: the same from the host, from the device and read ahead."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from saddlescope.training import load
from saddlescope.training.image_batches import DeviceBatches

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def digits():
    return load("digits").subset(100, 50)


def expected(data, chosen):
    images = data.train_images[chosen] / 16
    return ((images - data.mean[:, None, None]) / data.deviation[:, None, None]).astype(np.float32)


@pytest.fixture(params=["host", "resident", "read ahead"])
def batches(request, digits):
    made = DeviceBatches(digits, "train", CPU, torch.float32, resident=request.param == "resident")
    if request.param == "read ahead":
        made._reader = ThreadPoolExecutor(1)  # as on a GPU without room for all images
    return made


def test_batches_are_standardised_and_in_order(digits, batches):
    order = np.random.default_rng(0).permutation(100)
    images, labels = batches.batch(0, 30)
    np.testing.assert_allclose(images, expected(digits, slice(0, 30)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(labels, digits.train_labels[:30])
    for chosen in (order, order[::-1].copy()):  # a second epoch: nothing read ahead for the first may be taken
        batches.set_order(chosen)
        for start, stop in ((0, 40), (40, 80), (80, 100), (40, 80)):
            images, labels = batches.batch(start, stop)
            np.testing.assert_allclose(images, expected(digits, chosen[start:stop]), rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(labels, digits.train_labels[chosen[start:stop]])


def test_images_may_be_read_only_and_mapped_from_disk(digits, tmp_path):
    np.save(tmp_path / "images.npy", digits.test_images)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    object.__setattr__(data := load("digits").subset(100, 50), "test_images", mapped)
    for resident in (True, False):
        one = DeviceBatches(data, "test", CPU, torch.float64, resident=resident).batch(10, 20)[0]
        other = DeviceBatches(digits, "test", CPU, torch.float64).batch(10, 20)[0]
        assert one.dtype == torch.float64
        assert torch.equal(one, other)
