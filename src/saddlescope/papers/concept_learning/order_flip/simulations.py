"""Half-times of two concepts over a sweep of diversities: symmetric flows, and SGD of one layer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.concept_learning.shared.perceptron_training import (
    PerceptronTraining,
    one_layer_prediction,
    train,
)

_TRAJECTORIES = 7  # values of sigma_1 whose trajectories are drawn

_SGD_RATIOS = 9  # values of the sweep of SGD

_EPOCHS = 10  # of SGD: both concepts are half learned by then


def _strength_ratios(count: int) -> np.ndarray:
    return np.linspace(0.35, 2.2, count)


def diversity(ratio: Any, mu: Sequence[float] | np.ndarray, sigma: float, clusters: int) -> Any:
    """Return sigma_1^2 at these ratios a_1 / a_2."""
    return ratio * (sigma**2 + mu[1] ** 2 / clusters) - mu[0] ** 2 / clusters


def symmetric_half_times(params: Any, report: Report) -> xr.Dataset:
    """Return half-times of every start and ratio, and trajectories of one start."""
    import jax

    from saddlescope.flow import symmetric_flows
    from saddlescope.models import StructuredIdentityTask, symmetric_weights

    ratios, shape = _strength_ratios(params.ratios), (len(params.scales), params.starts)
    half, entries = np.zeros((*shape, len(ratios), 2)), np.zeros((*shape, 2))
    pictured = np.unique(np.linspace(0, len(ratios) - 1, _TRAJECTORIES).round().astype(int))
    paths = np.zeros((len(pictured), 200, 2))
    for n, scale in enumerate(params.scales):
        with jax.enable_x64(True):
            unit = symmetric_weights(2, 2, seed=params.seed, log_scale=0.0, num_starts=params.starts)
            U = scale * np.asarray(unit)
        entries[n] = np.sum(U**2, axis=-1)
        for m, variance in enumerate(diversity(ratios, params.mu, params.sigma, 2)):
            task = StructuredIdentityTask(params.mu, (float(variance) ** 0.5, params.sigma), 1, 2)
            # Until the slower concept of nearly every start is learned: e^(4 a t) makes up for the start's size.
            until = (10 - 2 * np.log(scale)) / (4 * float(task.strengths.min()))
            flows = symmetric_flows(
                task.second_moment, U, test_point=task.test_point, until=until, tolerance=1e-8,
                record=np.linspace(0.0, until, 400),
            )  # fmt: skip
            half[n, :, m] = _half_times(flows.times, np.einsum("nkii->nki", flows.W))
            if n == 1 and m in pictured:
                marks = np.linspace(0, len(flows.times) - 1, 200).round().astype(int)
                paths[list(pictured).index(m)] = (flows.W[0] @ task.test_point)[marks]
            report((n * len(ratios) + m + 1) / (len(params.scales) * len(ratios)), f"scale {scale:g}")
    logs = np.log(1 / entries - 1)
    return xr.Dataset(
        {
            "half": (("scale", "start", "ratio", "concept"), half, {"units": "t"}),
            "expected": (("scale", "start"), logs[..., 0] / logs[..., 1]),
            "path": (("pictured", "mark", "concept"), paths),
        },
        coords={"scale": list(params.scales), "ratio": ratios, "concept": [1, 2], "pictured": ratios[pictured]},
    )


def _half_times(times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return when values (..., times, concepts) first pass 1/2, by interpolation; NaN where they do not."""
    above = values > 0.5
    place = np.argmax(above, axis=-2)[..., None, :]
    after, before = np.maximum(place, 1), np.maximum(place, 1) - 1
    low, high = (np.take_along_axis(values, at, axis=-2)[..., 0, :] for at in (before, after))
    start, stop = times[before[..., 0, :]], times[after[..., 0, :]]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = start + (stop - start) * (0.5 - low) / (high - low)
    return np.where(above.any(axis=-2) & ~above[..., 0, :], found, np.nan)


def sgd_half_times(params: Any, clusters: int, report: Report) -> xr.Dataset:
    """Return half-times of every run and ratio by SGD and by Theorem 4.1."""
    ratios = _strength_ratios(_SGD_RATIOS)
    training = PerceptronTraining(
        origin=clusters == 3, samples=params.samples, epochs=_EPOCHS * 5000 // params.samples, every=5
    )
    variances = diversity(ratios, params.mu, params.sigma, clusters)
    tasks = [(params.mu, (float(variance), params.sigma**2)) for variance in variances]
    seeds = range(params.seed, params.seed + params.runs)
    trained = train(training, tasks, seeds, report=report)
    steps = trained.step.values
    by_theorem = [
        [one_layer_prediction(training, task, seed, steps, empirical=True) for seed in seeds] for task in tasks
    ]
    share = 1 / np.array(params.mu)
    dims = ("sgd_ratio", "seed", "concept")
    return xr.Dataset(
        {
            "sgd_half": (dims, _half_times(steps, trained.output.values * share)),
            "theorem_half": (dims, _half_times(steps, np.array(by_theorem) * share)),
        },
        coords={"sgd_ratio": ratios, "seed": list(seeds), "clusters": clusters, "concept": [1, 2]},
    )
