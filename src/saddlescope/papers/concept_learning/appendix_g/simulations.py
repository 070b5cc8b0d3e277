"""Comparison of the bound with its definition, and classifiers of colour and size."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.appendix_g import reference_bound as by_hand
from saddlescope.papers.concept_learning.appendix_g.gaussian_images import DATA_NOISE
from saddlescope.reproduction.context import RunContext

if TYPE_CHECKING:
    from saddlescope.train.diffusion.classifier import ClassifierConfig
    from saddlescope.train.diffusion.variational_diffusion import VariationalDiffusion

_STEP = 1e-5  # of central differences

_OTHER_STREAM = 7  # third number of the seed of images: other images than those of the classifier's training


def check_sizes(params: Any) -> None:
    """Raise InputError before any work if a network cannot halve its images, or circles do not fit in them."""
    from saddlescope.train.diffusion.circles import CircleProcess
    from saddlescope.train.diffusion.unet import UNetConfig

    UNetConfig(pixels=params.pixels, channels=params.channels)
    CircleProcess(pixels=params.pixels)
    _classifier_config(params).backbone(params.classifier_pixels)
    for signal in params.signals:
        CircleProcess(pixels=params.classifier_pixels, color_signal=signal)


def compare_bound(params: Any, context: RunContext) -> xr.Dataset:
    """Compute the bound of single images, and its derivatives, by the trained code and by their definition."""
    import torch

    from saddlescope.train.diffusion.circles import CircleProcess
    from saddlescope.train.diffusion.unet import UNet, UNetConfig
    from saddlescope.train.diffusion.variational_diffusion import VariationalDiffusion

    config = UNetConfig(pixels=params.pixels, channels=params.channels)
    model = VariationalDiffusion(UNet(config, seed=params.seed), data_noise=DATA_NOISE).eval()
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
        schedule = by_hand.Schedule(slope, offset, -5.0, 10.0, DATA_NOISE)
        noises = {"noise": later, "first_noise": earlier}
        return by_hand.bound(network, schedule, images, condition, times=at, steps=steps, **noises)

    terms_context, gradients_context = context.split(0.2, 0.8)
    terms_context.report(0.5, "definition of the bound")
    terms = {"diffusion": found.diffusion, "prior": found.prior, "reconstruction": found.reconstruction}
    data = {
        "ours": (("term", "image"), np.stack([term.detach().numpy() for term in terms.values()]), {"units": "bits"}),
        "by_hand": (("term", "image"), hand(weights), {"units": "bits"}),
        "time": ("image", times),
    }
    found.diffusion.mean().backward()
    gradients = _compare_gradients(model, rng, params.directions, weights, hand, gradients_context)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return xr.Dataset(data, coords={"term": list(terms)}, attrs={"parameters": parameters}).merge(gradients)


def _compare_gradients(
    model: "VariationalDiffusion", rng: np.random.Generator, directions: int, weights: dict[str, np.ndarray],
    hand: Callable[..., np.ndarray], context: RunContext,
) -> xr.Dataset:  # fmt: skip
    """Return derivatives of the mean diffusion term by PyTorch and by central differences, and their scale."""
    named = {name: parameter for name, parameter in model.network.named_parameters() if parameter.grad is not None}
    gradient = {name: parameter.grad.double().numpy() for name, parameter in named.items()}  # type: ignore[union-attr]
    norm = math.sqrt(sum(float(np.sum(part**2)) for part in gradient.values()))
    by_schedule = [parameter.grad.item() for parameter in (model.slope, model.offset)]  # type: ignore[union-attr]
    # label, derivative, derivative by central differences, norm of the gradient
    rows: list[tuple[str, float, float, float]] = []
    for k, step in context.steps(range(directions + 2)):
        schedule = k - directions  # 0 for the slope, 1 for the offset, negative for the weights
        if schedule < 0:
            label, scale = f"weights {k + 1}", norm
            direction = {name: rng.normal(size=part.shape) for name, part in gradient.items()}
            value = sum(float(np.sum(gradient[name] * direction[name])) for name in gradient)
            ahead, behind = (
                hand({name: weights[name] + sign * _STEP * direction[name] for name in weights})[0].mean()
                for sign in (1, -1)
            )
        else:
            label, scale = ("slope", "offset")[schedule], math.hypot(*by_schedule)
            value, up, side = by_schedule[schedule], _STEP * (schedule == 0), _STEP * (schedule == 1)
            # A shorter chain: at so small a difference the longest would show its rounding.
            ahead, behind = (hand(weights, 15.0 + sign * up, -5.0 + sign * side, 1e6)[0].mean() for sign in (1, -1))
        rows.append((label, value, (ahead - behind) / (2 * _STEP), scale))
        step.report(1.0, "central differences of the definition")
    labels, *columns = zip(*rows, strict=True)
    names = ("gradient", "gradient_by_hand", "gradient_norm")
    return xr.Dataset(
        {name: ("along", list(values), {"units": "bits"}) for name, values in zip(names, columns, strict=True)},
        coords={"along": list(labels)},
    )


def evaluate_classifier(params: Any, signal: float, context: RunContext) -> xr.Dataset:
    """Train a classifier, and read true images and images between class means by it and by the direct estimator."""
    from saddlescope.train.diffusion.circles import CONCEPTS, CircleProcess
    from saddlescope.train.diffusion.classifier import fit_classifier
    from saddlescope.train.diffusion.positions import concept_positions

    process = CircleProcess(pixels=params.classifier_pixels, color_signal=signal)
    fitted = fit_classifier(
        process,
        _classifier_config(params),
        device=params.device,
        checkpoint=context.scratch / f"classifier-{signal:g}.pt",
        report=context.report,
    )
    true = process.draw(np.arange(params.held_out) % 4, seed=(params.seed, 0, _OTHER_STREAM)).images
    direct = concept_positions(true, process)
    same = (fitted.classifier.probabilities(true) > 0.5) == (direct.position > 0.5)

    way = np.linspace(0, 1, params.places)
    between, read = np.zeros((2, len(CONCEPTS), params.places))
    for concept, name in enumerate(CONCEPTS):
        for place, position in enumerate(way):
            seed = params.seed, place, _OTHER_STREAM
            images = interpolated_images(process, name, float(position), params.between, seed=seed)
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
    apart = max(abs(1 - 2 * position), 1e-9)  # share of the signal for which a class mean is at this position
    field = f"{concept}_signal"
    nearer = replace(process, color_jitter=0.0, size_jitter=0.0, **{field: apart * getattr(process, field)})
    new, other = np.full(count, int(position > 0.5)), np.arange(count) % 2
    classes = 2 * new + other if concept == "color" else 2 * other + new
    return nearer.draw(classes, seed=seed).images
