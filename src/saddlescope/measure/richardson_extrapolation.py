"""Richardson extrapolation of stage times to vanishing initial scale, from runs at two or more scales.

At the initial scale alpha a stage begins at T(alpha) = T + C h with h = 1 / log(1/alpha), in units of log(1/alpha): the
initial weights and the transitions before it cost O(1) of time, for any alpha. The neglected terms are exponentially
small in the length of the plateaus.
"""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.measure.records import extreme_exponent

_SEPARATE = 1e-12  # relative difference of two logarithms, below which only rounding distinguishes them


@validate_arguments
def richardson(times: ArrayLike, log_scales: ArrayLike) -> Float[np.ndarray, "..."]:
    """Return the limit, for alpha to 0, of times measured at several initial scales.

    It is the value at h = 0 of the polynomial in h = 1 / log(1/alpha) through all the times: of the straight line
    T + C h for two scales. Each further scale removes one more power of h and amplifies the errors of the times; two
    scales at which the stages are well separated are usually best.

    Args:
        times: in units of log(1/alpha), shape (scales, ...), such as (scales, stages). NaN where a stage was not
            found.
        log_scales: the natural logarithm of each alpha, below 0 and of any size, shape (scales,), at least two.

    Returns:
        The limits, of the shape of one scale's times; NaN where any time is NaN.

    Raises:
        InputError: fewer than two scales, scales that are equal to rounding, one that is not below 1, infinite times,
            times of another shape, or a limit beyond float64.

    >>> import math
    >>> log_scales = [-32 * math.log(10), -64 * math.log(10)]
    >>> [round(float(t), 12) for t in richardson([[3 + 2 / -a, 5.0] for a in log_scales], log_scales)]
    [3.0, 5.0]
    """
    found, logs = np.asarray(times, dtype=np.float64), np.asarray(log_scales, dtype=np.float64)
    if logs.ndim != 1 or logs.size < 2 or len(set(logs.tolist())) < logs.size:
        raise InputError(f"log_scales must be two or more different numbers; got {log_scales!r}.")
    if not (np.isfinite(logs).all() and (logs < 0).all()):
        raise InputError(
            f"log_scales must be natural logarithms of initial scales below 1; got {log_scales!r}. Use math.log(alpha)."
        )
    if found.ndim == 0 or found.shape[0] != logs.size:
        raise InputError(f"times must have shape ({logs.size}, ...), one row per log_scale; got {found.shape!r}.")
    # h_j / (h_j - h_i) = l_i / (l_i - l_j) with the logarithms l, of any size; a weight may be 0 beside the others.
    with np.errstate(over="ignore"):
        gaps = (logs[:, None] - logs) / logs[:, None]
    np.fill_diagonal(gaps, 1.0)
    if not np.all(np.abs(gaps) > _SEPARATE):
        raise InputError(f"log_scales must differ by more than rounding; got {log_scales!r}.")
    if np.isinf(found).any():
        raise InputError("times must be finite, or NaN where a stage was not found; got infinite ones.")
    weights = np.prod(1 / gaps, axis=1)
    exponent = extreme_exponent(np.nan_to_num(found))
    with np.errstate(over="ignore"):
        limits = np.asarray(np.ldexp(np.tensordot(weights, np.ldexp(found, -exponent), axes=1), exponent))
    if np.isinf(limits).any():
        raise InputError("times must have limits below 1.8e+308; got larger ones. Choose a larger unit of time.")
    return limits
