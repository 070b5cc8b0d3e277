"""Training of a network of layers from small weights in float32, recorded at chosen steps."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from saddlescope._shared.progress import Report

if TYPE_CHECKING:
    from saddlescope.flow import Recording
    from saddlescope.models.deep import LayeredLoss


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
