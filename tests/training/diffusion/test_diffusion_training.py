"""Training of the diffusion model: steps and records."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_diffusion import CONFIG, NETWORK, PROCESS

from refusals import refused
from saddlescope.training.diffusion import training
from saddlescope.training.diffusion.circles import CircleProcess
from saddlescope.training.diffusion.classifier import ConceptClassifier
from saddlescope.training.diffusion.positions import concept_positions
from saddlescope.training.diffusion.training import DiffusionConfig, fit_diffusion
from saddlescope.training.diffusion.unet import UNet, UNetConfig
from saddlescope.training.diffusion.variational_diffusion import VariationalDiffusion

ONE_STEP = replace(CONFIG, steps=1, first_record=1)
CLASSIFIER = ConceptClassifier(UNetConfig(pixels=8, channels=(8,), blocks=1), hidden=4, seed=3).eval()


def test_a_plain_loop_makes_the_same_steps():
    """Compare with a reference implementation in PyTorch, weight by weight, without dropout or resuming."""
    network = replace(NETWORK, dropout=0.0)
    fitted = fit_diffusion(PROCESS, network, CONFIG)
    records = fitted.records

    drawn = PROCESS.draw([0] * 10 + [1] * 10 + [2] * 10, seed=0)
    model = VariationalDiffusion(UNet(network, seed=0))
    averaged = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    losses, gammas = [], []
    shuffling = int(np.random.PCG64([0, 3]).random_raw()) // 2
    for step in range(9):
        order = np.argsort(np.random.PCG64([shuffling, step // 3]).random_raw(30), kind="stable")
        chosen = order[step % 3 * 8 : step % 3 * 8 + 8]
        torch.manual_seed(int(np.random.PCG64([0, 1, step]).random_raw()) // 2)
        times = (torch.rand(()) + torch.arange(8)) / 8
        noise = torch.randn(8, 3, 8, 8)
        images, conditions = torch.from_numpy(drawn.images[chosen]), torch.from_numpy(drawn.conditions[chosen])
        bound = model.bound(images, conditions, times=times, noise=noise)
        optimizer.zero_grad()
        bound.total.mean().backward()
        optimizer.step()
        losses.append([part.mean().item() for part in (bound.diffusion, bound.prior, bound.reconstruction)])
        kept = min(0.5, (2 + step) / (11 + step))
        for name, weight in model.named_parameters():
            averaged[name] = kept * averaged[name] + (1 - kept) * weight.detach()
        offset, slope = averaged["offset"].item(), averaged["slope"].item()
        gammas.append([offset, offset + slope])

    found = np.stack([records.diffusion, records.prior, records.reconstruction], axis=1)
    np.testing.assert_allclose(found, losses, rtol=1e-4)
    np.testing.assert_allclose(records.loss, np.sum(losses, axis=1), rtol=1e-5)
    for name, weight in fitted.model.named_parameters():
        torch.testing.assert_close(weight, averaged[name], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(records.gamma, np.array(gammas)[records.step - 1], rtol=1e-5)
    assert not fitted.model.training


def test_records_are_on_the_geometric_schedule_and_at_the_end():
    for config, steps in (
        (CONFIG, [2, 4, 8, 9]),
        (replace(CONFIG, first_record=1, record_ratio=1.5), [1, 2, 3, 4, 6, 9]),
        (replace(CONFIG, first_record=9), [9]),
    ):
        assert [step for step in range(10) if config.recorded(step)] == steps


def test_what_is_recorded_is_read_off_the_images_stored():
    records = fit_diffusion(PROCESS, NETWORK, CONFIG, classifier=CLASSIFIER).records
    assert records.step.values.tolist() == [2, 4, 8, 9]
    assert records.images.shape == (4, 4, 2, 3, 8, 8)
    read = concept_positions(records.images.values, PROCESS)
    np.testing.assert_array_equal(records.position, read.position)
    np.testing.assert_array_equal(records.blank, read.blank)
    np.testing.assert_array_equal(records.position.isnull().any("concept"), records.blank)
    flat = torch.from_numpy(records.images.values.reshape(-1, 3, 8, 8))
    found = records.probability.values.reshape(-1, 2)
    np.testing.assert_allclose(found, torch.sigmoid(CLASSIFIER(flat / 255)).detach(), rtol=1e-5)
    assert records.unseen.values.tolist() == ["blue, small"]
    assert records.raw_position.shape == (4, 1, 2, 2)
    assert records.loss.dims == ("batch",)
    assert fit_diffusion(PROCESS, NETWORK, CONFIG).records.probability.isnull().all()


def test_images_of_the_last_record_are_what_the_model_draws_from_that_noise():
    """Compare class by class; each class has its own noise, the same for both sets of weights."""
    fitted = fit_diffusion(PROCESS, NETWORK, CONFIG)
    last = fitted.records.images.values[-1]
    stream = int(np.random.PCG64([0, 2]).random_raw()) // 2
    for index in range(4):
        prompts = torch.from_numpy(PROCESS.prompts([index, index]))
        noise = torch.Generator().manual_seed(int(np.random.PCG64([stream, index]).random_raw()) // 2)
        images = fitted.model.sample(prompts, steps=2, generators=[noise])
        drawn = (images.clamp(0, 1) * 255).round().numpy()
        assert np.abs(last[index] - drawn).max() <= 1
    shown = last.astype(int)
    assert np.abs(shown[:, 0] - shown[:, 1]).max() > 50  # each image has noise of its own
    assert np.abs(shown[0] - shown[1]).max() > 50


def test_many_images_are_drawn_in_parts_that_all_differ():
    images = fit_diffusion(PROCESS, NETWORK, replace(ONE_STEP, record_images=130)).records.images.values[0].astype(int)
    for early in (0, 1, 127):  # the last two are of a second part
        assert np.abs(images[:, 129] - images[:, early]).max() > 50


def test_every_record_draws_from_the_same_noise():
    """Use a vanishing learning rate, at which records do not change."""
    still = fit_diffusion(PROCESS, NETWORK, replace(CONFIG, learning_rate=1e-12)).records
    images = still.images.values.astype(int)
    assert np.abs(images - images[0]).max() <= 1
    assert still.loss[0] != still.loss[1]  # the noise of training moves on
    other = fit_diffusion(PROCESS, NETWORK, replace(CONFIG, learning_rate=1e-12, seed=1)).records
    assert np.abs(other.images.values.astype(int) - images).max() > 50


def test_records_and_checkpoints_change_no_step(tmp_path):
    often = fit_diffusion(PROCESS, NETWORK, CONFIG, checkpoint=tmp_path / "run", checkpoint_every=1).records
    seldom = fit_diffusion(PROCESS, NETWORK, replace(CONFIG, first_record=9)).records
    np.testing.assert_array_equal(often.loss, seldom.loss)
    np.testing.assert_array_equal(often.images[-1], seldom.images[-1])


def test_without_an_average_raw_positions_are_the_positions_and_with_one_they_are_not():
    strong = replace(CONFIG, learning_rate=0.03)
    plain = fit_diffusion(PROCESS, NETWORK, replace(strong, average=0.0)).records
    np.testing.assert_array_equal(plain.raw_position, plain.position[:, 3:])
    averaged = fit_diffusion(PROCESS, NETWORK, replace(strong, average=0.99)).records
    np.testing.assert_array_equal(averaged.loss, plain.loss)  # an average changes no step
    np.testing.assert_allclose(averaged.raw_position, plain.raw_position, atol=0.02)  # the same weights and noise
    assert not np.array_equal(averaged.raw_position, averaged.position[:, 3:], equal_nan=True)


def test_losses_that_wait_on_the_device_are_looked_at_before_they_are_kept(tmp_path):
    run = training._DiffusionRun(PROCESS, NETWORK, CONFIG, None, torch.device("cpu"), tmp_path / "run")
    run.losses[:3, 0] = torch.tensor([2.0, math.nan, math.inf])
    run.step = 1
    run.save()
    content = (tmp_path / "run").read_bytes()
    run.step = 3
    for look in (run.save, run.record):
        refused(r"the loss is nan at step 1[.] Lower it", look)
    assert (tmp_path / "run").read_bytes() == content
    assert not run.kept


def test_bad_input():
    for network, config, message in (
        (NETWORK, replace(CONFIG, batch=31), "batch must be at most the 30 training images; got 31"),
        (replace(NETWORK, pixels=16), CONFIG, r"network\.pixels must be those of the process, 8; got 16"),
        (replace(NETWORK, condition=3), CONFIG, r"network\.condition must be 4, the length of a prompt; got 3"),
    ):
        refused(message, fit_diffusion, PROCESS, network, config)
    refused("checkpoint_every must be at least 1; got 0", fit_diffusion, PROCESS, NETWORK, CONFIG, checkpoint_every=0)


def test_bfloat16_learns_the_same_and_keeps_float32_weights():
    exact, rounded = (fit_diffusion(PROCESS, NETWORK, replace(CONFIG, precision=p)) for p in ("float32", "bf16"))
    np.testing.assert_allclose(rounded.records.diffusion, exact.records.diffusion, rtol=4e-2)
    assert not np.array_equal(rounded.records.diffusion, exact.records.diffusion)
    assert {weight.dtype for weight in rounded.model.parameters()} == {torch.float32}


def test_all_classes_may_be_trained_on():
    records = fit_diffusion(PROCESS, NETWORK, replace(ONE_STEP, classes=(3, 1, 0, 2))).records
    assert records.raw_position.shape == (1, 0, 2, 2)
    some = fit_diffusion(PROCESS, NETWORK, replace(ONE_STEP, classes=(0, 3))).records
    assert some.unseen.values.tolist() == ["red, small", "blue, big"]


def test_it_learns_the_strong_concept_for_the_unseen_class_too(types_unchecked):
    """Train a tiny network for 150 steps: images conditioned on red are red, those on blue are blue."""
    process = CircleProcess(pixels=8, color_signal=1.0, size_signal=0.2, size_jitter=0.1, diameter=0.7, place=0.1)
    config = DiffusionConfig(
        steps=150,
        batch=32,
        images=256,
        learning_rate=3e-3,
        first_record=150,
        record_images=8,
        sampling_steps=10,
        threads=1,
    )
    with types_unchecked():
        records = fit_diffusion(process, replace(NETWORK, channels=(16, 16), dropout=0.0), config).records
    color = np.nanmean(records.position.values[-1, :, :, 0], axis=1)
    assert records.blank[-1].mean() < 0.2
    assert color[2:].min() - color[:2].max() > 0.4
    assert records.diffusion[-20:].mean() < records.diffusion[:20].mean() / 2
    assert records.gamma[-1, 0] < -5.2  # the noise left at time 0 shrinks, from exp(-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute")  # of the compiler's own
def test_a_compiled_network_makes_the_same_steps_but_for_rounding(types_unchecked):
    network, config = replace(NETWORK, channels=(8,), dropout=0.0), replace(CONFIG, steps=3)
    one = fit_diffusion(PROCESS, network, config)
    with types_unchecked():  # the compiler cannot see through run-time checks
        other = fit_diffusion(PROCESS, network, replace(config, compiled=True))
    np.testing.assert_allclose(other.records.diffusion, one.records.diffusion, rtol=1e-3)
    assert list(other.model.state_dict()) == list(one.model.state_dict())
