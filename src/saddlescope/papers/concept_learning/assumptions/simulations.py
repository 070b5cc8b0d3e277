"""Largest starts and random settings at which the assumptions hold, and runs far outside them."""

import math
from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.concept_learning.shared.random_starts import FIGURES, draw_starts
from saddlescope.papers.concept_learning.shared.two_layer_runs import strengths_and_test_point

_KAPPAS = (1.1001, 1.11, 1.13, 1.16, 1.2, 1.3, 1.5, 2.0)  # over which the largest omega is looked for

_SMALL = 0.4  # P beta omega in D.3

_MARKED, _UNTIL = (0.3, 100.0), 400.0  # W is recorded between the first two, and followed to the last


def largest_omegas(params: Any) -> xr.Dataset:
    """Return the largest omega, counts of random settings, and the margins of the figures' data."""
    ratios = np.geomspace(3.05, 1e5, params.ratios)
    largest = [[_largest_log10_omega([1.0, ratio], beta) for beta in params.betas] for ratio in ratios.tolist()]
    three = [_largest_log10_omega([1.0, ratio, ratio**2], params.betas[0]) for ratio in ratios.tolist()]
    printed, corrected, without = _count_settings(params)
    strengths = {name: np.sort(strengths_and_test_point(*FIGURES[name])[0]) for name in FIGURES}
    margins = {
        name: min(b - 3 * c for k, c in enumerate(a) for b in a[k + 1 :]) / a[0] for name, a in strengths.items()
    }
    omegas = [
        _largest_log10_omega(a.tolist(), params.betas[0]) if margins[name] > 0 else math.nan
        for name, a in strengths.items()
    ]
    return xr.Dataset(
        {
            "log10_omega": (("ratio", "beta"), np.array(largest)),
            "log10_omega_three": ("ratio", np.array(three)),
            "settings": params.settings,
            "printed_hold": printed,
            "corrected_hold": corrected,
            "without_data_hold": without,
            "margin": ("data", np.array(list(margins.values()))),
            "figure_log10_omega": ("data", np.array(omegas)),
        },
        coords={"ratio": ratios, "beta": list(params.betas), "data": list(FIGURES)},
    )


def _largest_log10_omega(strengths: list[float], beta: float) -> float:
    """Return the largest log10 omega over kappa."""
    from saddlescope.theory.concepts import largest_start

    return max(largest_start(strengths, beta=beta, kappa=kappa).log_omega for kappa in _KAPPAS) / math.log(10)


def _count_settings(params: Any) -> tuple[int, int, int]:
    """Count random settings at which the assumptions hold as printed, corrected, and with a direction without data."""
    from saddlescope.theory.concepts import check_assumptions, largest_start

    rng = np.random.default_rng((params.seed, 1000))
    held = np.zeros(3, int)
    for _ in range(params.settings):
        ratio, beta = 3 + 10 ** rng.uniform(-1, 4), 1 + 10 ** rng.uniform(-2, 1)
        constants = {"K": 20 * 10 ** rng.uniform(0, 1), "kappa": 1.1 + 10 ** rng.uniform(-3, 0)}
        best = largest_start([1.0, ratio], beta=beta, **constants)
        more, less = rng.exponential(30.0), rng.exponential(0.3 if rng.random() < 0.5 else 300.0)
        tuned: dict[str, Any] = {
            **constants, "C": 1 + 10 ** rng.uniform(-2, 1.5), "log_P": best.log_P + more,
            "log_scale": best.log_omega - more - less,
        }  # fmt: skip
        start = np.full((2, 2), 1.0) + (beta - 1) * np.eye(2)
        held += [
            check_assumptions([1.0, ratio], start, **tuned).hold,
            check_assumptions([1.0, ratio], start, corrected=True, **tuned).hold,
            check_assumptions([0.0, 1.0, ratio], np.full((3, 3), 1.0) + (beta - 1) * np.eye(3), **tuned).hold,
        ]
    return int(held[0]), int(held[1]), int(held[2])


def follow_starts(params: Any, k: int, cell: tuple[str, float], report: Report) -> xr.Dataset:
    """Follow starts on one figure's data: order of the major entries, size of the minor ones, starts that learn all."""
    from saddlescope.flow import Ending, symmetric_flows

    name, scale = cell
    report(0.0, f"{name}, scale {scale:g}")
    a, x = strengths_and_test_point(*FIGURES[name])
    U = draw_starts(np.random.default_rng((params.seed, k)), "normal", scale, (params.starts, len(a), len(a)))
    times = np.geomspace(*_MARKED, params.marks)
    ordered, minor, learned = [], [], 0
    for first in range(0, params.starts, 256):  # as many as fit in memory with their recorded W
        flows = symmetric_flows(a, U[first : first + 256], test_point=x, until=_UNTIL, record=times, tolerance=1e-8)
        major = np.einsum("ntii->nti", flows.W)
        passed = half_times(flows.times, major)[:, np.argsort(-a)]
        ordered.append(np.all(np.diff(passed, axis=1) > 0, axis=1))
        minor.append(np.abs(flows.W - major[..., None] * np.eye(len(a))).max(axis=(1, 2, 3)))
        learned += int(np.sum(flows.endings == Ending.LEARNED))
    minors = np.concatenate(minor)
    return xr.Dataset(
        {
            "starts": params.starts,
            "ordered": np.concatenate(ordered).sum(),
            "small": np.sum(minors <= _SMALL),
            "learned": learned,
            "minor": ("quantile", np.quantile(minors, (0.1, 0.5, 0.9))),
        },
        coords={"quantile": [0.1, 0.5, 0.9]},
    )


def half_times(times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return when values (starts, times, d) first pass 1/2, interpolated, (starts, d); NaN where they do not."""
    after = np.argmax(values > 0.5, axis=1)
    high = np.take_along_axis(values, after[:, None], axis=1)[:, 0]
    low = np.take_along_axis(values, np.maximum(after - 1, 0)[:, None], axis=1)[:, 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(after > 0, (0.5 - low) / (high - low), 0.0)
    when = times[np.maximum(after - 1, 0)] + part * (times[after] - times[np.maximum(after - 1, 0)])
    return np.where(high > 0.5, when, np.nan)
