"""Training of two-layer ReLU networks of one scale, and the predicted alignment of their neurons."""

from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report

_DROP = 0.02  # of the loss at the start: leaving

_CURVE_MARKS = 300  # marks of a curve in the figures

MOMENTS = ("leaving", "between", "end")  # leaving; half-way between the two concepts; the end of the run


def train_networks(params: Any, task: Any, X: np.ndarray, scale: float, report: Report) -> xr.Dataset:
    """Train all networks of one scale."""
    import jax
    import jax.numpy as jnp

    from saddlescope.flow import sgd_batched
    from saddlescope.models import identity_loss, layered_weights
    from saddlescope.theory.concepts import early_alignment

    weakest = float(task.strengths.min())
    until = 1.3 * np.log(1 / scale) / weakest + 8 / weakest  # the second concept is learned well before that
    steps = int(until / params.rate)
    with jax.enable_x64(True):
        loss = identity_loss(X, relu=True)
        deviation = scale / params.neurons**0.5
        starts = [
            layered_weights((2, params.neurons, 2), seed=params.seed + run, deviation=deviation)
            for run in range(params.runs)
        ]
        recorded = sgd_batched(
            loss, jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts), steps=steps, learning_rate=params.rate,
            record=np.arange(steps), observe=jax.tree_util.Partial(_observe, loss), report=report,
        )  # fmt: skip
        predictions = [early_alignment(X, [np.asarray(part) for part in start], drop=_DROP) for start in starts]
    seen, times = recorded.observed, recorded.steps * params.rate
    leaving = np.argmax(seen["loss"] < (1 - _DROP) * seen["loss"][:, :1], axis=1)
    between = _halfway_marks(seen, task)
    network, ends = np.arange(params.runs), np.full(params.runs, len(times) - 1)
    accounts = np.array(
        [
            [_linear_account(X, task.test_point, seen["W"][run, at], seen["V"][run, at]) for at in moments]
            for run, *moments in zip(network, leaving, between, ends, strict=True)
        ]
    )
    early = np.linspace(0, 1.5 * leaving[0], _CURVE_MARKS).round().astype(int)
    whole = np.linspace(0, len(times) - 1, _CURVE_MARKS).round().astype(int)
    neuron = ("run", "neuron", "coordinate")
    return xr.Dataset(
        {
            "first": (neuron, seen["W"][network, leaving]),
            "second": (neuron, seen["V"][network, leaving].swapaxes(1, 2)),
            "predicted_first": (neuron, np.array([found.first for found in predictions])),
            "predicted_second": (neuron, np.array([found.second for found in predictions])),
            "leaving": ("run", times[leaving], {"units": "t"}),
            "predicted_leaving": ("run", np.array([found.time for found in predictions]), {"units": "t"}),
            "r_squared": (("run", "moment"), accounts[..., 0]),
            "outside": (("run", "moment"), accounts[..., 1]),
            "early_time": ("early", times[early], {"units": "t"}),
            "angle": (("early", "neuron"), np.degrees(np.arctan2(*np.moveaxis(seen["W"][0, early], -1, 0)[::-1]))),
            "time": ("mark", times[whole], {"units": "t"}),
            "loss": (("run", "mark"), seen["loss"][:, whole]),
        },
        coords={"scale": scale, "moment": list(MOMENTS)},
    )  # fmt: skip


def _observe(loss: Any, weights: Any) -> dict[str, Any]:
    return {"loss": loss(weights), "W": weights[0], "V": weights[1]}


def _halfway_marks(seen: dict[str, np.ndarray], task: Any) -> np.ndarray:
    """Return the mark half-way between those at which each concept's mean is mapped half-way to itself, (runs,)."""
    passed = []
    for concept, mean in enumerate(task.centers[:2]):
        hidden = np.maximum(seen["W"] @ mean, 0.0)
        output = np.einsum("rkn,rkn->rk", seen["V"][:, :, concept], hidden)
        passed.append(np.argmax(output > mean[concept] / 2, axis=1))
    return (passed[0] + passed[1]) // 2


def _linear_account(X: np.ndarray, point: np.ndarray, W: np.ndarray, V: np.ndarray) -> tuple[float, float]:
    """Return R^2 of the best linear map as an account of the outputs, and its relative error at a point."""
    outputs = np.maximum(X @ W.T, 0.0) @ V.T
    B, *_ = np.linalg.lstsq(X, outputs, rcond=None)
    unexplained = float(np.sum((outputs - X @ B) ** 2) / np.sum(outputs**2))
    off = np.maximum(point @ W.T, 0.0) @ V.T - point @ B
    return 1 - unexplained, float(np.linalg.norm(off) / np.linalg.norm(point @ B))
