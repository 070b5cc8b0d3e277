"""Checks of the arguments that all teacher tasks share."""

import numpy as np

from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import require_float64


def check_teacher_task(task: str, seed: int, **sizes: int) -> None:
    """Raise unless a teacher task can be drawn.

    Args:
        task: name of the function that draws it.
        seed: of the NumPy generator.
        **sizes: numbers of samples, tokens, dimensions and so on, by argument name.

    Raises:
        InputError: the seed is negative, a size is not a positive integer, or JAX is not in float64 mode.
    """
    for name, value, least in (("seed", seed, 0), *((name, size, 1) for name, size in sizes.items())):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise InputError(f"{name} must be an integer of at least {least}; got {value!r}.")
    require_float64(task)
