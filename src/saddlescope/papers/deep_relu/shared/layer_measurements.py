"""Networks trained from saddle to saddle on images and on teachers, with measurements of every layer.

The bulk of a layer is its singular values up to 1.5 times its largest initial one.

A teacher is f = h o g with inner dimension k: g = sigma(V^T x) with k orthonormal directions V and sigma the ReLU or
the absolute value; h linear, with orthonormal directions times k strengths. Its bottleneck rank is k: at most k by
construction, and at least k because its Jacobian has rank k at some points.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu.shared.training import (
    DATASET,
    Data,
    TrainingSetup,
    find_stages,
    image_loss,
    layer_spectra,
    shared_recording,
)
from saddlescope.reproduction import EntryParams, RunContext, param

if TYPE_CHECKING:
    from saddlescope.models.deep import LayeredLoss


TOP = 4  # stored singular values of each layer

INPUTS, OUTPUTS = 8, 6  # dimensions of the teachers

IMAGES_DEVIATION = 0.01  # of the initial weights of networks on images


class TeacherParams(EntryParams):
    """Parameters of entries that train students of teachers, and networks on images."""

    dataset: Data = param("digits", DATASET)
    images: int = param(3, "networks of depth 6 on the images; 0 for teachers alone", ge=0)
    seed: int = param(0, "seed of the first network of each kind; the others have the next ones", ge=0)
    teachers: int = param(3, "ReLU teachers of separated strengths, and as many with the absolute value", ge=1)
    strengths: tuple[float, ...] = param((3.0, 2.0, 1.2), "strengths of a teacher's inner dimensions", gt=0, least=2)
    samples: int = param(200, "samples of each teacher", ge=1)
    width: int = param(30, "width of the students' hidden layers", ge=1)

    def check(self) -> None:
        if len(self.strengths) > OUTPUTS:
            raise InputError(f"strengths must be 2 to {OUTPUTS} positive numbers; got {self.strengths!r}.")


class NetworkJob(NamedTuple):
    """A network to be trained: its name, a function that returns its loss, and its training."""

    name: str
    make_loss: "Callable[[], LayeredLoss]"
    setup: TrainingSetup


def image_jobs(name: Data, seeds: Iterable[int], *, width: int, steps: int, context: RunContext) -> list[NetworkJob]:
    """Return one network per seed on images: the paper's network with narrower hidden layers."""
    make = partial(TrainingSetup, depth=6, width=width, deviation=IMAGES_DEVIATION, rate=10.0, steps=steps, batch=32)
    loss = partial(image_loss, name, context)
    return [NetworkJob(f"{name}, seed {seed}", loss, make(seed=seed)) for seed in seeds]


def teacher_job(
    name: str, kind: str, strengths: tuple[float, ...], params: TeacherParams, *, seed: int, **setup: Any
) -> NetworkJob:
    """Return a student of one teacher; `setup` has its depth, its training, and no width."""
    loss = partial(teacher_loss, kind, strengths, samples=params.samples, seed=seed)
    return NetworkJob(f"{name}, seed {seed}", loss, TrainingSetup(width=params.width, seed=seed, **setup))


def teacher_loss(kind: str, strengths: tuple[float, ...], *, samples: int, seed: int) -> "LayeredLoss":
    """Return half the mean squared error on a teacher's outputs for normal inputs, in float32.

    Args:
        kind: "relu" or "abs".
        strengths: strengths of the k inner dimensions.
        samples: size of the data set.
        seed: seed of the teacher and the inputs.
    """
    import jax.numpy as jnp

    from saddlescope.models.deep import LayeredLoss

    draw = np.random.default_rng(seed)
    X = draw.standard_normal((INPUTS, samples))
    V, U = (np.linalg.qr(draw.standard_normal((n, n)))[0][:, : len(strengths)] for n in (INPUTS, OUTPUTS))
    inner = np.abs(V.T @ X) if kind == "abs" else np.maximum(V.T @ X, 0)
    targets = (U * np.array(strengths)) @ inner
    return LayeredLoss(jnp.asarray(X.T, jnp.float32), jnp.asarray(targets.T, jnp.float32))


def train_jobs(jobs: Sequence[NetworkJob], context: RunContext) -> list[xr.Dataset]:
    """Train and measure all networks, one after the other; entries that need the same one share it."""
    by_name = {job.name: job for job in jobs}

    def measure(name: str, step: RunContext) -> xr.Dataset:
        job = by_name[name]
        recording = shared_recording(job.make_loss(), job.setup, step, per_doubling=24)
        return _measure(recording).assign(depth=job.setup.depth).assign_coords(network=name)

    return context.cells({"network": list(by_name)}, measure)


def _measure(recording: xr.Dataset) -> xr.Dataset:
    """Return the stages and the measurements of every layer of a recorded training.

    Returns:
        Over `mark`, the recorded steps: `step`, `loss` and, for each layer, s_2/s_1, the count above the bulk, the
        stable rank and the largest singular values of its weights. Over `stage`: the stages found.
    """
    from saddlescope.measure import bulk_count, second_ratio, stable_rank

    steps, loss, spectra = recording.step.values, recording.measured_loss.values, layer_spectra(recording)
    largest = recording.singular_values.reindex(value=np.arange(1, TOP + 1)).transpose("layer", "step", "value")
    per_layer = {
        "second_ratio": np.stack([second_ratio(s) for s in spectra]),
        "stable_rank": np.stack([stable_rank(s) for s in spectra]),
        "above_bulk": np.stack([bulk_count(s, np.broadcast_to(s[:1], s.shape)) for s in spectra]),
    }
    measured = {key: (("layer", "mark"), value) for key, value in per_layer.items()}
    found = find_stages(loss, steps, spectra).assign(measured).assign(step=("mark", steps), loss=("mark", loss))
    found = found.assign(singular_values=(("layer", "mark", "value"), largest.values))
    return found.assign_coords(mark=np.arange(len(steps)), value=np.arange(1, TOP + 1))


def leave_origin(run: xr.Dataset) -> xr.DataArray:
    """Return True for each network whose loss falls by 5 % or more.

    The stages of the others, found in a loss that hardly changes, are noise.
    """
    return run.loss.min("mark") < 0.95 * run.loss.isel(mark=0)
