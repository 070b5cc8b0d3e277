"""Samples of starts of one width, and minibatch SGD from a start with three descents."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.concept_learning.shared.random_starts import FIGURES, VISIBLE, descent_counts, draw_starts
from saddlescope.papers.concept_learning.shared.two_layer_runs import strengths_and_test_point

if TYPE_CHECKING:
    from jax import Array

BATCH, RATE = 128, 0.01  # of SGD

_TIME, _EVERY = 40.0, 10  # SGD's last time, and after how many steps its loss is recorded

_UNTIL = 100.0

_TOLERANCE = 1e-6

_SEEN = 0.005  # hysteresis of SGD's descents

_CLEAR = 0.01  # of the first loss: every rise and fall of the start that SGD follows is larger


def sample_starts(d: int, width: int, scale: float, starts: int, seed: tuple[int, int]) -> xr.Dataset:
    """Count starts with several descents, and return the moments of W(0)."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.measure import find_descents

    U = draw_starts(np.random.default_rng(seed), "normal", scale, (starts, d, width))
    W = U @ U.mT
    major, minor = W[:, 0, 0], W[:, 0, 1]
    # Without data the directions beyond the second are all alike: only V^T V of their rows V counts, thus the factor R.
    rows = U if d == 2 else np.concatenate([U[:, :2], np.linalg.qr(U[:, 2:], mode="r")], axis=1)
    a, x = (np.pad(of, (0, rows.shape[1] - 2)) for of in strengths_and_test_point(*FIGURES["Figure 5"]))
    flows = symmetric_flows(a, rows, test_point=x, until=_UNTIL, tolerance=_TOLERANCE)
    visible = find_descents(flows.turning_losses, hysteresis=VISIBLE).counts
    return xr.Dataset(
        {
            "starts": starts,
            "several": np.sum(descent_counts(flows) >= 2),
            "visible": np.sum(visible >= 2),
            "major_mean": major.mean() / (width * scale**2),
            "major_error": major.std() / starts**0.5 / (width * scale**2),
            "minor_mean": minor.mean() / (width**0.5 * scale**2),
            "minor_size": np.mean(minor**2) ** 0.5 / (width**0.5 * scale**2),
        }
    )


def run_sgd(params: Any, report: Report) -> xr.Dataset:
    """Run minibatch SGD on U from a start with three descents, on Figure 8's data, and the flow from there."""
    import jax
    import jax.numpy as jnp

    from saddlescope.flow import sgd, symmetric_flows
    from saddlescope.measure import find_descents
    from saddlescope.models import StructuredIdentityTask, SymmetricSampleLoss

    a, x = strengths_and_test_point(*FIGURES["Figure 8"])
    start = _clear_start(a, x, params)
    steps = round(_TIME / RATE)
    marks = np.arange(0, steps + 1, _EVERY)
    flow = symmetric_flows(a, start[None], test_point=x, until=_TIME, record=marks * RATE, tolerance=1e-11)
    losses = []
    with jax.enable_x64(True):
        for n in range(params.runs):
            report(n / params.runs, f"SGD, run {n + 1} of {params.runs}")
            task = StructuredIdentityTask(*FIGURES["Figure 8"], samples_per_cluster=params.samples, dim=len(a))
            recording = sgd(
                SymmetricSampleLoss(task.draw(params.seed + n)),
                jnp.asarray(start),
                steps=steps,
                learning_rate=RATE,
                batch=BATCH,
                seed=params.seed + n,
                record=marks,
                observe=jax.tree_util.Partial(_test_loss, jnp.asarray(x)),
            )
            losses.append(np.asarray(recording.observed))
    losses = np.array(losses) / (x @ x / 2)
    return xr.Dataset(
        {
            "sgd_loss": (("run", "time"), losses),
            "flow_loss": ("time", flow.losses[0] / (x @ x / 2)),
            "sgd_descents": ("run", find_descents(losses, hysteresis=_SEEN).counts),
            "flow_descents": find_descents(flow.turning_losses, hysteresis=_CLEAR).counts[0],
        },
        coords={"time": ("time", marks * RATE, {"units": "t"})},
    )


def _clear_start(a: np.ndarray, x: np.ndarray, params: Any) -> np.ndarray:
    """Return the positive random start with three descents whose smallest rise or fall is largest."""
    from saddlescope.flow import symmetric_flows

    starts = draw_starts(np.random.default_rng((params.seed, 1000)), "uniform", 0.1, (params.pool, len(a), len(a)))
    flows = symmetric_flows(a, starts, test_point=x, until=_TIME, tolerance=_TOLERANCE)
    steps = np.abs(np.diff(flows.turning_losses, axis=1))
    smallest = np.where(steps > 0, steps, np.inf).min(axis=1)
    return starts[np.argmax(np.where(descent_counts(flows) == 3, smallest, -1.0))]


def _test_loss(x: "Array", weights: "Array") -> "Array":
    residual = weights @ (weights.T @ x) - x
    return residual @ residual / 2
