"""Training on a GPU, if present: the steps of the processor, no waiting, and resumption to the last bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_runs import IMAGES, RUNS, SIZES
from test_interrupted_runs import Interrupted, assert_identical, interrupt

from saddlescope.ranks import Every, RankTracker
from saddlescope.training import ViT, fit, load
from saddlescope.training.diffusion import training
from saddlescope.training.diffusion.circles import CircleProcess
from saddlescope.training.diffusion.classifier import ClassifierConfig, fit_classifier
from saddlescope.training.diffusion.training import DiffusionConfig, fit_diffusion
from saddlescope.training.diffusion.unet import UNetConfig
from saddlescope.training.image_batches import DeviceBatches

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = "cpu", "cuda"
PROCESS = CircleProcess(pixels=16, color_signal=0.7)
NETWORK = UNetConfig(pixels=16, channels=(16, 32), blocks=1, dropout=0.1)
CONFIG = DiffusionConfig(steps=8, batch=16, images=40, record_ratio=2.0, record_images=2, sampling_steps=3)


@pytest.fixture(autouse=True)
def reproducible_products(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture
def digits():
    return load("digits").subset(100, 50)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *(
            (kind, {"precision": precision, "compiled": compiled})
            for kind in ("image", "diffusion")
            for precision in ("float32", "tf32", "bf16")
            for compiled in (False, True)
        ),
        ("classifier", {}),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute")  # of the compiler's own
def test_an_interrupted_run_resumes_to_the_last_bit(tmp_path, types_unchecked, kind, changes):
    with types_unchecked():  # the compiler cannot see through run-time checks
        whole = RUNS[kind](device="cuda", **changes)
        with pytest.raises(Interrupted):
            RUNS[kind](tmp_path / "run", 2, interrupt, device="cuda", **changes)
        assert_identical(RUNS[kind](tmp_path / "run", 2, device="cuda", **changes), whole)


def test_the_steps_on_images_are_those_of_the_processor(digits):
    def train(device):
        model = ViT(replace(SIZES, embedding=64, head_width=32, mlp_width=64)).to(device)
        tracker = RankTracker(model, schedule=Every(2))
        return fit(model, digits, IMAGES, tracker=tracker).train_loss, tracker.records.products.update.values

    on_cpu, on_gpu = map(train, DEVICES)
    np.testing.assert_allclose(on_gpu[0], on_cpu[0], rtol=1e-3)
    np.testing.assert_allclose(on_gpu[1], on_cpu[1], rtol=0.05, atol=1e-3)


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


def test_the_circles_of_a_step_are_those_of_the_processor():
    """Noise is drawn on the device; the prior term sees it through the learned schedule alone, from the second step."""
    on_cpu, on_gpu = (fit_diffusion(PROCESS, NETWORK, CONFIG, device=device).records for device in DEVICES)
    assert len(set(on_cpu.prior.values.tolist())) == 8
    np.testing.assert_allclose(on_gpu.prior[0], on_cpu.prior[0], rtol=1e-5)
    np.testing.assert_allclose(on_gpu.prior, on_cpu.prior, rtol=1e-2)
    np.testing.assert_allclose(on_gpu.reconstruction, on_cpu.reconstruction, rtol=1e-4)
    np.testing.assert_allclose(on_gpu.diffusion, on_cpu.diffusion, rtol=0.3)
    assert on_gpu.images.shape == on_cpu.images.shape


def test_no_step_waits_for_the_device():
    run = training._DiffusionRun(PROCESS, NETWORK, CONFIG, None, torch.device("cuda"), None)
    run.advance()  # which sends the order of the images of this epoch
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(4):
            run.advance()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    run.check_losses()


def test_the_model_of_the_paper_takes_deterministic_steps_of_every_kind():
    """Use the full size, since other sizes may select other algorithms."""
    config = replace(CONFIG, steps=2, batch=128, images=64, precision="bf16")
    one, other = (fit_diffusion(CircleProcess(), UNetConfig(), config, device="cuda").records for _ in range(2))
    np.testing.assert_array_equal(one.loss, other.loss)
    np.testing.assert_array_equal(one.images, other.images)


def test_the_classifier_learns_what_it_learns_on_the_processor():
    config = ClassifierConfig(channels=(8, 16), blocks=1, steps=4, batch=16, held_out=64)
    images = PROCESS.draw(np.arange(40) % 4, seed=1).images
    on_cpu, on_gpu = (fit_classifier(PROCESS, config, device=d).classifier.probabilities(images) for d in DEVICES)
    np.testing.assert_allclose(on_gpu, on_cpu, atol=1e-2)
