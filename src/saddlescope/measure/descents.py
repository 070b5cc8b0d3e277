"""Count of the descents of a loss, separated from ripples by hysteresis, with the rises between them.

    rise, fall, rise, fall, ...    the loss from its first value on; the first rise may be 0
    hysteresis                     a rise or fall counts if it is greater than this part of the first loss

So the count does not depend on how finely a curve is sampled, nor on noise below the hysteresis. At hysteresis 0 every
rise counts, including rounding; then pass the losses at the exact extrema.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.measure.arrays import as_numpy

_MOST = float(np.finfo(float).max)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Descents(ReprMixin):
    """Descents of many losses.

    Attributes:
        counts: number of descents of each loss, shape (n,).
        rises: the rise just before each descent, in the unit of the loss, shape (n, most), padded with 0. The first is
            above the first loss. For a loss that falls, rises and falls: (0, its rise).
        falls: the size of each descent, shape (n, most), padded with 0.
    """

    counts: Int[np.ndarray, "n"]
    rises: Float[np.ndarray, "n most"]
    falls: Float[np.ndarray, "n most"]


@validate_arguments
def find_descents(losses: Any, *, hysteresis: float = 0.0) -> Descents:
    """Find the descents of losses.

    A descent begins at the highest point since the previous one, once the loss is more than `hysteresis` of the first
    loss below it. It ends at the lowest point, once the loss is as far above that, or with the record.

    Args:
        losses: (n, q), one loss per row, in the order of time; or (q,), one loss. Values may repeat.
        hysteresis: part of each first loss, at least 0, below 1.

    Raises:
        InputError: losses that are not finite, or whose differences are not, or a hysteresis out of range.

    >>> found = find_descents([[1.0, 0.4, 0.7, 0.2, 0.21, 0.0]], hysteresis=0.05)
    >>> found.counts.tolist(), found.rises.round(3).tolist(), found.falls.round(3).tolist()
    ([2], [[0.0, 0.3]], [[0.6, 0.7]])
    """
    series = np.atleast_2d(as_numpy("losses", losses))
    if series.ndim != 2 or series.size == 0:
        raise InputError(f"losses must have shape (n, q) or (q,), not empty; got {series.shape!r}.")
    if not 0 <= hysteresis < 1:
        raise InputError(f"hysteresis must be at least 0 and below 1; got {hysteresis!r}.")
    if np.max(series) / 2 - np.min(series) / 2 > _MOST / 2:
        raise InputError(f"losses must differ by at most {_MOST:.2g}; got more. Divide them by their size.")
    n, q = series.shape
    rows, start = np.arange(n), series[:, 0]
    least = hysteresis * np.abs(start)
    counts, rises, falls = np.zeros(n, int), np.zeros((n, q)), np.zeros((n, q))
    falling, high, low = (
        np.zeros(n, bool),
        start.copy(),
        start.copy(),
    )  # high, low: the last turns
    for loss in series.T:
        high = np.where(falling, high, np.maximum(high, loss))
        low = np.where(falling, np.minimum(low, loss), low)
        begins, ends = ~falling & (high - loss > least), falling & (loss - low > least)
        rises[rows[begins], counts[begins]] = (high - low)[begins]
        counts += begins
        falls[rows[ends], counts[ends] - 1] = (high - low)[ends]
        low, high = np.where(begins, loss, low), np.where(ends, loss, high)
        falling = falling ^ begins ^ ends
    falls[rows[falling], counts[falling] - 1] = (high - low)[falling]
    most = int(np.max(counts))
    return Descents(counts=counts, rises=rises[:, :most], falls=falls[:, :most])
