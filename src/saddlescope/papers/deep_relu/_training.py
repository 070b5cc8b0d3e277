"""Networks of Figures 1, 3 and 4 trained on images as in appendix B: what the entries share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saddlescope.papers.context import RunContext

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr

    from saddlescope.models.layered import LayeredLoss

TOP = 10  # singular values of each layer that are kept: as many as the paper shows


@dataclass(frozen=True, kw_only=True)
class Training:
    """One network and how it is trained.

    Attributes:
        depth: L, the number of weight matrices.
        width: of the hidden layers.
        deviation: standard deviation of the initial weights.
        rate: of the learning rate rate |theta|^(2 - L).
        batch: samples in a minibatch.
        steps: of stochastic gradient descent.
        marks: steps at which spectra are stored, for each doubling of the step.
        seed: of the initial weights and of the minibatches.
    """

    depth: int
    width: int
    deviation: float
    rate: float
    batch: int
    steps: int
    marks: int
    seed: int


def image_loss(name: str, context: RunContext) -> "LayeredLoss":
    """Cross-entropy on the training images, standardised by the data set's mean and deviation, in float32.

    Args:
        name: a data set of `saddlescope.train.load`; where the run has no data folder, the embedded digits stand for it.
        context: of the run.
    """
    import jax.numpy as jnp
    import numpy as np

    from saddlescope.models.layered import LayeredLoss, cross_entropy
    from saddlescope.train.data import load

    data = load(available(name, context), context.data)
    pixels = data.train_images.astype(np.float32) / data.white
    inputs = (pixels - data.mean[:, None, None].astype(np.float32)) / data.deviation[:, None, None].astype(np.float32)
    targets = np.eye(data.classes, dtype=np.float32)[data.train_labels]
    return LayeredLoss(jnp.asarray(inputs.reshape(len(inputs), -1)), jnp.asarray(targets), cross_entropy)


def available(name: str, context: RunContext) -> str:
    """The data set itself, or the embedded digits where the run has no data folder."""
    return name if context.data is not None else "digits"


def train(
    loss: "LayeredLoss", training: Training, context: RunContext, report: "Callable[[float, str], None]", name: str
) -> "xr.Dataset":
    """Trains the network; a killed run goes on from its checkpoint in the run's scratch folder.

    Returns:
        Over `step`: the loss of all training samples, their accuracy, and |theta|; over (layer, value, step): the
        largest singular values of each layer.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np
    import xarray as xr

    from saddlescope.flow import geometric_marks, homogeneous_rate, recorded_descent
    from saddlescope.models.layered import layered_weights

    widths = (loss.inputs.shape[1], *(training.depth - 1) * (training.width,), loss.targets.shape[1])
    run = recorded_descent(
        loss,
        layered_weights(widths, seed=training.seed, deviation=training.deviation, dtype=jnp.float32),
        steps=training.steps,
        learning_rate=homogeneous_rate(training.rate, training.depth),
        batch=training.batch,
        seed=training.seed,
        marks=geometric_marks(training.steps, per_doubling=training.marks),
        observe=jax.tree_util.Partial(_observe, loss),
        checkpoint=context.scratch / f"{name}.npz",
        report=report,
    )
    spectra = np.full((training.depth, TOP, len(run.steps)), np.nan, np.float32)
    for layer, values in enumerate(run.observed.pop("singular_values")):
        spectra[layer, : values.shape[1]] = values.T
    return xr.Dataset(
        {key: ("step", values) for key, values in run.observed.items()}
        | {"singular_values": (("layer", "value", "step"), spectra)},
        coords={"step": run.steps, "layer": np.arange(1, training.depth + 1), "value": np.arange(1, TOP + 1)},
        attrs={"status": str(run.status), "ok": int(run.status.ok)},
    )


def _observe(loss: "LayeredLoss", weights: Any) -> dict[str, Any]:
    import jax.numpy as jnp

    outputs = loss.output(weights)
    return {
        "loss": loss.cost_of(outputs),
        "accuracy": jnp.mean(jnp.argmax(outputs, 0) == jnp.argmax(loss.targets.T, 0), dtype=outputs.dtype),
        "norm": jnp.sqrt(sum(jnp.sum(weight**2) for weight in weights)),
        "singular_values": [jnp.linalg.svd(weight, compute_uv=False)[:TOP] for weight in weights],
    }
