"""Variational diffusion model: the bound on an image's log-likelihood that it is trained on, and its sampler.

Kingma et al. (2021), with the learned linear noise schedule that appendix G.2 of Yang et al. (2024) names. At time t
in [0, 1] an image x has become

    z_t = alpha_t x + sigma_t eps,  sigma_t^2 = sigmoid(gamma_t),  alpha_t^2 = sigmoid(-gamma_t),  gamma_t = |w| t + b,

and the network predicts eps. Per image of D numbers, -log_2 p(x) / D is at most the sum of three terms, in bits per
dimension (divide by D ln 2):

- diffusion: |w| / 2 times the expectation over t and eps of |eps - eps_hat(z_t)|^2, with one t and one eps per image
  (their equation 17);
- prior: the divergence of z_1 from a standard normal variable, in closed form;
- reconstruction: x observed through Gaussian noise of standard deviation d (the data noise) around z_0 / alpha_0. As
  z_0 / alpha_0 - x = exp(gamma_0 / 2) eps_0, its expectation is exp(gamma_0) / (2 d^2) + ln(d sqrt(2 pi)) per
  dimension, whatever the image. The predecessor of the paper (Park et al., 2024, public code) draws eps_0, which has
  the same mean and adds noise.

At the initial gamma_0 = -5 and d = 1e-3 the reconstruction term is exp(-5) / (2e-6 ln 2) = 4860 bits per dimension. It
pulls gamma_0 towards ln(d^2) = -13.8, which Adam reaches in the paper's 20k steps, whatever the network; before that,
samples have a grain of exp(gamma_0 / 2). It acts on b, and so gamma_1 decreases as well: small models end at 3 to 4,
where z_1 is no longer the pure noise from which sampling starts. The effect is small: started from images noised to
gamma_1 = 3.4 instead, samples of 8 x 8 pixels are 0.005 brighter, and within 0.013 of the same concept positions.

Images enter in [0, 1], as the predecessor's do. The input of the network is the time (gamma_t - gamma_min) /
(gamma_max - gamma_min), with the initial end points of the schedule, so that a noise level keeps its input during
training.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.training.configuration import Bounds


@dataclass(frozen=True, eq=False, repr=False)
class Bound(ReprMixin):
    """Terms of the variational bound of each image, in bits per dimension; shape (batch,)."""

    diffusion: Float[Tensor, " batch"]
    prior: Float[Tensor, " batch"]
    reconstruction: Float[Tensor, " batch"]

    @property
    def total(self) -> Float[Tensor, " batch"]:
        """Bound on -log_2 p(image | condition) per dimension."""
        return self.diffusion + self.prior + self.reconstruction


@validate_arguments
class VariationalDiffusion(nn.Module):
    """Network that predicts noise, with a learned noise schedule.

    Args:
        network: network from noised images (batch, 3, N, N), times (batch,) and conditions (batch, k) to the noise in
            the images, of their shape; its `config.pixels` is N.
        gamma_min, gamma_max: initial schedule, from gamma_min at time 0 to gamma_max at time 1; gamma is minus the
            logarithm of the signal-to-noise ratio.
        data_noise: standard deviation of the noise through which an image is observed at time 0, in image units.
    """

    def __init__(
        self, network: nn.Module, *, gamma_min: float = -5.0, gamma_max: float = 10.0, data_noise: float = 1e-3
    ) -> None:
        super().__init__()
        Bounds(0, open_low=True).check("data_noise", data_noise)
        if not -math.inf < gamma_min < gamma_max < math.inf:
            raise InputError(f"gamma_min must be a number below gamma_max={gamma_max!r}; got {gamma_min!r}.")
        config: Any = network.config
        self.network, self.pixels = network, int(config.pixels)
        self.gamma_min, self.gamma_max, self.data_noise = gamma_min, gamma_max, data_noise
        self.slope = nn.Parameter(torch.tensor(gamma_max - gamma_min))  # w; only its absolute value matters
        self.offset = nn.Parameter(torch.tensor(gamma_min))  # b

    def gamma(self, times: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return minus the logarithm of the signal-to-noise ratio at some times; it never decreases with time."""
        return self.offset + self.slope.abs() * times

    def predict_noise(
        self, noised: Float[Tensor, "batch 3 side side"], gamma: Float[Tensor, " batch"], condition: Tensor
    ) -> Float[Tensor, "batch 3 side side"]:
        """Return the network's prediction of the noise in images noised to `gamma`."""
        return self.network(noised, (gamma - self.gamma_min) / (self.gamma_max - self.gamma_min), condition)

    def bound(
        self,
        images: Float[Tensor, "batch 3 side side"],
        condition: Float[Tensor, "batch condition"],
        *,
        times: Float[Tensor, " batch"] | None = None,
        noise: Float[Tensor, "batch 3 side side"] | None = None,
    ) -> Bound:
        """Return the three terms of each image: an unbiased estimate of the bound, by one time and one noise per image.

        Args:
            images: images in the model's type, nominally in [0, 1].
            condition: condition of each image.
            times: times in [0, 1]; None draws `antithetic_times`.
            noise: eps of the diffusion term; None draws it.
        """
        if condition.shape[0] != len(images):
            raise InputError(f"condition must have one row per image, {len(images)}; got {condition.shape[0]!r}.")
        if times is None:
            times = antithetic_times(images)
        if noise is None:
            noise = torch.randn_like(images)
        bits = 1 / math.log(2)  # per nat

        gamma = self.gamma(times)
        alpha, sigma = (torch.sigmoid(sign * gamma).sqrt()[:, None, None, None] for sign in (-1, 1))
        error = noise - self.predict_noise(alpha * images + sigma * noise, gamma, condition)
        diffusion = 0.5 * self.slope.abs() * error.square().mean(dim=(1, 2, 3))

        last = self.gamma(torch.ones_like(times[:1]))
        remains = torch.sigmoid(-last)  # alpha_1^2
        # sigma_1^2 - 1 = -alpha_1^2 and ln sigma_1^2 without cancellation: both are near zero.
        prior = 0.5 * (remains * images.square().mean(dim=(1, 2, 3)) - remains - functional.logsigmoid(last))

        spread = torch.exp(self.gamma(torch.zeros_like(times[:1]))) / self.data_noise**2
        reconstruction = 0.5 * spread + math.log(self.data_noise * math.sqrt(2 * math.pi))
        return Bound(bits * diffusion, bits * prior, (bits * reconstruction).expand_as(diffusion))

    @torch.no_grad()
    def sample(
        self, condition: Float[Tensor, "batch condition"], *, generators: Sequence[torch.Generator], steps: int = 100
    ) -> Float[Tensor, "batch 3 side side"]:
        """Draw images from the model by ancestral sampling; without dropout, and not clipped to [0, 1].

        From z_1 standard normal, each step draws z_s from the law of z_s given z_t with x the network's estimate from
        z_t (Kingma et al., 2021, appendix A); the image is the mean z_0 / alpha_0 of p(x | z_0).

        Args:
            condition: condition of each image.
            generators: sources of the noise, each of an equal part of the batch, on the device that draws it; a
                generator of the processor gives the same noise on every device.
            steps: number of equal steps from time 1 to time 0.

        Raises:
            InputError: no steps, or a batch that the generators do not divide equally.
        """
        Bounds(1).check("steps", steps)
        if not generators or len(condition) % len(generators):
            raise InputError(
                f"generators must be as many as divide the {len(condition)} images; got {len(generators)!r}."
            )
        shape = len(condition) // len(generators), 3, self.pixels, self.pixels

        def normal() -> Tensor:
            drawn = [torch.randn(shape, generator=g, device=g.device, dtype=condition.dtype) for g in generators]
            return torch.cat(drawn).to(condition.device)

        was_training = self.training
        self.eval()
        try:
            gammas = self.gamma(torch.linspace(1, 0, steps + 1, device=condition.device, dtype=condition.dtype))
            z = normal()
            for gamma_t, gamma_s in itertools.pairwise(gammas):
                z = self.step(z, gamma_t, gamma_s, condition, normal())
            return z / torch.sigmoid(-gammas[-1]).sqrt()
        finally:
            self.train(was_training)

    def step(
        self,
        z: Float[Tensor, "batch 3 side side"],
        gamma_t: Float[Tensor, ""],
        gamma_s: Float[Tensor, ""],
        condition: Float[Tensor, "batch condition"],
        noise: Float[Tensor, "batch 3 side side"],
    ) -> Float[Tensor, "batch 3 side side"]:
        """Draw z_s given z_t by standard normal `noise`, from gamma_t down to gamma_s."""
        predicted = self.predict_noise(z, gamma_t.expand(len(z)), condition)
        added = -torch.expm1(gamma_s - gamma_t)  # fraction of the variance of z_t that is not in z_s
        shrink = (torch.sigmoid(-gamma_s) / torch.sigmoid(-gamma_t)).sqrt()
        mean = shrink * (z - added * torch.sigmoid(gamma_t).sqrt() * predicted)
        return mean + (torch.sigmoid(gamma_s) * added).sqrt() * noise


def antithetic_times(images: Tensor) -> Float[Tensor, " batch"]:
    """Draw one time per image, each uniform in [0, 1), together evenly spaced: (u + i) / batch with one uniform u.

    The estimate of the bound over a batch varies much less than with independent times (Kingma et al., 2021, appendix
    I.1).
    """
    first = torch.rand((), device=images.device, dtype=images.dtype)
    return (first + torch.arange(len(images), device=images.device)) / len(images)
