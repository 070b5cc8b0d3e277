"""Image training: steps, learning, and what a run leaves as it was."""

import math
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from small_runs import IMAGES, SIZES
from torch.nn import functional

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.training import SGD, TrainConfig, ViT, fit, load, training_run
from saddlescope.training.image_batches import epoch_order


@pytest.fixture(scope="module")
def digits():
    return load("digits").subset(100, 50)


def test_a_plain_loop_makes_the_same_steps(digits):
    """Compare with a reference implementation by PyTorch's own scheduler, step by step."""
    config = TrainConfig(optimizer=SGD(learning_rate=0.05, momentum=0.9), epochs=3, warmup_epochs=1, batch=40, seed=2)
    model = ViT(SIZES)
    history = fit(model, digits, config)

    twin = ViT(SIZES)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9)
    warm = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda k: (k + 1) / 2 if k < 2 else (1 + math.cos(math.pi * (k - 2) / 4)) / 2
    )
    losses = []
    for epoch in range(3):
        order = np.argsort(np.random.PCG64([2, epoch]).random_raw(100), kind="stable")
        for chosen in (order[:40], order[40:80]):
            images = torch.from_numpy(digits.train_images[chosen]).double() / 16
            images = ((images - digits.mean[0]) / digits.deviation[0]).float()
            optimizer.zero_grad()
            loss = functional.cross_entropy(twin(images), torch.from_numpy(digits.train_labels[chosen]))
            loss.backward()
            optimizer.step()
            warm.step()
            losses.append(loss.item())
    np.testing.assert_allclose(history.train_loss, losses, rtol=1e-4)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    test_images = torch.from_numpy((digits.test_images / 16 - digits.mean[0]) / digits.deviation[0]).float()
    logits, labels = model(test_images), torch.from_numpy(digits.test_labels)
    assert history.test_loss[-1] == pytest.approx(functional.cross_entropy(logits, labels).item(), rel=1e-5)
    assert history.test_accuracy[-1] == pytest.approx((logits.argmax(1) == labels).float().mean().item())


def test_it_learns_digits():
    history = fit(ViT(SIZES), load("digits"), replace(IMAGES, epochs=10))
    assert history.steps_per_epoch == 46
    assert history.test_steps[[0, -1]].tolist() == [0, 460]
    assert history.test_loss[0] == pytest.approx(math.log(10), rel=0.1)
    assert history.test_accuracy[-1] > 0.8


def test_models_in_double_precision_are_trained_in_it(digits):
    model = ViT(SIZES).double()
    single = fit(ViT(SIZES), digits, IMAGES)
    np.testing.assert_allclose(fit(model, digits, IMAGES).train_loss, single.train_loss, rtol=1e-4)
    assert model.norm.weight.dtype == torch.float64


def test_every_image_is_seen_once_an_epoch_and_epochs_differ():
    first, second = epoch_order(100, 0, 0), epoch_order(100, 0, 1)
    assert sorted(first) == sorted(second) == list(range(100))
    assert first.tolist() != second.tolist()
    assert first.tolist() != sorted(first)


def test_the_learning_rate_rises_linearly_and_falls_along_half_a_cosine():
    config = TrainConfig(optimizer=SGD(learning_rate=2.0), epochs=10, warmup_epochs=2)
    rates = [config.learning_rate(step, 5) for step in range(50)]
    np.testing.assert_allclose(rates[:10], 0.2 * np.arange(1, 11))
    assert rates[10] == 2.0
    assert rates[30] == pytest.approx(1.0)
    assert 0 < rates[49] < 0.01
    assert config.learning_rate(0, 5) > 0
    constant_top = TrainConfig(warmup_epochs=0, epochs=10)
    assert constant_top.learning_rate(0, 5) == 1e-4


def test_bad_input(digits):
    refused("batch must be at most the 100 training images; got 512", fit, ViT(SIZES), digits, TrainConfig())
    refused("checkpoint_every must be at least 1; got 0", fit, ViT(SIZES), digits, IMAGES, checkpoint_every=0)
    with pytest.raises(InputError, match=r"model must return a logit for each of the 10 classes; got shape \(50, 4\)"):
        fit(ViT(replace(SIZES, classes=4)), digits, IMAGES)


def test_a_batch_in_pieces_makes_the_same_step(digits):
    whole, pieces = ViT(SIZES).double(), ViT(SIZES).double()
    config = replace(IMAGES, optimizer=SGD(learning_rate=0.05))
    one, other = fit(whole, digits, config), fit(pieces, digits, replace(config, pieces=4))
    np.testing.assert_allclose(other.train_loss, one.train_loss, rtol=1e-6)
    for a, b in zip(whole.parameters(), pieces.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_lower_precision_learns_the_same_and_keeps_float32_weights(digits, precision):
    config = replace(IMAGES, precision=precision)

    model, exact = ViT(SIZES), fit(ViT(SIZES), digits, IMAGES)
    history = fit(model, digits, config)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    rounding = {"tf32": 1e-3, "bf16": 2e-2}[precision]  # of one product; the loss is a mean over many
    np.testing.assert_allclose(history.train_loss, exact.train_loss, rtol=2 * rounding)
    assert precision != "bf16" or not np.array_equal(history.train_loss, exact.train_loss)
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own
def test_a_compiled_model_makes_the_same_steps_but_for_rounding(digits, types_unchecked):
    plain, compiled = ViT(SIZES), ViT(SIZES)
    one = fit(plain, digits, replace(IMAGES, epochs=2))
    with types_unchecked():  # the compiler cannot see through run-time checks
        other = fit(compiled, digits, replace(IMAGES, epochs=2, compiled=True))
    np.testing.assert_allclose(other.train_loss, one.train_loss, rtol=1e-4)
    assert list(compiled.state_dict()) == list(plain.state_dict())


@pytest.mark.parametrize(("clock", "expected"), [(lambda: 0.0, list(range(13))), (count().__next__, [0, 12])])
def test_checkpoints_take_no_more_than_their_share(digits, tmp_path, monkeypatch, clock, expected):
    """By a clock that stands still, writing takes no time; by one that counts its readings, half of the time."""
    written = []
    monkeypatch.setattr(training_run, "write_state", lambda path, state: written.append(state["step"]))
    monkeypatch.setattr(training_run.time, "monotonic", clock)
    fit(ViT(SIZES), digits, IMAGES, checkpoint=tmp_path / "run")
    assert written == expected
