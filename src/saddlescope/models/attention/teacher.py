"""Checks of the arguments that all teacher tasks share."""

import numpy as np

from saddlescope._shared.errors import InputError


def check_teacher_task(seed: int, **sizes: int) -> None:
    """Raise unless a teacher task can be drawn.

    Args:
        seed: of the NumPy generator.
        **sizes: numbers of samples, tokens, dimensions and so on, by argument name.

    Raises:
        InputError: the seed is negative, or a size is not a positive integer.
    """
    for name, value, least in (("seed", seed, 0), *((name, size, 1) for name, size in sizes.items())):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise InputError(f"{name} must be an integer of at least {least}; got {value!r}.")
