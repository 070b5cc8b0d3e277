"""Variational bound compared with its definition and information theory; sampler compared with a known normal law."""

import math
from typing import Any

import gaussian_images as gaussian
import numpy as np
import pytest
import reference_bound as by_hand
import torch
from torch import nn

from refusals import refused
from saddlescope.training.diffusion.unet import UNet, UNetConfig
from saddlescope.training.diffusion.variational_diffusion import Bound, VariationalDiffusion, antithetic_times

SMALL = UNetConfig(pixels=8, channels=(8, 16), blocks=1)


class Case:
    """Return a model without a zero weight, and the inputs of its bound."""

    def __init__(self, config: UNetConfig, dtype: torch.dtype, images: int, **schedule: float) -> None:
        self.config, self.generator = config, torch.Generator().manual_seed(5)
        self.model = VariationalDiffusion(UNet(config), **schedule).to(dtype)
        with torch.no_grad():
            for parameter in self.model.network.parameters():
                if not parameter.any():
                    parameter.uniform_(-0.05, 0.05, generator=self.generator)
        side = config.pixels
        self.images = torch.rand(images, 3, side, side, generator=self.generator, dtype=dtype)
        self.condition = torch.rand(images, config.condition, generator=self.generator, dtype=dtype)
        self.times = 0.01 + 0.99 * torch.rand(images, generator=self.generator, dtype=dtype)
        self.noise = torch.randn(self.images.shape, generator=self.generator, dtype=dtype)

    def ours(self) -> Bound:
        return self.model.bound(self.images, self.condition, times=self.times, noise=self.noise)

    def weights(self) -> dict[str, Any]:
        return {name: value.detach().double().numpy() for name, value in self.model.network.state_dict().items()}

    def by_hand(self, weights: dict[str, Any], slope: float, offset: float, steps: float = 1e7) -> np.ndarray:
        network = by_hand.Network(weights, self.config.normalization, self.config.groups, self.config.heads)
        model = self.model
        schedule = by_hand.Schedule(slope, offset, model.gamma_min, model.gamma_max, model.data_noise)
        images, condition, times, noise = (
            part.double().numpy() for part in (self.images, self.condition, self.times, self.noise)
        )
        first = np.sign(noise)  # of mean square 1, as its expectation
        return by_hand.bound(
            network, schedule, images, condition, times=times, noise=noise, first_noise=first, steps=steps
        )


@pytest.mark.parametrize("slope", [7.0, -7.0])  # its absolute value counts
def test_terms_and_their_gradients_by_the_schedule(slope: float) -> None:
    case = Case(SMALL, torch.float64, images=3, gamma_min=-4.0, gamma_max=3.0, data_noise=0.05)
    with torch.no_grad():
        case.model.slope.fill_(slope)
        case.model.offset.fill_(-4.5)
    found, weights = case.ours(), case.weights()
    terms = torch.stack([found.diffusion, found.prior, found.reconstruction])
    np.testing.assert_allclose(terms.detach().numpy(), case.by_hand(weights, 7.0, -4.5), rtol=2e-6)
    step = 1e-5  # short: the network sees the sine of 1000 times the time
    for k, term in enumerate(terms):
        by_slope, by_offset = torch.autograd.grad(
            term.mean(), (case.model.slope, case.model.offset), retain_graph=True, materialize_grads=True
        )
        for gradient, (up, side) in ((by_slope * math.copysign(1, slope), (1, 0)), (by_offset, (0, 1))):
            ahead, behind = (
                case.by_hand(weights, 7.0 + sign * up * step, -4.5 + sign * side * step, steps=1e6)[k].mean()
                for sign in (1, -1)
            )
            assert gradient.item() == pytest.approx((ahead - behind) / (2 * step), rel=1e-4, abs=1e-7)


def test_bound_of_discrete_time_tends_to_that_of_continuous_time() -> None:
    case = Case(SMALL, torch.float64, images=2)
    exact = case.ours().diffusion.detach().numpy()
    weights = case.weights()
    for steps in (1e3, 1e5):
        above = case.by_hand(weights, 15.0, -5.0, steps=steps)[0] / exact - 1
        np.testing.assert_allclose(above, 15 / (2 * steps), rtol=0.01)


def test_diffusion_term_of_the_best_prediction_is_the_information_lost_to_noise() -> None:
    # E diffusion = I(x; z_0) - I(x; z_1), in bits, for a normal law: no formula of the bound is used.
    law = gaussian.gaussian_images(2, 2, seed=3)
    model = VariationalDiffusion(gaussian.best_predictor(law, -6.0, 4.0), gamma_min=-6.0, gamma_max=4.0).double()
    many = 100_000
    torch.manual_seed(0)
    draws = torch.randn(many, len(law.variances), dtype=torch.float64).numpy()
    images = (law.means[0] + (draws * np.sqrt(law.variances)) @ law.basis.T).reshape(many, 3, 2, 2)
    condition = torch.from_numpy(law.conditions[:1]).expand(many, -1)
    found = model.bound(torch.from_numpy(images), condition).diffusion.detach().numpy()
    kept, lost = (np.log2(1 + law.variances * math.exp(-gamma)).mean() / 2 for gamma in (-6.0, 4.0))
    error = found.std() / math.sqrt(many)  # above the true one: the times are antithetic
    assert error < 0.004 * (kept - lost)
    assert abs(found.mean() - (kept - lost)) < 4 * error


