"""Power law in the tail of a spectrum: Clauset, Shalizi and Newman 2009, "Power-law distributions in empirical data".

    lambda      eigenvalues s^2 of A^T A, for the singular values s of A
    alpha       exponent: the density of the eigenvalues falls as lambda^-alpha above the start of the tail
    D           Kolmogorov-Smirnov distance of the tail to the fitted law

Each eigenvalue is tried as the start of the tail. Over the n eigenvalues from there on, the likelihood is largest at
alpha = 1 + n / sum(log(lambda / start)). The start with the smallest D is taken. The package `powerlaw` does so,
in version 2 if its limit alpha <= 3 is lifted. So does WeightWatcher from 20 eigenvalues on, for weights instead of
updates. The exponent of the singular values themselves is 2 alpha - 1.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.measure.arrays import real_array

_ENTRIES = 2**20  # of a table of starts and eigenvalues, which bounds memory


@dataclass(frozen=True, repr=False)
class PowerLawTail(ReprMixin):
    """Power law fitted to the tail of each spectrum; NaN, and a count of 0, for fewer than two different eigenvalues.

    Attributes:
        alpha: exponent of the density of the eigenvalues, (...).
        error: standard error (alpha - 1) / sqrt(count) of the exponent.
        start: smallest eigenvalue of the tail; 0 or infinity where float64 cannot hold it.
        distance: Kolmogorov-Smirnov distance. It is near 1 / sqrt(count) for samples of a power law.
        count: number of eigenvalues in the tail.
    """

    alpha: np.ndarray
    error: np.ndarray
    start: np.ndarray
    distance: np.ndarray
    count: np.ndarray


@validate_arguments
def power_law_tail(values: Any, *, level: Any = 0.0) -> PowerLawTail:
    """Fit a power law to the tail of the eigenvalues of A^T A; Clauset et al. 2009, equation 3.1 and section 3.3.

    Args:
        values: singular values of A, (..., r), in any order: all of them, since the tail ends with the largest but may
            start anywhere. A spectrum with NaN has no tail.
        level: singular values at or below it are ignored, such as the noise floor: a number, or (...).

    Raises:
        InputError: not real numbers, no singular value, a negative or infinite one, or a level of another shape.

    >>> import numpy as np
    >>> quantiles = (np.arange(1000) + 0.5) / 1000
    >>> round(power_law_tail(quantiles ** (-0.5 / 1.5)).alpha.item(), 1)  # eigenvalues with exponent 2.5
    2.5
    """
    s, floor = real_array("values", values), real_array("level", level)
    if s.ndim < 1 or s.shape[-1] < 1:
        raise InputError(f"values must have shape (..., r) with at least one value; got {s.shape!r}.")
    if (s < 0).any() or np.isinf(s).any():
        raise InputError("values must be at least 0 and finite, or NaN; got others. Pass singular values.")
    if floor.shape not in ((), s.shape[:-1]):
        raise InputError(f"level must be a number or have shape {s.shape[:-1]!r}; got {floor.shape!r}.")
    batch = s.shape[:-1]
    floors = np.broadcast_to(floor, batch).reshape(-1)
    fits = np.array([_fit(one, low) for one, low in zip(s.reshape(-1, s.shape[-1]), floors, strict=True)])
    alpha, error, start, distance, count = (np.reshape(column, batch) for column in fits.reshape(-1, 5).T)
    return PowerLawTail(alpha, error, start, distance, np.asarray(count, dtype=int))


def _fit(s: np.ndarray, level: float) -> tuple[float, float, float, float, int]:
    """Return alpha, its error, the start, the distance and the count for one spectrum."""
    nothing = (np.nan, np.nan, np.nan, np.nan, 0)
    if np.isnan(s).any() or np.isnan(level):
        return nothing
    logs = 2.0 * np.log(np.sort(s[s > level]))  # of the eigenvalues: squares could overflow
    starts = np.flatnonzero(np.diff(logs, prepend=-np.inf) > 0)  # the first of equal eigenvalues
    starts = starts[logs[starts] < logs[-1]] if len(logs) else starts
    if not len(starts):
        return nothing
    count = len(logs) - starts
    excess = np.cumsum(logs[::-1])[::-1][starts] - count * logs[starts]
    slope = count / excess  # alpha - 1
    distances = np.empty(len(starts))
    step = max(1, _ENTRIES // len(logs))
    for first in range(0, len(starts), step):
        these = slice(first, first + step)
        above = logs - logs[starts[these], None]
        fitted = -np.expm1(-slope[these, None] * np.maximum(above, 0.0))
        empirical = (np.arange(len(logs)) - starts[these, None]) / count[these, None]
        distances[these] = np.where(above >= 0, np.abs(fitted - empirical), 0.0).max(axis=1)
    best = int(np.argmin(distances))
    alpha = 1.0 + slope[best]
    error = slope[best] / math.sqrt(count[best])
    with np.errstate(over="ignore", under="ignore"):
        start = float(np.exp(logs[starts[best]]))
    return alpha, error, start, distances[best], int(count[best])
