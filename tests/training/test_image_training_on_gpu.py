"""Image training on a GPU, if present: the same steps as on the processor, and resumption to the last bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from saddlescope.ranks import Every, RankTracker
from saddlescope.training import Adam, TrainConfig, ViT, ViTConfig, fit, load
from saddlescope.training.image_batches import DeviceBatches

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SMALL = ViTConfig(image_size=8, channels=1, patch=4, embedding=64, depth=2, heads=2, head_width=32, mlp_width=64)
CONFIG = TrainConfig(optimizer=Adam(learning_rate=3e-3), epochs=4, warmup_epochs=1, batch=32)


@pytest.fixture(autouse=True)
def reproducible_products(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture(scope="module")
def digits():
    return load("digits").subset(100, 50)


def train(digits, config, device, **options):
    model = ViT(SMALL).to(device)
    tracker = RankTracker(model, schedule=Every(2))
    return fit(model, digits, config, tracker=tracker, **options), model, tracker.records.products.update.values


def test_the_steps_are_those_of_the_processor(digits):
    on_cpu, on_gpu = train(digits, CONFIG, "cpu"), train(digits, CONFIG, "cuda")
    np.testing.assert_allclose(on_gpu[0].train_loss, on_cpu[0].train_loss, rtol=1e-3)
    np.testing.assert_allclose(on_gpu[2], on_cpu[2], rtol=0.05, atol=1e-3)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_a_killed_run_goes_on_to_the_last_bit(digits, tmp_path, types_unchecked, precision, compiled):
    config = replace(CONFIG, precision=precision, compiled=compiled)

    def kill(fraction, note):
        raise KeyboardInterrupt

    with types_unchecked():  # the compiler cannot see through run-time checks
        whole, model, _ = train(digits, config, "cuda")
        with pytest.raises(KeyboardInterrupt):
            train(digits, config, "cuda", checkpoint=tmp_path / "run", checkpoint_every=2, report=kill)
        again, other, _ = train(digits, config, "cuda", checkpoint=tmp_path / "run", checkpoint_every=2)
    np.testing.assert_array_equal(again.train_loss, whole.train_loss)
    for one, same in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, same)


def test_images_on_the_device_and_read_ahead_are_the_same(digits):
    order = np.random.default_rng(0).permutation(100)
    feeds = [
        DeviceBatches(digits, "train", torch.device("cuda"), torch.float32, resident=where) for where in (True, False)
    ]
    for feed in feeds:
        feed.set_order(order)
    for start in (0, 40, 80):
        one, other = (feed.batch(start, min(start + 40, 100)) for feed in feeds)
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