def test_antithetic_times_are_even_and_together_uniform() -> None:
    images = torch.zeros(8, 3, 4, 4)
    torch.manual_seed(0)
    times = torch.stack([antithetic_times(images) for _ in range(500)])
    torch.testing.assert_close(times.diff(dim=1), torch.full((500, 7), 1 / 8))
    first = times[:, 0] * 8
    assert 0 <= first.min() < 0.02
    assert 0.98 < first.max() <= 1
    assert abs(first.mean() - 0.5) < 4 / math.sqrt(12 * 500)


def test_gamma_never_falls_with_time() -> None:
    model = VariationalDiffusion(UNet(SMALL))
    times = torch.linspace(0, 1, 11)
    torch.testing.assert_close(model.gamma(times), torch.linspace(-5, 10, 11))
    with torch.no_grad():
        model.slope.fill_(-3.0)
    assert (model.gamma(times).diff() > 0).all()


def test_network_sees_times_from_the_first_end_points() -> None:
    seen = []

    class Spy(nn.Module):
        config = SMALL

        def forward(self, z: torch.Tensor, time: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
            seen.append(time.detach())
            return z

    model = VariationalDiffusion(Spy(), gamma_min=-2.0, gamma_max=6.0)
    with torch.no_grad():
        model.offset.fill_(-4.0)
    model.bound(torch.zeros(2, 3, 8, 8), torch.zeros(2, 4), times=torch.tensor([0.0, 0.5]))
    torch.testing.assert_close(seen[0], torch.tensor([-0.25, 0.25]))


@pytest.mark.parametrize("gamma_min", [-2.0, -9.0])
def test_samples_of_a_normal_law_are_those_of_the_markov_chain(gamma_min: float) -> None:
    each, steps, law = 4000, 12, gaussian.gaussian_images(2, 2, seed=8)
    schedule = {"steps": steps, "gamma_min": gamma_min, "gamma_max": 5.0}
    exact = gaussian.exact_sampling(law, **schedule)
    images = gaussian.sample_images(law, each=each, seed=1, **schedule) @ law.basis
    wanted = exact.mean * (law.means @ law.basis)
    errors = (images.mean(axis=1) - wanted) / np.sqrt(exact.variance / each)
    assert np.abs(errors).max() < 4
    white = (images - wanted[:, None]).reshape(-1, len(law.variances)) / np.sqrt(exact.variance)
    beyond = (white.T @ white / len(white) - np.eye(len(law.variances))) * math.sqrt(len(white))
    assert np.abs(beyond).max() < 4 * math.sqrt(2)
    assert np.abs(exact.variance / law.variances - 1).max() > 0.1  # far from the law itself: these are few steps


def test_a_hundred_steps_lose_a_tenth_of_the_variance() -> None:
    """Appendix G.2 samples with 100 steps; the learned schedule begins at the data noise of 1e-3."""
    law, start = gaussian.gaussian_images(4, 4, seed=0), math.log(1e-3**2)
    sampled = gaussian.exact_sampling(law, steps=100, gamma_min=start, gamma_max=10.0).variance
    assert np.max(1 - sampled / (law.variances + math.exp(start))) == pytest.approx(0.11, abs=0.005)


def test_sampling_is_reproducible_and_leaves_the_mode_as_it_was() -> None:
    model = VariationalDiffusion(UNet(UNetConfig(pixels=8, channels=(8, 16), blocks=1, dropout=0.5))).train()
    condition = torch.rand(2, 4, generator=torch.Generator().manual_seed(1))
    first, again, other = (
        model.sample(condition, steps=3, generators=[torch.Generator().manual_seed(seed)]) for seed in (0, 0, 1)
    )
    assert first.shape == (2, 3, 8, 8)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert model.training
    assert model.network.training
    assert not first.requires_grad


def test_misfits_of_the_model_are_refused(types_unchecked) -> None:
    model, images, condition = VariationalDiffusion(UNet(SMALL)), torch.zeros(2, 3, 8, 8), torch.zeros(2, 4)
    generators = [torch.Generator()] * 3
    with types_unchecked():
        refused(r"data_noise must be above 0; got 0\.0\.", VariationalDiffusion, UNet(SMALL), data_noise=0.0)
        sentence = r"gamma_min must be a number below gamma_max=10\.0; got 10\.0\."
        refused(sentence, VariationalDiffusion, UNet(SMALL), gamma_min=10.0)
        refused(r"condition must have one row per image, 2; got 1\.", model.bound, images, condition[:1])
        refused(r"steps must be at least 1; got 0\.", model.sample, condition, generators=generators[:1], steps=0)
        sentence = r"generators must be as many as divide the 2 images; got 3\."
        refused(sentence, model.sample, condition, generators=generators)
