"""The first seeds whose draws meet a condition."""

import itertools
from collections.abc import Callable


def first_seeds(count: int, start: int, accept: Callable[[int], bool]) -> list[int]:
    """Return the first `count` seeds from `start` on that are accepted."""
    return list(itertools.islice(filter(accept, itertools.count(start)), count))
