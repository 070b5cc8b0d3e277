"""Networks of Figures 1, 3 and 4 trained on images as in appendix B: what the entries share.

s_i     singular values of a layer's weights, descending
stages  plateaus of the loss, found by `saddlescope.measure.find_plateaus`; stage 0 is the saddle at the origin
first   plateau: the stage after the first escape
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.shared import recorded_training
from saddlescope.papers.deep_relu.shared.stored_staircases import stored_staircase
from saddlescope.reproduction.claim import Estimate
from saddlescope.reproduction.context import RunContext

if TYPE_CHECKING:
    from saddlescope.models.deep import LayeredLoss

Data = Literal["mnist", "mnist-small", "digits"]

TOP = 10  # singular values of each layer that are kept: as many as the paper shows
STAGES = 8  # that are stored


@dataclass(frozen=True, kw_only=True)
class Training(recorded_training.Training):
    """One network and how it is trained.

    Attributes:
        marks: steps at which spectra are stored, for each doubling of the step.
    """

    marks: int


def image_loss(name: Data, context: RunContext) -> "LayeredLoss":
    """Cross-entropy on the training images, standardised by the data set's mean and deviation, in float32.

    Args:
        name: a data set; where the run has no data folder, the embedded digits stand for it.
        context: of the run.

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


def train(
    loss: "LayeredLoss", training: Training, context: RunContext, report: Callable[[float, str], None], name: str
) -> xr.Dataset:
    """Trains the network; a killed run goes on from its checkpoint in the run's scratch folder.

    Returns:
        Over `step`: the loss of all training samples, their accuracy, and |theta|; over (layer, value, step): the
        largest singular values of each layer; and the stages.
    """
    from saddlescope.flow import geometric_marks
    from saddlescope.measure import find_plateaus

    run = recorded_training.recorded(
        loss,
        training,
        _observe,
        marks=geometric_marks(training.steps, per_doubling=training.marks),
        checkpoint=context.scratch / f"{name}.npz",
        report=report,
    )
    values = run.observed.pop("singular_values")
    spectra = np.full((training.depth, TOP, len(run.steps)), np.nan, np.float32)
    for layer, of_layer in enumerate(values):
        spectra[layer, : of_layer.shape[1]] = of_layer.T
    staircase = find_plateaus(run.steps, run.observed["loss"], values, time_unit="steps")
    stages = stored_staircase(staircase, layers=training.depth, most=STAGES)
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
        "accuracy": jnp.mean(jnp.argmax(outputs, 0) == jnp.argmax(loss.targets.T, 0), dtype=outputs.dtype),
        "norm": jnp.sqrt(sum(jnp.sum(weight**2) for weight in weights)),
        "singular_values": [jnp.linalg.svd(weight, compute_uv=False)[:TOP] for weight in weights],
    }


def on_first_plateau(run: xr.Dataset) -> xr.Dataset:
    """What was recorded half-way through the first plateau; the step is NaN where none was found."""
    start, end = float(run.stage_start.isel(stage=1)), float(run.stage_start.isel(stage=2))
    if np.isnan(start):
        return run.isel(step=-1).assign_coords(step=np.nan)
    middle = (start + (float(run.step[-1]) if np.isnan(end) else end)) / 2
    return run.sel(step=middle, method="nearest")


def ratios(at: xr.Dataset, value: int) -> xr.DataArray:
    """s_value / s_(value - 1) of every layer."""
    return at.singular_values.sel(value=value) / at.singular_values.sel(value=value - 1)


def rank_path(run: xr.Dataset, layers: slice) -> list[int]:
    """The common rank of some layers on each plateau, without repetition; -1 where they differ."""
    ranks = run.stage_layer_rank.sel(layer=layers).transpose("stage", "layer").values[: int(run.stages_found)]
    common = [int(of[0]) if (of == of[0]).all() else -1 for of in ranks]
    return [rank for k, rank in enumerate(common) if k == 0 or rank != common[k - 1]]


def ended_early(run: xr.Dataset, layers: slice) -> bool:
    """Whether the run ended at the origin or on a plateau at rank 1, so that it says nothing of what follows."""
    return rank_path(run, layers) in ([0], [0, 1])


def escapes(run: xr.Dataset) -> Estimate:
    """How many saddles were escaped from."""
    return Estimate(float(run.stages_found) - 1, remark=levels(run))


def levels(run: xr.Dataset) -> str:
    """The stages in words: where each begins, its level, and the ranks of the layers."""
    told = []
    for stage in run.stage.values[: int(run.stages_found)]:
        one = run.sel(stage=stage)
        ranks = ",".join(str(int(rank)) for rank in one.stage_layer_rank.values)
        told.append(f"step {float(one.stage_start):.0f}: loss {float(one.stage_loss):.3g}, ranks {ranks}")
    return "; ".join(told)


def distinctness(run: xr.Dataset) -> float:
    """How much longer the loss stays on its clearest plateau than is usual, in the first half of its fall.

    The fall, from 2 to 50 % of the loss's range, is cut into 24 equal bands. The longest time that the loss (its
    decreasing fit) stays in a band over the median of these times: 1 on a straight way down.
    """
    from scipy.optimize import isotonic_regression

    fit = isotonic_regression(run.loss.values.astype(float), increasing=False).x
    fallen = (fit[0] - fit) / (fit[0] - fit[-1])
    stays = np.diff(np.interp(np.linspace(0.02, 0.5, 25), fallen, run.step.values.astype(float)))
    return float(stays.max() / np.median(stays))
