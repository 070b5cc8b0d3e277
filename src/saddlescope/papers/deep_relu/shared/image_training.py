"""Networks of Figures 1, 3 and 4, trained on images as in appendix B."""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.deep_relu.shared.recorded_training import TrainingSetup, train_and_record
from saddlescope.papers.deep_relu.shared.staircase_dataset import staircase_dataset
from saddlescope.reproduction.context import RunContext

if TYPE_CHECKING:
    from saddlescope.models.deep import LayeredLoss

Data = Literal["mnist", "mnist-small", "digits"]

TOP = 10  # singular values of each layer that are stored: as many as the paper shows

STAGES = 8  # that are stored


def image_loss(name: Data, context: RunContext) -> "LayeredLoss":
    """Return the cross-entropy on the training images, standardised by the data set's statistics, in float32.

    Args:
        name: a data set; where the run has no data folder, the embedded digits replace it.
        context: context of the run.

    Raises:
        InputError: the data folder lacks the data set, or its files are damaged.
    """
    import jax.numpy as jnp

    from saddlescope.models.deep import LayeredLoss, cross_entropy
    from saddlescope.train.data import load

    data = load(name if context.data is not None else "digits", context.data)
    pixels = data.train_images.astype(np.float32) / data.white
    inputs = (pixels - data.mean[:, None, None].astype(np.float32)) / data.deviation[:, None, None].astype(np.float32)
    targets = np.eye(data.classes, dtype=np.float32)[data.train_labels]
    return LayeredLoss(jnp.asarray(inputs.reshape(len(inputs), -1)), jnp.asarray(targets), cross_entropy)


def train_on_images(
    loss: "LayeredLoss", setup: TrainingSetup, context: RunContext, *, name: str, per_doubling: int, report: Report
) -> xr.Dataset:
    """Train the network; a killed run resumes from its checkpoint in the run's scratch folder.

    Args:
        loss: loss on the training images.
        setup: the network and its training.
        context: context of the run.
        name: name of the checkpoint.
        per_doubling: steps at which spectra are stored, for each doubling of the step.
        report: called with the finished fraction and a note.

    Returns:
        Over `step`: the loss of all training samples, their accuracy, and |theta|; over (layer, value, step): the
        largest singular values of each layer; and the stages.
    """
    from saddlescope.flow import geometric_steps
    from saddlescope.measure import find_plateaus

    run = train_and_record(
        loss,
        setup,
        _observe,
        record=geometric_steps(setup.steps, per_doubling=per_doubling),
        checkpoint=context.scratch / f"{name}.npz",
        report=report,
    )
    values = run.observed.pop("singular_values")
    spectra = np.full((setup.depth, TOP, len(run.steps)), np.nan, np.float32)
    for layer, of_layer in enumerate(values):
        spectra[layer, : of_layer.shape[1]] = of_layer.T
    staircase = find_plateaus(run.steps, run.observed["loss"], values, time_unit="steps")
    stages = staircase_dataset(staircase, layers=setup.depth, most=STAGES)
    return xr.Dataset(
        {key: ("step", values) for key, values in run.observed.items()}
        | {"singular_values": (("layer", "value", "step"), spectra)},
        coords={"step": run.steps, "value": np.arange(1, TOP + 1)},
        attrs={"status": str(run.status), "samples": loss.samples, "inputs": loss.inputs.shape[1]},
    ).merge(stages)


def _observe(loss: "LayeredLoss", weights: Any) -> dict[str, Any]:
    import jax.numpy as jnp

    outputs = loss.output(weights)
    return {
        "loss": loss.cost_of(outputs),
        "accuracy": jnp.mean(jnp.argmax(outputs, 1) == jnp.argmax(loss.targets, 1), dtype=outputs.dtype),
        "norm": jnp.sqrt(sum(jnp.sum(weight**2) for weight in weights)),
        "singular_values": [jnp.linalg.svd(weight, compute_uv=False)[:TOP] for weight in weights],
    }
