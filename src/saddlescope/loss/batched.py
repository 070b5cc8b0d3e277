"""Gradients and values of the losses of many flows, each in one compiled call."""

import jax
import numpy as np
from jaxtyping import Array, Float

from saddlescope._shared.compiled_functions import quickly_compiled
from saddlescope.loss.abstract_loss import AbstractLoss
from saddlescope.loss.stacked import StackedRuns

_VALUES = 32  # points of each flow at once


def with_fewest_products(losses: StackedRuns) -> StackedRuns:
    """Return losses with the same gradients, up to rounding, that take the fewest products; perhaps these."""
    if type(losses.value).with_fewest_products is AbstractLoss.with_fewest_products:
        return losses
    return StackedRuns(_with_fewest_products(losses), losses.stacked)


def gradients(losses: StackedRuns, points: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n p"]:
    """Return the gradients of all flows."""
    return np.asarray(_gradients(losses, jax.device_put(points)))


def values(losses: StackedRuns, points: Float[np.ndarray, "n k p"]) -> Float[np.ndarray, "n k"]:
    """Return the losses of all flows, each at many points."""
    count = points.shape[1]
    padded = np.pad(points, ((0, 0), (0, -count % _VALUES), (0, 0)), mode="edge")
    parts = np.split(padded, padded.shape[1] // _VALUES, axis=1)
    return np.concatenate([np.asarray(_values(losses, jax.device_put(part))) for part in parts], 1)[:, :count]


@quickly_compiled
def _with_fewest_products(losses: StackedRuns) -> AbstractLoss:
    if losses.stacked:
        return losses.map(lambda loss: loss.with_fewest_products())
    return losses.value.with_fewest_products()


@quickly_compiled
def _gradients(losses: StackedRuns, points: Float[Array, "n p"]) -> Float[Array, "n p"]:
    return losses.map(lambda loss, point: loss.value_and_gradient(point)[1], points)


@quickly_compiled
def _values(losses: StackedRuns, points: Float[Array, "n k p"]) -> Float[Array, "n k"]:
    return losses.map(lambda loss, points: jax.lax.map(loss, points), points)
