"""Training a network of layers from small weights in float32, as the entries on whole trainings do it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from saddlescope.flow import Recording
    from saddlescope.models.deep import LayeredLoss


@dataclass(frozen=True, kw_only=True)
class Training:
    """One network and how it is trained.

    Attributes:
        depth: L, the number of weight matrices.
        width: of the hidden layers.
        deviation: standard deviation of the initial weights.
        rate: of the learning rate rate |theta|^(2 - L).
        steps: of (stochastic) gradient descent.
        batch: samples in a minibatch, or None: all.
        seed: of the initial weights and of the minibatches.
    """

    depth: int
    width: int
    deviation: float
    rate: float
    steps: int
    batch: int | None
    seed: int


def recorded(
    loss: "LayeredLoss",
    training: Training,
    observe: "Callable[[LayeredLoss, Any], dict[str, Any]]",
    *,
    marks: np.ndarray,
    checkpoint: Path,
    report: Callable[[float, str], None],
) -> "Recording":
    """Trains the network and observes loss and weights at the marks; a killed run goes on from its checkpoint."""
    import jax
    import jax.numpy as jnp

    from saddlescope.flow import homogeneous_rate, sgd
    from saddlescope.models.deep import layered_weights

    widths = (loss.inputs.shape[1], *(training.depth - 1) * (training.width,), loss.targets.shape[1])
    return sgd(
        loss,
        layered_weights(widths, seed=training.seed, deviation=training.deviation, dtype=jnp.float32),
        steps=training.steps,
        learning_rate=homogeneous_rate(training.rate, training.depth),
        batch=training.batch,
        seed=training.seed,
        marks=marks,
        observe=jax.tree_util.Partial(observe, loss),
        checkpoint=checkpoint,
        report=report,
    )
