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
    if t.ndim != 1 or len(t) < least or not np.all(t[1:] > t[:-1]):
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


_MODERATE = 500  # sums and squares of numbers between 2^-500 and 2^500 neither overflow nor vanish


def extreme_exponent(values: Float[np.ndarray, "..."]) -> int:
    """Return the k for which the numbers times 2^-k, an exact factor, are at most 1; 0 if they are moderate already."""
    k = int(np.frexp(np.max(np.abs(values), initial=0.0))[1])
    return k if abs(k) > _MODERATE else 0


def recorded_rows(name: str, values: Any, times: Series) -> Float[np.ndarray, "n r"]:
    """Return an array with one row per time in float64.

    Raises:
        InputError: an array of another shape.
    """
    rows = as_numpy(name, values)
    if rows.ndim != 2 or len(rows) != len(times):
        raise InputError(f"{name} must have shape ({len(times)}, r), one row per time; got {rows.shape!r}.")
    return rows
