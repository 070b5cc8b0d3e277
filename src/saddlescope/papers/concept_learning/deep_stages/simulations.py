"""Gradient flow of deep linear networks from random, balanced diagonal and noisy starts, beside the predictions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report

_MARKS = 400  # times at which one run per depth is stored for the figure


class _DiagonalPath(NamedTuple):
    """Diagonal of W along a flow, at any times and at those of the solver's steps.

    Attributes:
        at: from times to the diagonal there, (times, d).
        times: of the solver's steps.
    """

    at: Callable[[np.ndarray], np.ndarray]
    times: np.ndarray


def _strengths(params: Any) -> np.ndarray:
    from saddlescope.models import StructuredIdentityTask

    return StructuredIdentityTask(params.mu, (params.sigma,) * len(params.mu), 1, len(params.mu)).strengths


def _diagonal_path(strengths: np.ndarray, weights: Any, until: float, tolerance: float) -> _DiagonalPath:
    """Follow gradient flow of equation 4.1 from these weights."""
    import jax.numpy as jnp

    from saddlescope.flow import ParameterInit, gradient_flow
    from saddlescope.models import PopulationLoss

    loss = PopulationLoss(jnp.diag(jnp.asarray(strengths)))
    start = ParameterInit(tuple(jnp.asarray(weight) for weight in weights))
    path = gradient_flow(loss.layered, start, until=until, tolerance=tolerance)

    def diagonal(times: np.ndarray) -> np.ndarray:
        layers = path.parameters(times)
        W = np.asarray(layers[0])
        for layer in layers[1:]:
            W = np.asarray(layer) @ W
        return np.einsum("tkk->tk", W)

    return _DiagonalPath(diagonal, np.asarray(path.times))


def _half_time(path: _DiagonalPath, k: int) -> float:
    """Return when w_kk first passes 1/2, by root finding between the solver's steps; NaN where it never does."""
    from scipy.optimize import brentq

    times = path.times
    above = path.at(times)[:, k] > 0.5
    if above[0] or not above.any():
        return float("nan")
    first = int(np.argmax(above))
    return float(brentq(lambda t: path.at(np.array([t]))[0, k] - 0.5, times[first - 1], times[first], rtol=1e-12))  # type: ignore[arg-type]


def random_starts(params: Any, depth: int, report: Report) -> xr.Dataset:
    """Follow random starts of one depth; store w_kk over time of the first one at the smallest scale."""
    import jax

    from saddlescope.models import layered_weights
    from saddlescope.theory.concepts import deep_stages

    a, (scales, starts) = _strengths(params), (len(params.scales), params.starts)
    predicted, found = (np.full((scales, starts, len(a)), np.nan) for _ in range(2))
    alignment = np.full((scales, starts), np.nan)
    pictured = np.zeros(_MARKS), np.zeros((_MARKS, len(a)))
    for number in range(scales * starts):
        scale, start = divmod(number, starts)
        with jax.enable_x64(True):
            drawn = layered_weights((len(a),) * (depth + 1), seed=params.seed + start, deviation=params.scales[scale])
            weights = [np.asarray(weight) for weight in drawn]
            stages = deep_stages(a, weights)
            until = 1.5 * float(np.max(stages.times)) + 10 / float(a.min())
            path = _diagonal_path(a, weights, until, params.tolerance)
            predicted[scale, start], alignment[scale, start] = stages.times, stages.alignments.min()
            found[scale, start] = [_half_time(path, k) for k in range(len(a))]
            if (scale, start) == (scales - 1, 0):
                times = np.geomspace(
                    float(np.min(stages.times)) / 3, min(until, 2 * float(np.max(stages.times))), _MARKS
                )
                pictured = times, path.at(times)
        report((number + 1) / (scales * starts), f"depth {depth}, start {number + 1} of {scales * starts}")
    dims = ("scale", "start", "concept")
    return xr.Dataset(
        {
            "predicted": (dims, predicted, {"units": "t"}),
            "found": (dims, found, {"units": "t"}),
            "alignment": (dims[:2], alignment),
            "time": ("mark", pictured[0], {"units": "t"}),
            "w": (("mark", "concept"), pictured[1]),
        },
        coords={"depth": depth, "scale": list(params.scales), "strength": ("concept", a)},
    )


def diagonal_starts(params: Any, report: Report) -> xr.Dataset:
    """Follow two concepts from balanced diagonal starts, for each ratio r by which the weaker one is ahead."""
    import jax

    from saddlescope.theory.concepts import balanced_times

    a = _strengths(params)[-2:]
    shape = len(params.depths), len(params.ratios), 2
    predicted, found = np.zeros(shape), np.zeros(shape)
    for n, depth in enumerate(params.depths):
        for m, ratio in enumerate(params.ratios):
            first = params.small * np.array([ratio, 1.0])
            predicted[n, m] = balanced_times(a, first**depth, depth=depth)
            with jax.enable_x64(True):
                until = 1.2 * float(predicted[n, m].max())
                path = _diagonal_path(a, [np.diag(first)] * depth, until, params.tolerance)
                found[n, m] = [_half_time(path, k) for k in range(2)]
        report((n + 1) / len(params.depths), f"diagonal starts, depth {depth}")
    dims = ("depth", "ratio", "pair")
    return xr.Dataset(
        {"diagonal_predicted": (dims, predicted, {"units": "t"}), "diagonal_found": (dims, found, {"units": "t"})},
        coords={"ratio": list(params.ratios), "pair": ["weaker", "stronger"], "pair_strength": ("pair", a)},
    )


def noisy_starts(params: Any, report: Report) -> xr.Dataset:
    """Follow the weaker concept four times ahead, beyond depth 2, until the stronger one replaces it."""
    import jax

    from saddlescope.theory.concepts import balanced_times, turning_rate

    a, depth = _strengths(params)[-2:], params.noisy_depth
    ahead = params.small * np.array([4.0, 1.0])
    first = float(balanced_times(a, ahead**depth, depth=depth)[0])
    rate = turning_rate(float(a[0]), float(a[1]))
    until = first + (20 - 2 * float(np.log(params.noises[-1]))) / rate
    unit = np.random.default_rng(params.seed).standard_normal((depth, 2, 2))
    times = np.linspace(0.0, until, _MARKS)
    found, curves = np.zeros((len(params.noises), 2)), np.zeros((len(params.noises), _MARKS, 2))
    for n, noise in enumerate(params.noises):
        with jax.enable_x64(True):
            weights = np.diag(ahead) + noise * params.small * unit
            path = _diagonal_path(a, weights, until, 0.1 * params.tolerance)
            found[n] = [_half_time(path, k) for k in range(2)]
            curves[n] = path.at(times)
        report((n + 1) / len(params.noises), f"noise {noise:g}")
    return xr.Dataset(
        {
            "noisy_found": (("noise", "pair"), found, {"units": "t"}),
            "noisy_time": ("noisy_mark", times, {"units": "t"}),
            "noisy_w": (("noise", "noisy_mark", "pair"), curves),
            "turning_rate": rate,
        },
        coords={"noise": list(params.noises)},
    )
