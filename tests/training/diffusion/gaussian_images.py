"""Images of a normal law, with the best prediction of their noise, and the exact law of their ancestral sampling.

Images of D numbers have mean m, which depends on the condition, and covariance Q diag(lambda) Q^T. Noised to gamma they
are normal too, so that the best prediction of the noise is sigma Q diag(1 / (alpha^2 lambda + sigma^2)) Q^T (z - alpha
m). With it the sampler of T steps is a linear map of normal numbers: along each direction the mean and the variance of
its images follow from T products, without a draw. The images should have mean m and variance lambda + exp(gamma_0),
with the noise that is left at time 0.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import expit

from saddlescope.training.diffusion.unet import UNetConfig
from saddlescope.training.diffusion.variational_diffusion import VariationalDiffusion

Array = np.ndarray[Any, np.dtype[np.float64]]


class GaussianImages(NamedTuple):
    """Normal law of images of D = 3 * pixels^2 numbers, for each of several conditions."""

    pixels: int
    conditions: Array  # (n, 4)
    means: Array  # of the images of each condition, (n, D)
    basis: Array  # orthonormal directions as columns, (D, D)
    variances: Array  # along the directions, (D,)


def gaussian_images(pixels: int, conditions: int, *, seed: int) -> GaussianImages:
    """Return a law with random directions, variances from 1 to 1e-4 and means that are linear in the condition."""
    rng = np.random.default_rng(seed)
    dims = 3 * pixels**2
    asked = rng.uniform(size=(conditions, 4))
    means = 0.5 + asked @ rng.normal(size=(4, dims)) / 2
    basis = np.linalg.qr(rng.normal(size=(dims, dims)))[0]
    return GaussianImages(pixels, asked, means, basis, np.geomspace(1.0, 1e-4, dims))


class SampledLaw(NamedTuple):
    """Law of the images of ancestral sampling along each direction; shape (D,) each."""

    mean: Array  # over that of the law
    variance: Array


def exact_sampling(law: GaussianImages, *, steps: int, gamma_min: float, gamma_max: float) -> SampledLaw:
    """Return the law of the sampled images from the formulas of the Markov chain, without a draw."""
    gammas = np.linspace(gamma_max, gamma_min, steps + 1)
    alphas, variances = np.sqrt(expit(-gammas)), expit(gammas)
    mean, variance = np.zeros_like(law.variances), np.ones_like(law.variances)
    for t, s in pairwise(range(steps + 1)):
        carried = alphas[t] / alphas[s]
        added = variances[t] - carried**2 * variances[s]
        # The mean of the image, given z, is (1 - gain alpha) m + gain z.
        gain = alphas[t] * law.variances / (alphas[t] ** 2 * law.variances + variances[t])
        of_z, of_image = carried * variances[s] / variances[t], alphas[s] * added / variances[t]
        mean = (of_z + of_image * gain) * mean + of_image * (1 - gain * alphas[t])
        variance = (of_z + of_image * gain) ** 2 * variance + variances[s] * added / variances[t]
    return SampledLaw(mean / alphas[-1], variance / alphas[-1] ** 2)


def sample_images(
    law: GaussianImages, *, each: int, steps: int, gamma_min: float, gamma_max: float, seed: int
) -> Array:
    """Sample images with the best prediction in place of a network, (n, each, D)."""
    model = VariationalDiffusion(best_predictor(law, gamma_min, gamma_max), gamma_min=gamma_min, gamma_max=gamma_max)
    asked = torch.from_numpy(np.repeat(law.conditions, each, axis=0))
    images = model.double().sample(asked, steps=steps, generators=[torch.Generator().manual_seed(seed)])
    return images.numpy().reshape(len(law.conditions), each, -1)


def best_predictor(law: GaussianImages, gamma_min: float, gamma_max: float) -> torch.nn.Module:
    """Return a module that predicts the noise from the law itself."""
    basis, variances = torch.from_numpy(law.basis), torch.from_numpy(law.variances)
    # The means are linear in the condition; this map is fitted to them.
    asked = np.concatenate([law.conditions, np.ones((len(law.conditions), 1))], axis=1)
    to_mean = torch.from_numpy(np.linalg.pinv(asked) @ law.means)

    class Best(torch.nn.Module):
        config = UNetConfig(pixels=law.pixels, channels=(4,))

        def forward(self, images: torch.Tensor, time: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
            gamma = (gamma_min + (gamma_max - gamma_min) * time)[:, None]
            alpha, sigma = torch.sigmoid(-gamma).sqrt(), torch.sigmoid(gamma).sqrt()
            mean = torch.cat([condition, torch.ones_like(condition[:, :1])], dim=1) @ to_mean
            along = (images.flatten(1) - alpha * mean) @ basis
            return ((along * sigma / (alpha**2 * variances + sigma**2)) @ basis.T).view_as(images)

    return Best()
