"""Networks trained from saddle to saddle, with measurements of every layer that the conjectures of section 5 are about.

bulk      singular values up to 1.5 times the largest initial one of the same layer
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.deep_relu.shared.image_training import image_loss
from saddlescope.papers.deep_relu.shared.recorded_training import TrainingSetup, train_and_record
from saddlescope.papers.deep_relu.shared.staircase_dataset import staircase_dataset
from saddlescope.reproduction.context import RunContext

if TYPE_CHECKING:
    from saddlescope.models.deep import LayeredLoss

STAGES = 8  # that are stored

TOP = 4  # singular values of each layer that are stored


class NetworkJob(NamedTuple):
    """A network to be trained: its name, a function that returns its loss, and its training."""

    name: str
    make_loss: "Callable[[], LayeredLoss]"
    setup: TrainingSetup


def digits_jobs(seeds: Iterable[int], *, width: int, steps: int, context: RunContext) -> list[NetworkJob]:
    """Return one network per seed on digits: the paper's, with narrower hidden layers."""
    jobs = []
    for seed in seeds:
        setup = TrainingSetup(depth=6, width=width, deviation=0.01, rate=10.0, steps=steps, batch=32, seed=seed)
        jobs.append(NetworkJob(f"digits, seed {seed}", partial(image_loss, "digits", context), setup))
    return jobs


def train_jobs(jobs: Sequence[NetworkJob], context: RunContext) -> list[xr.Dataset]:
    """Train and measure all networks, one after the other; a killed run resumes at the network that it was training."""
    paths = []
    for n, (name, make_loss, setup) in enumerate(jobs):
        report = context.part(n / len(jobs), (n + 1) / len(jobs))
        make = partial(train_and_measure_layers, make_loss, setup, context, report, name)
        paths.append(context.cached(f"path-{n}", make))
    context.report(1.0, "done")
    return paths


def train_and_measure_layers(
    make_loss: "Callable[[], LayeredLoss]", setup: TrainingSetup, context: RunContext, report: Report, name: str
) -> xr.Dataset:
    """Train a network, find its stages, and measure its layers; a killed run resumes from its checkpoint.

    Args:
        make_loss: function that returns the loss.
        setup: the network and its training.
        context: context of the run.
        report: called with the finished fraction and a note.
        name: name of the network.

    Returns:
        Over `mark`, the stored steps: `step`, `loss` and, for each layer, s_2/s_1 and the count above the bulk of its
        weights, the tail energies of weights and activations, |Zs - Z|/|Z|, the stable rank and the largest singular
        values. Over `stage`: the stages found.
    """
    from saddlescope.flow import geometric_steps
    from saddlescope.measure import bulk_count, find_plateaus, second_ratio, stable_rank, tail_energy

    loss = make_loss()
    recording = train_and_record(
        loss,
        setup,
        _observe,
        record=geometric_steps(setup.steps, per_doubling=24, every=max(1, setup.steps // 300)),
        checkpoint=context.scratch / f"{name}.npz",
        report=lambda fraction, note: report(fraction, f"{name}: {note}"),
    )
    seen = recording.observed
    weights = seen["weights"]
    staircase = find_plateaus(recording.steps, seen["loss"], weights, time_unit="steps")
    absent = np.full((1, len(recording.steps)), np.nan)  # no activations in the last layer
    largest = [np.pad(s[:, :TOP], ((0, 0), (0, max(0, TOP - s.shape[1]))), constant_values=np.nan) for s in weights]
    per_layer = {
        "second_ratio": np.stack([second_ratio(s) for s in weights]),
        "tail_weights": np.stack([tail_energy(s) for s in weights]),
        "stable_rank": np.stack([stable_rank(s) for s in weights]),
        "above_bulk": np.stack([bulk_count(s, np.broadcast_to(s[:1], s.shape)) for s in weights]),
        "tail_activations": np.vstack([seen["tail_activations"].T, absent]),
        "nonlinearity": np.vstack([seen["nonlinearity"].T, absent]),
    }
    return staircase_dataset(staircase, layers=setup.depth, most=STAGES).merge(
        xr.Dataset(
            {key: (("layer", "mark"), value) for key, value in per_layer.items()}
            | {
                "step": ("mark", recording.steps),
                "loss": ("mark", seen["loss"]),
                "singular_values": (("layer", "mark", "value"), np.stack(largest)),
                "depth": ((), setup.depth),
                "seed": ((), setup.seed),
                "complete": ((), recording.status.ok),
            },
            coords={"mark": np.arange(len(recording.steps)), "value": np.arange(1, TOP + 1), "network": name},
        )
    )


def drop_fraction(run: xr.Dataset, stage: int) -> xr.DataArray:
    """Return the part of the drop to a stage from the one before that the loss of one network has made, by mark."""
    high, low = (run.stage_loss.sel(stage=k) for k in (stage - 1, stage))
    return (high - run.loss) / (high - low)


def _observe(loss: Any, weights: Any) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from saddlescope.models.deep import preactivations

    *hidden, outputs = preactivations(weights, loss.inputs)
    tails, taken = [], []
    for Z in (layer.T for layer in hidden):
        active = jax.nn.relu(Z)
        squares = jnp.linalg.eigvalsh(active @ active.T)
        tails.append(jnp.clip(1 - squares[-1] / jnp.maximum(jnp.sum(squares), 1e-37), 0, 1))
        taken.append(jnp.linalg.norm(active - Z) / jnp.maximum(jnp.linalg.norm(Z), 1e-37))
    return {
        "loss": loss.cost_of(outputs),
        "weights": [jnp.linalg.svd(weight, compute_uv=False) for weight in weights],
        "tail_activations": jnp.stack(tails),
        "nonlinearity": jnp.stack(taken),
    }
