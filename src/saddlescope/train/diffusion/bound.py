"""A variational diffusion model: the bound on an image's log-likelihood that it is trained on, and its sampler.

Kingma et al. (2021), with the learned linear schedule of noise that appendix G.2 of Yang et al. (2024) names. At time t
in [0, 1] an image x has become

    z_t = alpha_t x + sigma_t eps,  sigma_t^2 = sigmoid(gamma_t),  alpha_t^2 = sigmoid(-gamma_t),  gamma_t = |w| t + b,

and the network predicts eps. Per image of D numbers, -log_2 p(x) / D is at most the sum of three terms, in bits per
dimension (divide by D ln 2):

- diffusion: |w| / 2 times the expectation over t and eps of |eps - eps_hat(z_t)|^2, here of one t and one eps an image
  (their equation 17);
- prior: the divergence of z_1 from a standard normal variable, in closed form;
- reconstruction: x seen through Gaussian noise of standard deviation d (the data noise) around z_0 / alpha_0. As
  z_0 / alpha_0 - x = exp(gamma_0 / 2) eps_0, its expectation is exp(gamma_0) / (2 d^2) + ln(d sqrt(2 pi)) a dimension,
  whatever the image. That is what `bound` gives unless it is told eps_0; the predecessor of the paper (Park et al.,
  2024, public code) draws eps_0, which has the same mean and costs noise.

At the initial gamma_0 = -5 and d = 1e-3 the reconstruction term is exp(-5) / (2e-6 ln 2) = 4860 bits a dimension. It
pulls gamma_0 towards ln(d^2) = -13.8, and Adam gets there in the paper's 20k steps, whatever the network; on the way,
what is sampled has a grain of exp(gamma_0 / 2). It pulls b, and so gamma_1 comes down as well: small models end at 3 to
4, where z_1 is no longer the pure noise that sampling starts from. It matters little: started from images noised to
gamma_1 = 3.4 instead, samples of 8 x 8 pixels are 0.005 brighter, and within 0.013 of the same concept positions.

Images enter in [0, 1], as the predecessor's do. The network sees the time (gamma_t - gamma_min) / (gamma_max -
gamma_min), from the end points the schedule started with, so that one level of noise keeps one name while it is learnt.
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
from saddlescope.train.configuration import check


@dataclass(frozen=True, eq=False, repr=False)
class Bound(ReprMixin):
    """The terms of the variational bound of each image, in bits per dimension; shape (batch,)."""

    diffusion: Float[Tensor, " batch"]
    prior: Float[Tensor, " batch"]
    reconstruction: Float[Tensor, " batch"]

    @property
    def total(self) -> Float[Tensor, " batch"]:
        """The bound on -log_2 p(image | condition) a dimension."""
        return self.diffusion + self.prior + self.reconstruction


@validate_arguments
class VariationalDiffusion(nn.Module):
    """A network that predicts noise, with the learned schedule of it.

    Args:
        network: from noised images (batch, 3, N, N), times (batch,) and conditions (batch, k) to the noise in the
            images, of their shape; its `config.pixels` is N.
        gamma_min, gamma_max: the schedule starts from gamma_min at time 0 to gamma_max at time 1; gamma is minus the
            logarithm of the signal-to-noise ratio.
        data_noise: standard deviation of the noise through which an image is seen at time 0, in units of the images.
    """

    def __init__(
        self, network: nn.Module, *, gamma_min: float = -5.0, gamma_max: float = 10.0, data_noise: float = 1e-3
    ) -> None:
        super().__init__()
        check("data_noise", data_noise, low=0, open_low=True)
        if not -math.inf < gamma_min < gamma_max < math.inf:
            raise InputError(f"gamma_min must be a number below gamma_max={gamma_max!r}; got {gamma_min!r}.")
        config: Any = network.config
        self.network, self.pixels = network, int(config.pixels)
        self.gamma_min, self.gamma_max, self.data_noise = gamma_min, gamma_max, data_noise
        self.slope = nn.Parameter(torch.tensor(gamma_max - gamma_min))  # w; its absolute value counts
        self.offset = nn.Parameter(torch.tensor(gamma_min))  # b

    def gamma(self, times: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Minus the logarithm of the signal-to-noise ratio at some times; never falls with time."""
        return self.offset + self.slope.abs() * times

    def noise_in(
        self, noised: Float[Tensor, "batch 3 side side"], gamma: Float[Tensor, " batch"], condition: Tensor
    ) -> Float[Tensor, "batch 3 side side"]:
        """The network's prediction of the noise in images noised to `gamma`."""
        return self.network(noised, (gamma - self.gamma_min) / (self.gamma_max - self.gamma_min), condition)

    def bound(
        self,
        images: Float[Tensor, "batch 3 side side"],
        condition: Float[Tensor, "batch condition"],
        *,
        times: Float[Tensor, " batch"] | None = None,
        noise: Float[Tensor, "batch 3 side side"] | None = None,
        first_noise: Float[Tensor, "batch 3 side side"] | None = None,
        generator: torch.Generator | None = None,
    ) -> Bound:
        """The three terms of each image; an unbiased estimate of the bound, by one time and one noise an image.

        Args:
            images: in the model's type, nominally in [0, 1].
            condition: of each image.
            times: in [0, 1]; None draws `antithetic_times`.
            noise: eps of the diffusion term; None draws it.
            first_noise: eps_0 of the reconstruction term; None takes the expectation over it.
            generator: of what is drawn; lives on the device where numbers are to be drawn. None: the global one of the
                images' device.
        """
        if condition.shape[0] != len(images):
            raise InputError(f"condition must have one row an image, {len(images)}; got {condition.shape[0]!r}.")
        if times is None:
            times = antithetic_times(images, generator)
        if noise is None:
            noise = _normal_like(images, generator)
        a_bit = 1 / math.log(2)

        gamma = self.gamma(times)
        alpha, sigma = (torch.sigmoid(sign * gamma).sqrt()[:, None, None, None] for sign in (-1, 1))
        error = noise - self.noise_in(alpha * images + sigma * noise, gamma, condition)
        diffusion = 0.5 * self.slope.abs() * error.square().mean(dim=(1, 2, 3))

        last = self.gamma(torch.ones_like(times[:1]))
        remains = torch.sigmoid(-last)  # alpha_1^2
        # sigma_1^2 - 1 = -alpha_1^2 and ln sigma_1^2 without cancellation: both are near zero.
        prior = 0.5 * (remains * images.square().mean(dim=(1, 2, 3)) - remains - functional.logsigmoid(last))

        spread = torch.exp(self.gamma(torch.zeros_like(times[:1]))) / self.data_noise**2
        squares = 1.0 if first_noise is None else first_noise.square().mean(dim=(1, 2, 3))
        reconstruction = 0.5 * spread * squares + math.log(self.data_noise * math.sqrt(2 * math.pi))
        return Bound(a_bit * diffusion, a_bit * prior, (a_bit * reconstruction).expand_as(diffusion))

    @torch.no_grad()
    def sample(
        self,
        condition: Float[Tensor, "batch condition"],
        *,
        steps: int = 100,
        generator: torch.Generator | Sequence[torch.Generator] | None = None,
    ) -> Float[Tensor, "batch 3 side side"]:
        """Images drawn from the model by ancestral sampling; without dropout, and not clipped to [0, 1].

        From z_1 standard normal, each step draws z_s from the law of z_s given z_t where x is what the network makes of
        z_t (Kingma et al., 2021, appendix A); the image is the mean z_0 / alpha_0 of p(x | z_0).

        Args:
            condition: of each image.
            steps: from time 1 to time 0, equal.
            generator: of the noise: lives on the device where numbers are to be drawn; the processor's gives every
                device the same noise. Several share the batch equally, each the noise of its own part, whatever the
                others are. None: the global one of the model's device.

        Raises:
            InputError: no steps, or generators that cannot share the batch equally.
        """
        check("steps", steps, low=1)
        if isinstance(generator, Sequence) and (not generator or len(condition) % len(generator)):
            raise InputError(
                f"generator must be one, or as many as divide the {len(condition)} images; got {len(generator)!r}."
            )
        was_training = self.training
        self.eval()
        try:
            gammas = self.gamma(torch.linspace(1, 0, steps + 1, device=condition.device, dtype=condition.dtype))
            z = _normal((len(condition), 3, self.pixels, self.pixels), condition, generator)
            for gamma_t, gamma_s in itertools.pairwise(gammas):
                z = self.step(z, gamma_t, gamma_s, condition, _normal_like(z, generator))
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
        """z_s drawn given z_t by standard normal `noise`, from gamma_t down to gamma_s."""
        predicted = self.noise_in(z, gamma_t.expand(len(z)), condition)
        share = -torch.expm1(gamma_s - gamma_t)  # of the variance of z_t that is not in z_s
        shrink = (torch.sigmoid(-gamma_s) / torch.sigmoid(-gamma_t)).sqrt()
        mean = shrink * (z - share * torch.sigmoid(gamma_t).sqrt() * predicted)
        return mean + (torch.sigmoid(gamma_s) * share).sqrt() * noise


def antithetic_times(images: Tensor, generator: torch.Generator | None) -> Float[Tensor, " batch"]:
    """One time an image, each uniform in [0, 1), together evenly spaced: (u + i) / batch with one uniform u.

    The estimate of the bound over a batch varies much less than with independent times (Kingma et al., 2021, appendix
    I.1).
    """
    where = images.device if generator is None else generator.device
    first = torch.rand((), generator=generator, device=where, dtype=images.dtype).to(images.device)
    return (first + torch.arange(len(images), device=images.device)) / len(images)


def _normal(
    shape: tuple[int, ...], like: Tensor, generator: torch.Generator | Sequence[torch.Generator] | None
) -> Tensor:
    if isinstance(generator, Sequence):
        return torch.cat([_normal((shape[0] // len(generator), *shape[1:]), like, each) for each in generator])
    where = like.device if generator is None else generator.device
    return torch.randn(shape, generator=generator, device=where, dtype=like.dtype).to(like.device)


def _normal_like(like: Tensor, generator: torch.Generator | Sequence[torch.Generator] | None) -> Tensor:
    return _normal(tuple(like.shape), like, generator)
