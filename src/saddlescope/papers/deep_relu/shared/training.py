"""ReLU networks trained from small weights in float32, on images as in appendix B, and the stages found."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.image_data import read_images
from saddlescope.reproduction import DataSets, RunContext

if TYPE_CHECKING:
    from jax import Array

    from saddlescope.measure import Staircase
    from saddlescope.models.deep import LayeredLoss

Data = Literal["mnist", "mnist-small", "digits"]

DATASET = "training images: digits, which are embedded, or those of the paper, mnist, from the data folder"
"""Description of the parameter `dataset`."""

TOP = 10  # stored singular values of each layer: as many as the paper shows

STAGES = 8  # stored stages

FEW = 2000  # samples, at most, of the loss in which the stages of teachers' students and of conjectures are found

_EVEN = 300  # recorded steps, evenly spaced


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
    batch: int | None = None
    seed: int = 0


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


def record_training(
    loss: "LayeredLoss", setup: TrainingSetup, *, per_doubling: int, checkpoint: Path, report: Report
) -> xr.Dataset:
    """Train a network and record its loss and spectra; a killed run resumes from its checkpoint.

    Args:
        loss: loss on the training samples.
        setup: the network and its training.
        per_doubling: recorded steps per doubling of the step, beside 300 evenly spaced ones.
        checkpoint: file of the checkpoint.
        report: called with the finished fraction and a note.

    Returns:
        Over `step`: loss and accuracy on all samples, and the loss on the first 2000. Over (layer, value, step): the
        singular values of the weights; NaN where a layer has fewer.
    """
    import jax
    import jax.numpy as jnp

    from saddlescope.flow import geometric_steps, homogeneous_rate, sgd
    from saddlescope.models.deep import layered_weights

    widths = (loss.inputs.shape[1], *(setup.depth - 1) * (setup.width,), loss.targets.shape[1])
    run = sgd(
        loss,
        layered_weights(widths, seed=setup.seed, deviation=setup.deviation, dtype=jnp.float32),
        steps=setup.steps,
        learning_rate=homogeneous_rate(setup.rate, setup.depth),
        batch=setup.batch,
        seed=setup.seed,
        record=geometric_steps(setup.steps, per_doubling=per_doubling, every=max(1, setup.steps // _EVEN)),
        observe=jax.tree_util.Partial(_observe, loss),
        checkpoint=checkpoint,
        report=report,
        throw=False,
    )
    spectra = run.observed.pop("singular_values")
    together = np.full((setup.depth, max(s.shape[1] for s in spectra), len(run.steps)), np.nan, np.float32)
    for layer, of_layer in enumerate(spectra):
        together[layer, : of_layer.shape[1]] = of_layer.T
    return xr.Dataset(
        {key: ("step", values) for key, values in run.observed.items()}
        | {"singular_values": (("layer", "value", "step"), together)},
        coords={"step": run.steps, "layer": 1 + np.arange(setup.depth), "value": 1 + np.arange(together.shape[1])},
        attrs={"status": str(run.status), "samples": loss.samples, "inputs": loss.inputs.shape[1]},
    )


def shared_recording(
    loss: "LayeredLoss", setup: TrainingSetup, context: RunContext, *, per_doubling: int
) -> xr.Dataset:
    """Return the record of a training that entries share, by its setup, a digest of its data, and the steps."""
    data = hashlib.sha256(np.ascontiguousarray(loss.inputs).data)
    data.update(np.ascontiguousarray(loss.targets).data)

    def train(step: RunContext) -> xr.Dataset:
        checkpoint = step.scratch / "checkpoint.npz"
        return record_training(loss, setup, per_doubling=per_doubling, checkpoint=checkpoint, report=step.report)

    params = {**asdict(setup), "per_doubling": per_doubling, "data_digest": data.hexdigest()}
    return context.shared_part("relu-networks", params, train)


def image_stages(recording: xr.Dataset, *, per_doubling: int) -> xr.Dataset:
    """Return the loss, accuracy and ten largest singular values of a recording, with the stages found.

    Only the steps that are evenly spaced in their logarithm are kept.
    """
    from saddlescope.flow import geometric_steps

    steps = geometric_steps(int(recording.step[-1]), per_doubling=per_doubling)
    kept = recording[["loss", "accuracy", "singular_values"]].sel(step=recording.step.isin(steps), value=slice(TOP))
    kept = kept.reindex(value=np.arange(1, TOP + 1)).drop_vars("layer")
    return kept.merge(find_stages(kept.loss.values, kept.step.values, layer_spectra(kept)), combine_attrs="override")


def layer_spectra(recording: xr.Dataset) -> list[np.ndarray]:
    """Return the singular values of each layer, (steps, values)."""
    return [s[~np.isnan(s[:, 0])].T for s in recording.singular_values.values]


def find_stages(
    loss: np.ndarray, steps: np.ndarray, spectra: Sequence[np.ndarray], *, most: int = STAGES
) -> xr.Dataset:
    """Return the first `most` stages found in a loss and the spectra of all layers, as `staircase_dataset`."""
    from saddlescope.measure import find_plateaus

    staircase = find_plateaus(loss, steps=steps, singular_values=spectra).staircase
    return staircase_dataset(staircase, layers=len(spectra), most=most)


def train_seeds(
    loss: "LayeredLoss", setup: TrainingSetup, seeds: tuple[int, ...], context: RunContext, *, per_doubling: int
) -> xr.Dataset:
    """Train one network per seed on images and find its stages, over `seed`; entries share their trainings."""

    def train(seed: int, step: RunContext) -> xr.Dataset:
        recording = shared_recording(loss, replace(setup, seed=seed), step, per_doubling=per_doubling)
        return image_stages(recording, per_doubling=per_doubling)

    return context.over({"seed": seeds}, train, join="outer")


def observe_spectra(loss: "LayeredLoss", weights: "tuple[Array, ...]") -> "dict[str, Array | list[Array]]":
    """Return the loss and the singular values of the weights of all layers."""
    import jax.numpy as jnp

    return {"loss": loss(weights), "singular_values": [jnp.linalg.svd(weight, compute_uv=False) for weight in weights]}


def _observe(loss: "LayeredLoss", weights: "tuple[Array, ...]") -> "dict[str, Array | list[Array]]":
    import jax.numpy as jnp

    outputs = loss.output(weights)
    few = loss.batch(jnp.arange(FEW)) if loss.samples > FEW else loss
    accuracy = jnp.mean(jnp.argmax(outputs, 1) == jnp.argmax(loss.targets, 1), dtype=outputs.dtype)
    measured = {"loss": loss.cost_of(outputs), "accuracy": accuracy, "measured_loss": few(weights)}
    return observe_spectra(few, weights) | measured


def staircase_dataset(staircase: "Staircase", *, layers: int, most: int) -> xr.Dataset:
    """Return the first `most` stages of a staircase over `stage`; missing stages are NaN, their ranks -1."""
    start, level = np.full((2, most), np.nan)
    rank, layer_rank = np.full(most, -1), np.full((most, layers), -1)
    for k, stage in enumerate(staircase.stages[:most]):
        start[k], level[k], rank[k], layer_rank[k] = stage.start, stage.loss, stage.rank, stage.layer_ranks
    found = {"stage_start": start, "stage_loss": level, "stage_rank": rank}
    return xr.Dataset(
        {name: ("stage", of) for name, of in found.items()}
        | {"stage_layer_rank": (("stage", "layer"), layer_rank), "stages_found": ((), len(staircase))},
        coords={"stage": np.arange(most), "layer": 1 + np.arange(layers)},
    )


def concatenate_networks(
    networks: list[xr.Dataset], combine_attrs: Literal["drop", "drop_conflicts"] = "drop"
) -> xr.Dataset:
    """Concatenate networks over `network`; layers, stages and steps that one lacks are NaN, its ranks there -1."""
    fill: Any = {"stage_rank": -1, "stage_layer_rank": -1}
    return xr.concat(
        networks,
        dim="network",
        data_vars="all",
        coords="different",
        compat="equals",
        join="outer",
        combine_attrs=combine_attrs,
        fill_value=fill,
    )
