"""Comparison of the bound with its definition, a normal law of images, and classifiers."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.concept_learning.appendix_g import gaussian_images as gaussian
from saddlescope.papers.concept_learning.appendix_g import reference_bound as by_hand

if TYPE_CHECKING:
    from saddlescope.train.diffusion.classifier import ClassifierConfig
    from saddlescope.train.diffusion.variational_diffusion import VariationalDiffusion

_STEP = 1e-5  # of central differences

_DATA_NOISE = 1e-3

_SCHEDULES = {"initial": (-5.0, 10.0), "learned": (math.log(_DATA_NOISE**2), 10.0)}  # gamma_min, gamma_max

_STEPS = (10, 20, 50, 100, 200, 500, 1000)  # of sampling, for which the exact law is computed

_MANY = 200_000  # images for the diffusion term of a normal law

_OTHER_STREAM = 7  # third number of the seed of images: not those of the classifier's training


def check_sizes(params: Any) -> None:
    """Raise InputError where sizes do not fit each other, before any work.

    Raises:
        InputError: images that a network cannot halve, or that are too small for their circles, or no such width.
    """
    from saddlescope.train.diffusion.circles import CircleProcess
    from saddlescope.train.diffusion.unet import UNetConfig

    UNetConfig(pixels=params.pixels, channels=params.channels)
    CircleProcess(pixels=params.pixels)
    _classifier_config(params).backbone(params.classifier_pixels)
    for signal in params.signals:
        CircleProcess(pixels=params.classifier_pixels, color_signal=signal)


def compare_bound(params: Any, report: Report) -> xr.Dataset:
    """Compare the bound of single images, and its gradients by random directions and by the schedule, both ways."""
    import torch

    from saddlescope.train.diffusion.circles import CircleProcess
    from saddlescope.train.diffusion.unet import UNet, UNetConfig
    from saddlescope.train.diffusion.variational_diffusion import VariationalDiffusion

    config = UNetConfig(pixels=params.pixels, channels=params.channels)
    model = VariationalDiffusion(UNet(config, seed=params.seed), data_noise=_DATA_NOISE).eval()
    rng = np.random.default_rng((params.seed, 1))
    with torch.no_grad():
        for parameter in model.network.parameters():
            if not parameter.any():  # zero at the start; drawn, so that every path counts
                parameter.copy_(torch.from_numpy(rng.uniform(-0.05, 0.05, tuple(parameter.shape))))
    drawn = CircleProcess(pixels=params.pixels).draw(np.arange(params.images) % 4, seed=(params.seed, 1))
    times = ((np.arange(params.images) + rng.uniform(0.1, 0.9, params.images)) / params.images).astype(np.float32)
    noise, first = rng.normal(size=(2, *drawn.images.shape)).astype(np.float32)
    tensors = [torch.from_numpy(part) for part in (drawn.images, drawn.conditions, times, noise, first)]
    found = model.bound(tensors[0], tensors[1], times=tensors[2], noise=tensors[3], first_noise=tensors[4])

    weights = {name: value.double().numpy() for name, value in model.network.state_dict().items()}
    images, condition, at, later, earlier = (
        part.astype(np.float64) for part in (drawn.images, drawn.conditions, times, noise, first)
    )

    def hand(weights: Any, slope: float = 15.0, offset: float = -5.0, steps: float = 1e7) -> np.ndarray:
        network = by_hand.Network(weights, config.normalization, config.groups, config.heads)
        return by_hand.bound(
            network, by_hand.Schedule(slope, offset, -5.0, 10.0, _DATA_NOISE), images, condition, times=at,
            noise=later, first_noise=earlier, steps=steps,
        )  # fmt: skip

    report(0.1, "the bound by hand")
    terms = {"diffusion": found.diffusion, "prior": found.prior, "reconstruction": found.reconstruction}
    data = {
        "ours": (("term", "image"), np.stack([term.detach().numpy() for term in terms.values()]), {"units": "bits"}),
        "by_hand": (("term", "image"), hand(weights), {"units": "bits"}),
        "time": ("image", times),
    }
    found.diffusion.mean().backward()
    gradients = _compare_gradients(model, rng, params.directions, weights, hand, report)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return xr.Dataset(data, coords={"term": list(terms)}, attrs={"parameters": parameters}).merge(gradients)


def _compare_gradients(
    model: "VariationalDiffusion", rng: np.random.Generator, directions: int, weights: dict[str, np.ndarray],
    hand: Callable[..., np.ndarray], report: Report,
) -> xr.Dataset:  # fmt: skip
    """Return derivatives of the mean diffusion term by PyTorch and by central differences, and their scale."""
    named = {name: parameter for name, parameter in model.network.named_parameters() if parameter.grad is not None}
    gradient = {name: parameter.grad.double().numpy() for name, parameter in named.items()}  # type: ignore[union-attr]
    norm = math.sqrt(sum(float(np.sum(part**2)) for part in gradient.values()))
    labels, ours, slow, scale = [], [], [], []
    for k in range(directions):
        direction = {name: rng.normal(size=part.shape) for name, part in gradient.items()}
        ahead, behind = (
            hand({name: weights[name] + sign * _STEP * direction[name] for name in weights})[0].mean()
            for sign in (1, -1)
        )
        labels.append(f"weights {k + 1}")
        ours.append(sum(float(np.sum(gradient[name] * direction[name])) for name in gradient))
        slow.append((ahead - behind) / (2 * _STEP))
        scale.append(norm)
        report(0.2 + 0.7 * (k + 1) / directions, "gradients by hand")
    by_schedule = [parameter.grad.item() for parameter in (model.slope, model.offset)]  # type: ignore[union-attr]
    for label, value, (up, side) in zip(("slope", "offset"), by_schedule, ((1, 0), (0, 1)), strict=True):
        # A shorter chain: at so small a difference the longest would show its rounding.
        ahead, behind = (
            hand(weights, 15.0 + sign * up * _STEP, -5.0 + sign * side * _STEP, 1e6)[0].mean() for sign in (1, -1)
        )
        labels.append(label)
        ours.append(value)
        slow.append((ahead - behind) / (2 * _STEP))
        scale.append(math.hypot(*by_schedule))
    report(1.0, "gradients by hand")
    return xr.Dataset(
        {
            "gradient": ("along", ours, {"units": "bits"}),
            "gradient_by_hand": ("along", slow, {"units": "bits"}),
            "gradient_norm": ("along", scale, {"units": "bits"}),
        },
        coords={"along": labels},
    )


def normal_law(params: Any, report: Report) -> xr.Dataset:
    """Return the diffusion term and ancestral sampling of a normal law with the best prediction of noise."""
    law = gaussian.gaussian_images(params.law_pixels, 4, seed=params.seed)
    low, high = _SCHEDULES["learned"]
    exact = gaussian.exact_sampling(law, steps=params.law_steps, gamma_min=low, gamma_max=high)
    images = gaussian.sample_images(
        law, each=params.law_images, steps=params.law_steps, gamma_min=low, gamma_max=high, seed=params.seed
    )
    report(0.6, "samples of a normal law")
    along = images @ law.basis
    wanted, target = law.means @ law.basis, law.variances + math.exp(low)
    centred = (along - along.mean(axis=1, keepdims=True)).reshape(-1, len(target))
    n = len(centred) - len(law.means)  # a mean is taken off each condition
    covariance = centred.T @ centred / n
    shortfall = np.stack([
        [1 - gaussian.exact_sampling(law, steps=steps, gamma_min=start, gamma_max=stop).variance
         / (law.variances + math.exp(start)) for steps in _STEPS]
        for start, stop in _SCHEDULES.values()
    ])  # fmt: skip
    information, error = _information(law, params.seed)
    kept, left = (np.log2(1 + law.variances * math.exp(-gamma)).mean() / 2 for gamma in _SCHEDULES["initial"])
    report(1.0, "information of a normal law")
    return xr.Dataset(
        {
            "law_variance": ("direction", target),
            "chain_variance": ("direction", exact.variance),
            "sampled_variance": ("direction", np.diag(covariance)),
            "mean_deviation": (
                ("prompt", "direction"), (along.mean(axis=1) - wanted) / np.sqrt(exact.variance / params.law_images)
            ),
            "covariance_deviation": (
                "against", [covariance_deviation(covariance, variances, n) for variances in (target, exact.variance)]
            ),
            "shortfall": (("schedule", "steps", "direction"), shortfall),
            "information": kept - left,
            "information_found": information,
            "information_error": error,
        },
        coords={"against": ["law", "chain"], "schedule": list(_SCHEDULES), "steps": list(_STEPS)},
        attrs={"law_samples": n, "law_steps": params.law_steps},
    )  # fmt: skip


def covariance_deviation(covariance: np.ndarray, variances: np.ndarray, n: int) -> float:
    """Return the squared deviation of a covariance from a diagonal one, in units of its expectation for n samples."""
    dims = len(variances)
    white = covariance / np.sqrt(np.outer(variances, variances)) - np.eye(dims)
    return float(np.sum(white**2)) * n / (dims * (dims + 1))


def _information(law: gaussian.GaussianImages, seed: int) -> tuple[float, float]:
    """Return the mean diffusion term of many images of the law with the best prediction, and its error, in bits."""
    import torch

    from saddlescope.train.diffusion.variational_diffusion import VariationalDiffusion

    low, high = _SCHEDULES["initial"]
    model = VariationalDiffusion(gaussian.best_predictor(law, low, high), gamma_min=low, gamma_max=high).double()
    rng = np.random.default_rng((seed, 2))
    draws = rng.normal(size=(_MANY, len(law.variances))) * np.sqrt(law.variances)
    images = (law.means[0] + draws @ law.basis.T).reshape(_MANY, 3, law.pixels, law.pixels)
    condition = torch.from_numpy(law.conditions[:1]).expand(_MANY, -1)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        term = model.bound(torch.from_numpy(images), condition, generator=generator).diffusion
    return term.mean().item(), term.std().item() / math.sqrt(_MANY)


def evaluate_classifier(params: Any, signal: float, *, checkpoint: Path, report: Report) -> xr.Dataset:
    """Train a classifier, and read true images and images between class means by it and by the direct estimator."""
    from saddlescope.train.diffusion.circles import CONCEPTS, CircleProcess
    from saddlescope.train.diffusion.classifier import fit_classifier
    from saddlescope.train.diffusion.positions import concept_positions

    process = CircleProcess(pixels=params.classifier_pixels, color_signal=signal)
    fitted = fit_classifier(
        process, _classifier_config(params), device=params.device, checkpoint=checkpoint, report=report
    )
    true = process.draw(np.arange(params.held_out) % 4, seed=(params.seed, 0, _OTHER_STREAM)).images
    direct = concept_positions(true, process)
    same = (fitted.classifier.probabilities(true) > 0.5) == (direct.position > 0.5)

    way = np.linspace(0, 1, params.places)
    between, read = np.zeros((2, len(CONCEPTS), params.places))
    for concept, name in enumerate(CONCEPTS):
        for place, position in enumerate(way):
            images = interpolated_images(
                process, name, float(position), params.between, seed=(params.seed, place, _OTHER_STREAM)
            )
            between[concept, place] = fitted.classifier.probabilities(images)[:, concept].mean()
            read[concept, place] = np.nanmean(concept_positions(images, process).position[:, concept])
    return xr.Dataset(
        {
            "accuracy": ("concept", fitted.accuracy),
            "agreement": ("concept", (same & ~direct.blank[:, None]).mean(axis=0)),
            "between": (("concept", "way"), between),
            "read": (("concept", "way"), read),
        },
        coords={"concept": list(CONCEPTS), "way": way},
        attrs={"held_out": params.held_out},
    )


def _classifier_config(params: Any) -> "ClassifierConfig":
    from saddlescope.train.diffusion.classifier import ClassifierConfig

    return ClassifierConfig(
        channels=params.classifier_channels, blocks=params.classifier_blocks, steps=params.classifier_steps,
        batch=params.classifier_batch, held_out=params.held_out, seed=params.seed, threads=params.threads,
    )  # fmt: skip


def interpolated_images(
    process: Any, concept: str, position: float, count: int, *, seed: tuple[int, ...]
) -> np.ndarray:
    """Draw images without jitter at a position between the class means of one concept; the other has both values."""
    apart = max(abs(1 - 2 * position), 1e-9)  # the signal of a process one of whose classes is there
    field = f"{concept}_signal"
    nearer = replace(process, color_jitter=0.0, size_jitter=0.0, **{field: apart * getattr(process, field)})
    new, other = np.full(count, int(position > 0.5)), np.arange(count) % 2
    classes = 2 * new + other if concept == "color" else 2 * other + new
    return nearer.draw(classes, seed=seed).images
