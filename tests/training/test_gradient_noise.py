"""Accumulated gradient noise: Adam with signs, at weights that never move."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_runs import NOISE, SIZES

from refusals import refused
from saddlescope.ranks import AtSteps, RankTracker
from saddlescope.training import SGD, ViT, load
from saddlescope.training.gradient_noise import SignedAdam, accumulate_noise

SMALL = replace(SIZES, depth=1)
SCHEDULE = AtSteps(1, 3, 7)


@pytest.fixture(scope="module")
def digits():
    return load("digits").subset(100)


def noise(data, config=NOISE, **options):
    return accumulate_noise(ViT(SMALL, seed=1), data, config, **{"draws": 3, "seed": 0, "schedule": SCHEDULE} | options)


def with_gradients(gradients, optimizers, parameters):
    """Make a step with each gradient, at a rate that changes."""
    for k, gradient in enumerate(gradients):
        for optimizer, parameter in zip(optimizers, parameters, strict=True):
            optimizer.param_groups[0]["lr"] = 0.1 / (k + 1)
            parameter.grad = gradient.clone()
            optimizer.step()


def test_each_draw_is_adam_with_signed_gradients():
    torch.manual_seed(0)
    start, gradients = torch.randn(4, 3, dtype=torch.float64), torch.randn(12, 4, 3, dtype=torch.float64)
    frozen = torch.nn.Parameter(start.clone())
    draws = SignedAdam(iter([frozen]), learning_rate=0.1, betas=(0.9, 0.99), draws=5, seed=2)
    with_gradients(gradients, [draws], [frozen])
    signs = np.stack([draws.signs(step) for step in range(12)])
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert torch.equal(frozen, start)
    for draw in range(5):
        moved = torch.nn.Parameter(start.clone())
        adam = torch.optim.Adam([moved], lr=0.1, betas=(0.9, 0.99))
        with_gradients(gradients * torch.from_numpy(signs[:, draw]).view(-1, 1, 1), [adam], [moved])
        torch.testing.assert_close(draws.state[frozen]["weights"][draw], moved.detach(), rtol=1e-12, atol=1e-14)


def test_signs_are_fair_and_independent():
    draws = SignedAdam(
        iter([torch.nn.Parameter(torch.zeros(1))]), learning_rate=1.0, betas=(0.9, 0.99), draws=20, seed=0
    )
    signs = np.stack([draws.signs(step) for step in range(2000)])
    assert np.abs(signs.mean(axis=0)).max() < 5 / 2000**0.5
    assert np.abs(np.corrcoef(signs.T) - np.eye(20)).max() < 5 / 2000**0.5


def test_the_first_record_is_as_large_as_that_of_training(digits):
    """Adam's first step has one size for every weight, and both take the gradient at the initial weights."""
    from saddlescope.training import fit

    model = ViT(SMALL, seed=1)
    tracker = RankTracker(model, schedule=SCHEDULE)
    fit(model, digits, NOISE, tracker=tracker)
    trained, found = tracker.to_xarray(), noise(digits)
    assert found.step.values.tolist() == [*SCHEDULE.steps, 16] == trained.step.values.tolist()
    for draw in range(3):
        np.testing.assert_allclose(
            found.update_norm.sel(draw=draw).isel(step=0), trained.update_norm.isel(step=0), rtol=0.02
        )
    assert (found.update_norm.isel(step=-1).std("draw") > 0.01).all()


def test_the_model_is_as_before(digits):
    model = ViT(SMALL, seed=1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    accumulate_noise(model, digits, NOISE, draws=3, seed=0, schedule=SCHEDULE)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(one.requires_grad and one.grad is None for one in model.parameters())


def test_another_optimizer_and_no_draws_are_refused(digits):
    refused("must be Adam", noise, digits, replace(NOISE, optimizer=SGD()))
    refused("draws must be at least 1; got 0", noise, digits, draws=0)
