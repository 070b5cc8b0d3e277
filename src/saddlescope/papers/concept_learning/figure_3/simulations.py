"""Kinds of networks of the entry `figure_3`, and their training."""

from dataclasses import replace
from typing import Any

import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.concept_learning.shared.perceptron_training import PerceptronTraining, train
from saddlescope.papers.concept_learning.shared.transient_memorization import loss_descents

_SMALL = 0.01  # of PyTorch's start

LOW, HIGH = "low dimension", "high dimension"

WIDE, SMALL, WHOLE = "wide hidden layers", "small start", "without minibatches"  # all in low dimension

WIDE_SGD = "wide hidden layers, minibatches"  # the others of these but one layer see all samples in each step


def network_kinds(params: Any) -> list[tuple[str, PerceptronTraining]]:
    """Return all kinds of networks, with their names."""
    low = PerceptronTraining(
        dim=params.low, depth=params.depth, samples=params.samples, epochs=params.epochs,
        per_doubling=params.per_doubling,
    )  # fmt: skip
    kinds = [(LOW, replace(low, depth=depth)) for depth in params.depths]
    for depth in params.depths[1:]:
        kinds.append((HIGH, replace(low, dim=params.high, depth=depth)))
        kinds.append((WHOLE, replace(low, depth=depth, whole=True)))
    kinds.append((WIDE, replace(low, hidden=params.high, whole=True)))
    kinds.append((SMALL, replace(low, depth=1, scale=_SMALL)))
    return [*kinds, (WIDE_SGD, replace(low, hidden=params.high))]


def train_kind(params: Any, kind: str, training: PerceptronTraining, report: Report) -> xr.Dataset:
    """Train all networks of one kind."""
    name = f"{kind}, depth {training.depth}"
    seeds = range(params.seed, params.seed + params.seeds)
    task = params.mu, params.sigma
    trained = train(training, [task], seeds, report=lambda fraction, note: report(fraction, f"{name}: {note}"))
    found = trained.isel(task=0, drop=True).drop_vars("time")
    losses = found[["test_loss", "output", "train_loss"]].assign(loss_descents(found, "seed").data_vars)
    return losses.assign_coords(kind=kind, depth=training.depth)
