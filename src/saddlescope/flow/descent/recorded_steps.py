"""Steps of a descent at which results are recorded."""

import numpy as np
from jaxtyping import Int

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError


@validate_arguments
def geometric_steps(steps: int, *, per_doubling: int = 8, every: int | None = None) -> Int[np.ndarray, "k"]:
    """Return step numbers from 0 to `steps`, evenly spaced in their logarithm, so that also early stages are resolved.

    Args:
        steps: the last one, at least 0.
        per_doubling: steps from n to 2n, where there are so many integers.
        every: largest distance between two steps; None: only the geometric ones, which thin out towards the end.

    Raises:
        InputError: an argument is out of its range.
    """
    for name, value, least in (("steps", steps, 0), ("per_doubling", per_doubling, 1), ("every", every, 1)):
        if value is not None and value < least:
            raise InputError(f"{name} must be at least {least}; got {value!r}.")
    geometric = 2.0 ** (np.arange(per_doubling * int(np.ceil(np.log2(max(steps, 1)))) + 1) / per_doubling)
    even = np.zeros(0) if every is None else np.arange(0, steps, every)
    found = np.unique(np.concatenate([[0], np.round(geometric), even, [steps]]).astype(np.int64))
    return found[found <= steps]


def recorded_steps(record: np.ndarray | None, steps: int) -> Int[np.ndarray, "k"]:
    """Return the steps to record, 0 and `steps` included, ascending; None: those of `geometric_steps`.

    Raises:
        InputError: `steps` is out of range, or `record` has no step number up to it.
    """
    if not 0 <= steps < 2**31:
        raise InputError(f"steps must be at least 0 and below 2^31; got {steps!r}.")
    given = geometric_steps(steps) if record is None else np.asarray(record)
    if not (given.ndim == 1 and np.all((given >= 0) & (given <= steps) & (given == np.round(given)))):
        raise InputError(f"record must be a vector of step numbers between 0 and steps={steps!r}; got {record!r}.")
    return np.unique(np.concatenate([[0], given, [steps]])).astype(np.int64)
