"""Exact flows, SGD and random starts of one-layer networks, beside Theorem 4.1."""

from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.concept_learning.shared.perceptron_training import (
    PerceptronTraining,
    one_layer_prediction,
    train,
)

_TASKS = (((1.0, 2.0), (0.05, 0.05)), ((1.5, 2.0), (0.05, 0.05)), ((1.0, 2.0), (2.0, 0.05)))  # of Figure 2

_SIZES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0)  # of starts, in units of PyTorch's default

_DIMS = (2, 8, 64)


def exact_flows(params: Any, report: Report) -> xr.Dataset:
    """Return outputs at random points by the closed form, as printed and as corrected, and by integration."""
    import jax
    import jax.numpy as jnp
    from scipy.integrate import solve_ivp

    from saddlescope.models import PopulationLoss, StructuredIdentityTask
    from saddlescope.theory.concepts import one_layer_output

    d, concepts = params.dim, 3
    task = StructuredIdentityTask((1.0, 1.5, 2.2), (0.05, 0.3, 0.1), 1, d)
    A, times = task.second_moment, np.linspace(0.0, 12.0, 61)
    names = ("exact", "corrected", "printed", "at_test_point", "noise", "start_part")
    recorded: dict[str, list[np.ndarray]] = {name: [] for name in names}
    with jax.enable_x64(True):
        gradient = jax.jit(jax.grad(PopulationLoss(jnp.asarray(A))))

        def velocity(_: float, flat: np.ndarray) -> np.ndarray:
            return -np.asarray(gradient(jnp.asarray(flat.reshape(d, d)))).ravel()

        for flow in range(params.flows):
            rng = np.random.default_rng((params.seed, flow))
            W0, z = rng.standard_normal((d, d)) / d**0.5, rng.standard_normal(d)
            path = solve_ivp(
                velocity, (0.0, times[-1]), W0.ravel(), method="DOP853", t_eval=times, rtol=1e-13, atol=1e-15
            )
            W = path.y.T.reshape(len(times), d, d)
            recorded["exact"].append(W @ z)
            recorded["corrected"].append(one_layer_output(A, W0, z, times).total)
            recorded["printed"].append(one_layer_output(A, W0, z, times, printed=concepts).total)
            at_test = one_layer_output(A, W0, task.test_point, times, printed=concepts)
            recorded["at_test_point"].append(at_test.total - W @ task.test_point)
            recorded["noise"].append(at_test.noise)
            recorded["start_part"].append(W0[:, :concepts] * np.array(task.mu))
            report((flow + 1) / params.flows, f"flow {flow + 1} of {params.flows}")
    dims = ("flow", "flow_time", "dimension")
    stacked = {name: (dims, np.array(recorded[name])) for name in names[:-1]}
    return xr.Dataset(
        stacked | {"start_part": (("flow", "dimension", "part"), np.array(recorded["start_part"]))},
        coords={"flow_time": ("flow_time", times, {"units": "t"})},
    )


def sgd_runs(params: Any, bias: bool, report: Report) -> xr.Dataset:
    """Return outputs at the test point by SGD, and by the theorem with the limit A and with the samples' A."""
    training = PerceptronTraining(bias=bias, samples=params.samples, epochs=params.epochs, every=25)
    seeds = range(params.seed, params.seed + params.runs)
    trained = train(training, _TASKS, seeds, report=report)[["output", "diverged"]]
    predictions = {
        name: np.array(
            [
                [one_layer_prediction(training, task, seed, trained.step.values, empirical=empirical) for seed in seeds]
                for task in _TASKS
            ]
        )
        for name, empirical in (("limit", False), ("empirical", True))
    }
    dims = ("task", "seed", "step", "concept")
    return trained.assign({name: (dims, value) for name, value in predictions.items()}).assign_coords(bias=bias)


def rising_losses(params: Any, report: Report) -> xr.Dataset:
    """Return shares of starts whose loss at the test point rises, by size and dimension, from the closed form."""
    from saddlescope.models import StructuredIdentityTask
    from saddlescope.theory.concepts import monotone_norm

    share, within, broken = (np.zeros((len(_DIMS), len(_SIZES))) for _ in range(3))
    example_times = np.linspace(0.0, 10.0, 201)
    examples = np.zeros((2, len(example_times)))
    for n, d in enumerate(_DIMS):
        task = StructuredIdentityTask((1.0, 2.0), (0.05, 0.05), 1, d)
        a, mu, rng = task.strengths[:2], np.array(task.mu), np.random.default_rng((params.seed, d))
        times = np.concatenate([[0.0], np.geomspace(1e-3, 20 / a.min(), 400)])
        limit = monotone_norm(a)
        for m, size in enumerate(_SIZES):
            columns = size * d**-0.5 * rng.uniform(-1, 1, (params.starts, d, 2))
            losses = _test_losses(columns, a, mu, times)
            rising = np.max(np.diff(losses, axis=1), axis=1) > 1e-12 * float(mu @ mu)
            small = np.linalg.norm(columns, ord=2, axis=(1, 2)) <= limit
            share[n, m], within[n, m], broken[n, m] = rising.mean(), small.mean(), np.sum(rising & small)
        if d == 2:
            right = np.outer(mu, mu) / (mu @ mu)  # W0 that maps x^ to itself
            examples = _test_losses(np.stack([right, 0.1 * right]), a, mu, example_times)
        report((n + 1) / len(_DIMS), f"starts in {d} dimensions")
    dims = ("start_dim", "size")
    return xr.Dataset(
        {
            "rising": (dims, share),
            "within": (dims, within),
            "broken": (dims, broken),
            "example": (("example_start", "example_time"), examples),
        },
        coords={
            "start_dim": list(_DIMS), "size": list(_SIZES), "example_time": ("example_time", example_times),
            "example_start": ["right at the test point", "a tenth of it"],
        },
    )  # fmt: skip


def _test_losses(columns: np.ndarray, a: np.ndarray, mu: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return |W(t) x^ - x^|^2 / 2, (starts, times), for starts with these first columns; the others have no effect."""
    C = (columns - np.eye(*columns.shape[1:])) * mu
    decay = np.exp(-np.outer(times, a))
    return np.einsum("tp,npq,tq->nt", decay, C.swapaxes(1, 2) @ C, decay) / 2
