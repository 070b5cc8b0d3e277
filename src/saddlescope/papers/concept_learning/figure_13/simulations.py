"""Training of three-layer networks at d = 3, and of those beside them."""

from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.concept_learning.shared.perceptron_training import PerceptronTraining, train
from saddlescope.papers.concept_learning.shared.transient_memorization import loss_descents

DEEP, ONE, WIDE = "three layers, d = 3", "one layer, d = 3", "two layers, d = 64"


def train_kind(params: Any, kind: str, depth: int, dim: int, seeds: int, report: Report) -> xr.Dataset:
    """Train the networks of one kind on both tasks."""
    training = PerceptronTraining(
        depth=depth, dim=dim, rotated=False, samples=params.samples, epochs=params.epochs,
        per_doubling=params.per_doubling,
    )  # fmt: skip
    tasks = [(tuple(factor * value for value in params.mu), params.sigma) for factor in (1, 2)]
    found = train(
        training,
        tasks,
        range(params.seed, params.seed + seeds),
        report=lambda done, note: report(done, f"{kind}: {note}"),
    ).drop_vars("time")
    losses = found.test_loss.transpose("task", "seed", "step").values.astype(float)
    below = losses < 0.01 * losses[..., :1]
    learned = np.where(below.any(axis=-1), found.step.values[np.argmax(below, axis=-1)], np.nan)
    descents = loss_descents(found, "task", "seed")
    return (
        found[["output", "train_loss", "test_loss", "mu"]]
        .assign({**descents.data_vars, "learned": (("task", "seed"), learned)})
        .assign_coords(kind=kind, task=["small", "large"])
    )
