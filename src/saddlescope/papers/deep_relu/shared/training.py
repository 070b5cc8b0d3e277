"""ReLU networks trained from small weights in float32, on images as in appendix B, and the stages found."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.image_data import read_images
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.data_sets import DataSets

if TYPE_CHECKING:
    from saddlescope.flow import Recording
    from saddlescope.measure import Staircase
    from saddlescope.models.deep import LayeredLoss

Data = Literal["mnist", "mnist-small", "digits"]

DATASET = "training images: digits, which are embedded, or those of the paper, mnist, from the data folder"
"""Description of the parameter `dataset`."""

TOP = 10  # stored singular values of each layer: as many as the paper shows

STAGES = 8  # stored stages


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """A network and its training.

    Attributes:
        depth: L, the number of weight matrices.
        width: width of the hidden layers.
        deviation: standard deviation of the initial weights.
        rate: factor of the learning rate rate |theta|^(2 - L).
        steps: number of steps of (stochastic) gradient descent.
        batch: samples in a minibatch; None for all samples.
        seed: seed of the initial weights and of the minibatches.
    """

    depth: int
    width: int
    deviation: float
    rate: float
    steps: int
    batch: int | None
    seed: int


DIGITS = DataSets(read_images, names=("digits",))
"""Data of entries that train on the embedded digits."""


def image_loss(name: Data, context: RunContext) -> "LayeredLoss":
    """Return the cross-entropy on the training images, standardised by the data set's statistics, in float32.

    Raises:
        InputError: the data set is absent or damaged, or is not the one with which the run began.
    """
    import jax.numpy as jnp

    from saddlescope.models.deep import LayeredLoss, cross_entropy

    data = context.read_data(name, read_images)
    pixels = data.train_images.astype(np.float32) / data.white
    inputs = (pixels - data.mean[:, None, None].astype(np.float32)) / data.deviation[:, None, None].astype(np.float32)
    targets = np.eye(data.classes, dtype=np.float32)[data.train_labels]
    return LayeredLoss(jnp.asarray(inputs.reshape(len(inputs), -1)), jnp.asarray(targets), cross_entropy)


def train_and_record(
    loss: "LayeredLoss",
    setup: TrainingSetup,
    observe: "Callable[[LayeredLoss, Any], dict[str, Any]]",
    *,
    record: np.ndarray,
    checkpoint: Path,
    report: Report,
) -> "Recording":
    """Train the network and observe it at the recorded steps; a killed run resumes from its checkpoint."""
    import jax
    import jax.numpy as jnp

    from saddlescope.flow import homogeneous_rate, sgd
    from saddlescope.models.deep import layered_weights

    widths = (loss.inputs.shape[1], *(setup.depth - 1) * (setup.width,), loss.targets.shape[1])
    return sgd(
        loss,
        layered_weights(widths, seed=setup.seed, deviation=setup.deviation, dtype=jnp.float32),
        steps=setup.steps,
        learning_rate=homogeneous_rate(setup.rate, setup.depth),
        batch=setup.batch,
        seed=setup.seed,
        record=record,
        observe=jax.tree_util.Partial(observe, loss),
        checkpoint=checkpoint,
        report=report,
        throw=False,
    )


def train_on_images(
    loss: "LayeredLoss", setup: TrainingSetup, *, checkpoint: Path, per_doubling: int, report: Report
) -> xr.Dataset:
    """Train a network on images and find its stages; a killed run resumes from its checkpoint.

    Args:
        loss: loss on the training images.
        setup: the network and its training.
        checkpoint: file of the checkpoint.
        per_doubling: stored steps per doubling of the step.
        report: called with the finished fraction and a note.

    Returns:
        Over `step`: the loss and accuracy on all training samples, and |theta|; over (layer, value, step): the
        largest singular values of each layer; and the stages.
    """
    from saddlescope.flow import geometric_steps
    from saddlescope.measure import find_plateaus

    record = geometric_steps(setup.steps, per_doubling=per_doubling)
    run = train_and_record(loss, setup, _observe, record=record, checkpoint=checkpoint, report=report)
    values = run.observed.pop("singular_values")
    spectra = np.full((setup.depth, TOP, len(run.steps)), np.nan, np.float32)
    for layer, of_layer in enumerate(values):
        spectra[layer, : of_layer.shape[1]] = of_layer.T
    staircase = find_plateaus(run.steps, run.observed["loss"], values, time_unit="steps")
    return xr.Dataset(
        {key: ("step", values) for key, values in run.observed.items()}
        | {"singular_values": (("layer", "value", "step"), spectra)},
        coords={"step": run.steps, "value": np.arange(1, TOP + 1)},
        attrs={"status": str(run.status), "samples": loss.samples, "inputs": loss.inputs.shape[1]},
    ).merge(staircase_dataset(staircase, layers=setup.depth, most=STAGES))


def train_seeds(
    loss: "LayeredLoss",
    setup: TrainingSetup,
    seeds: tuple[int, ...],
    context: RunContext,
    *,
    per_doubling: int,
    name: str = "network",
) -> xr.Dataset:
    """Train one network per seed, as `train_on_images` does, over `seed`; entries that need the same one share it."""

    def train(setup: TrainingSetup, step: RunContext) -> xr.Dataset:
        return train_on_images(
            loss, setup, checkpoint=step.scratch / "checkpoint.npz", per_doubling=per_doubling, report=step.report
        )

    found = []
    for seed, step in context.steps(seeds):
        one = replace(setup, seed=seed)
        step = replace(step, report=step.note(f"{name}, seed {seed}"))
        found.append(share_training("relu-networks", loss, one, partial(train, one), step, per_doubling=per_doubling))
    together = xr.concat(found, dim="seed", join="outer", combine_attrs="drop_conflicts")
    return together.assign_coords(seed=list(seeds))


def share_training(
    kind: str,
    loss: "LayeredLoss",
    setup: TrainingSetup,
    train: Callable[[RunContext], xr.Dataset],
    context: RunContext,
    **others: Any,
) -> xr.Dataset:
    """Return a trained network that entries share, by its setup, a digest of its data, and what else it depends on."""
    data = hashlib.sha256(np.ascontiguousarray(loss.inputs).data)
    data.update(np.ascontiguousarray(loss.targets).data)
    return context.shared_part(kind, {**asdict(setup), **others, "data_digest": data.hexdigest()}, train)


def _observe(loss: "LayeredLoss", weights: Any) -> dict[str, Any]:
    import jax.numpy as jnp

    outputs = loss.output(weights)
    return {
        "loss": loss.cost_of(outputs),
        "accuracy": jnp.mean(jnp.argmax(outputs, 1) == jnp.argmax(loss.targets, 1), dtype=outputs.dtype),
        "norm": jnp.sqrt(sum(jnp.sum(weight**2) for weight in weights)),
        "singular_values": [jnp.linalg.svd(weight, compute_uv=False)[:TOP] for weight in weights],
    }


def staircase_dataset(staircase: "Staircase", *, layers: int, most: int) -> xr.Dataset:
    """Return the first `most` stages of a staircase over `stage`; missing stages are NaN, their ranks -1."""
    start, level = np.full(most, np.nan), np.full(most, np.nan)
    rank, layer_rank = np.full(most, -1), np.full((most, layers), -1)
    for k, stage in enumerate(staircase.stages[:most]):
        start[k], level[k], rank[k], layer_rank[k] = stage.start, stage.loss, stage.rank, stage.layer_ranks
    return xr.Dataset(
        {
            "stage_start": ("stage", start),
            "stage_loss": ("stage", level),
            "stage_rank": ("stage", rank),
            "stage_layer_rank": (("stage", "layer"), layer_rank),
            "stages_found": ((), len(staircase)),
        },
        coords={"stage": np.arange(most), "layer": 1 + np.arange(layers)},
    )


def concatenate_networks(
    networks: list[xr.Dataset], combine_attrs: Literal["drop", "drop_conflicts"] = "drop"
) -> xr.Dataset:
    """Concatenate networks over `network`; layers, stages and steps that one lacks are NaN, its ranks there -1."""
    fill: Any = {"stage_rank": -1, "stage_layer_rank": -1}
    return xr.concat(
        networks, dim="network", data_vars="all", join="outer", combine_attrs=combine_attrs, fill_value=fill
    )
