"""Estimate of the memory that a run needs at least, from its parameters: what cannot fit is refused before any work."""

import dataclasses
import math
import re

from saddlescope._shared.memory_limit import require_memory
from saddlescope.reproduction.parameters import EntryParams, parameters

_NUMBER = 8  # bytes of a result for each sample, start, point, ...
_WEIGHT = 4  # bytes of an entry of a weight matrix
_AXES = ("samples", "tokens", "dim")  # of the data of an entry that has them
# Integers of which no array has as many entries: labels, durations, and cuts of data that exist.
_NO_SIZE = re.compile(
    r".*seeds?|.*steps|.*epochs|.*every|generations|threads|processes|instances|orders|first_record|per_doubling|most"
    r"|.*characters|images|read|skip"
)


def require_room(params: EntryParams) -> None:
    """Raise InputError if a run with these parameters needs more memory than this machine has.

    The estimate is a lower bound: 8 bytes for each sample, start, point and so on; the data of samples, tokens and
    dimensions; a square matrix of the width.

    Raises:
        InputError: it needs more.
    """
    sizes = _sizes(params)
    for name, value in sizes.items():
        require_memory(_NUMBER * value, f"{name}={value}")
    axes = {name: sizes[name] for name in _AXES if name in sizes}
    if len(axes) > 1:
        words = " with ".join(f"{name}={value}" for name, value in axes.items())
        require_memory(_WEIGHT * math.prod(axes.values()), words)
    if "width" in sizes:
        require_memory(_WEIGHT * sizes["width"] ** 2, f"width={sizes['width']}")


def _sizes(params: EntryParams) -> dict[str, int]:
    """Return the parameters that are numbers of something in memory; of a tuple the largest."""
    records = parameters(type(params))
    values = {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
    return {
        name: max(value) if records[name].many else value
        for name, value in values.items()
        if records[name].type is int and value not in ((), None) and not _NO_SIZE.fullmatch(name)
    }
