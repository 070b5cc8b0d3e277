"""Training of the diffusion model on a GPU, if present: the same images, no waiting, and reproducible bits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr

from saddlescope.training.diffusion import training
from saddlescope.training.diffusion.circles import CircleProcess
from saddlescope.training.diffusion.classifier import ClassifierConfig, ConceptClassifier, fit_classifier
from saddlescope.training.diffusion.training import DiffusionConfig, fit_diffusion
from saddlescope.training.diffusion.unet import UNetConfig

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
PROCESS = CircleProcess(pixels=16, color_signal=0.7)
NETWORK = UNetConfig(pixels=16, channels=(16, 32), blocks=1, dropout=0.1)
CONFIG = DiffusionConfig(steps=8, batch=16, images=40, record_ratio=2.0, record_images=2, sampling_steps=3)


@pytest.fixture(autouse=True)
def reproducible_products(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def test_the_images_of_a_step_are_those_of_the_processor():
    """Noise is drawn on the device; the prior term sees it through the learned schedule alone, from the second step."""
    on_cpu, on_gpu = (fit_diffusion(PROCESS, NETWORK, CONFIG, device=device).records for device in ("cpu", "cuda"))
    assert len(set(on_cpu.prior.values.tolist())) == 8
    np.testing.assert_allclose(on_gpu.prior[0], on_cpu.prior[0], rtol=1e-5)
    np.testing.assert_allclose(on_gpu.prior, on_cpu.prior, rtol=1e-2)
    np.testing.assert_allclose(on_gpu.reconstruction, on_cpu.reconstruction, rtol=1e-4)
    np.testing.assert_allclose(on_gpu.diffusion, on_cpu.diffusion, rtol=0.3)
    assert on_gpu.images.shape == on_cpu.images.shape


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute")  # of the compiler's own
def test_a_killed_run_goes_on_to_the_last_bit(tmp_path, types_unchecked, precision, compiled):
    config = replace(CONFIG, precision=precision, compiled=compiled)
    classifier = ConceptClassifier(replace(NETWORK, dropout=0.0)).eval().to("cuda")
    reports = []

    def call(**options):
        return fit_diffusion(PROCESS, NETWORK, config, classifier=classifier, device="cuda", **options)

    def kill(fraction, note):
        reports.append(fraction)
        if len(reports) == 5:
            raise KeyboardInterrupt

    with types_unchecked():  # the compiler cannot see through run-time checks
        whole = call()
        with pytest.raises(KeyboardInterrupt):
            call(checkpoint=tmp_path / "run", checkpoint_every=2, report=kill)
        again = call(checkpoint=tmp_path / "run", checkpoint_every=2)
    xr.testing.assert_identical(again.records.drop_attrs(), whole.records.drop_attrs())
    torch.testing.assert_close(again.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


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


def test_the_classifier_learns_what_it_learns_on_the_processor(tmp_path):
    config = ClassifierConfig(channels=(8, 16), blocks=1, steps=4, batch=16, held_out=64)
    on_cpu, on_gpu = (fit_classifier(PROCESS, config, device=device).classifier for device in ("cpu", "cuda"))
    images = PROCESS.draw(np.arange(40) % 4, seed=1).images
    np.testing.assert_allclose(on_gpu.probabilities(images), on_cpu.probabilities(images), atol=1e-2)
    fit_classifier(PROCESS, config, device="cuda", checkpoint=tmp_path / "classifier")
    again = fit_classifier(PROCESS, config, device="cuda", checkpoint=tmp_path / "classifier").classifier
    torch.testing.assert_close(again.state_dict(), on_gpu.state_dict(), rtol=0, atol=0)
