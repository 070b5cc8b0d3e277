"""Whole paths of deep ReLU networks from saddle to saddle, with what the conjectures of section 5 are about.

teacher   f = h o g with inner dimension k: g = sigma(V^T x) with k orthonormal directions V and sigma the ReLU or
          the absolute value; h linear, with orthonormal directions times k strengths. Its bottleneck rank is k: no
          more, by construction, and no less, since its Jacobian has rank k somewhere
bulk      singular values up to 1.5 times the largest initial one of the same layer
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.shared.recorded_training import Training, recorded
from saddlescope.reproduction.context import RunContext

if TYPE_CHECKING:
    from saddlescope.models.deep import LayeredLoss

STAGES = 8  # that are stored
TOP = 4  # singular values of each layer that are stored
INPUTS, OUTPUTS = 8, 6  # dimensions of the teachers


def teacher_loss(kind: str, strengths: tuple[float, ...], *, samples: int, seed: int) -> "LayeredLoss":
    """Half the mean squared error on a teacher's outputs for normal inputs, in float32.

    Args:
        kind: "relu" or "abs".
        strengths: of the k inner dimensions.
        samples: in the data set.
        seed: of the teacher and the inputs.
    """
    import jax.numpy as jnp

    from saddlescope.models.deep import LayeredLoss

    draw = np.random.default_rng(seed)
    X = draw.standard_normal((INPUTS, samples))
    V, U = (np.linalg.qr(draw.standard_normal((n, n)))[0][:, : len(strengths)] for n in (INPUTS, OUTPUTS))
    inner = np.abs(V.T @ X) if kind == "abs" else np.maximum(V.T @ X, 0)
    targets = (U * np.array(strengths)) @ inner
    return LayeredLoss(jnp.asarray(X.T, jnp.float32), jnp.asarray(targets.T, jnp.float32))


def followed(
    make: "Callable[[], LayeredLoss]",
    training: Training,
    context: RunContext,
    report: Callable[[float, str], None],
    name: str,
) -> xr.Dataset:
    """Trains a network, finds its stages, and measures its layers; a killed run goes on from its checkpoint.

    Args:
        make: gives the loss.
        training: the network, and how it is trained.
        context: of the run.
        report: told the finished fraction.
        name: of the network.

    Returns:
        Over `mark`, the stored steps: `step`, `loss` and, for each layer, s_2/s_1 and the count above the bulk of its
        weights, the tail energies of weights and activations, |Zs - Z|/|Z|, the stable rank and the largest singular
        values. Over `stage`: the stages found.
    """
    from saddlescope.flow import geometric_marks
    from saddlescope.measure import bulk_count, find_plateaus, second_ratio, stable_rank, tail_energy
    from saddlescope.papers.deep_relu.shared.stored_staircases import stored_staircase

    loss = make()
    recording = recorded(
        loss,
        training,
        _observe,
        marks=geometric_marks(training.steps, per_doubling=24, every=max(1, training.steps // 300)),
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
    return stored_staircase(staircase, layers=training.depth, most=STAGES).merge(
        xr.Dataset(
            {key: (("layer", "mark"), value) for key, value in per_layer.items()}
            | {
                "step": ("mark", recording.steps),
                "loss": ("mark", seen["loss"]),
                "singular_values": (("layer", "mark", "value"), np.stack(largest)),
                "depth": ((), training.depth),
                "seed": ((), training.seed),
                "complete": ((), recording.status.ok),
            },
            coords={"mark": np.arange(len(recording.steps)), "value": np.arange(1, TOP + 1), "network": name},
        )
    )


def fallen(run: xr.Dataset, stage: int) -> xr.DataArray:
    """Of one network: which part of the drop to a stage from the one before the loss has made, at every mark."""
    high, low = (run.stage_loss.sel(stage=k) for k in (stage - 1, stage))
    return (high - run.loss) / (high - low)


def _observe(loss: Any, weights: Any) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from saddlescope.models.deep import preactivations

    *hidden, outputs = preactivations(weights, loss.inputs.T)
    tails, taken = [], []
    for Z in hidden:
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
