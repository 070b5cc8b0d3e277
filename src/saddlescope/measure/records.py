"""Checks of recorded time series: times, losses, and one row of numbers per time."""

from typing import Any

import numpy as np
from jaxtyping import Float

from saddlescope._shared.errors import InputError
from saddlescope.measure.arrays import as_numpy

Series = Float[np.ndarray, "n"]


def recorded_times(times: Any, *, least: int) -> Series:
    """Return the times of a record in float64.

    Raises:
        InputError: fewer than `least` times, or times that do not increase.
    """
    t = as_numpy("times", times)
    if t.ndim != 1 or len(t) < least or not np.all(np.diff(t) > 0):
        raise InputError(f"times must be at least {least} strictly increasing numbers; got shape {t.shape!r}.")
    return t


def recorded_losses(losses: Any, times: Series) -> Series:
    """Return the losses of a record in float64.

    Raises:
        InputError: another number of losses than times.
    """
    loss = as_numpy("losses", losses)
    if loss.shape != times.shape:
        raise InputError(f"losses must have the shape of times, {times.shape!r}; got {loss.shape!r}.")
    return loss


def recorded_rows(name: str, values: Any, times: Series) -> Float[np.ndarray, "n r"]:
    """Return an array with one row per time in float64.

    Raises:
        InputError: an array of another shape.
    """
    rows = as_numpy(name, values)
    if rows.ndim != 2 or len(rows) != len(times):
        raise InputError(f"{name} must have shape ({len(times)}, r), one row per time; got {rows.shape!r}.")
    return rows
