"""Errors of running out of memory or of the range of numbers, in one sentence."""

import re

from saddlescope._shared.errors import InputError

_EXHAUSTED = re.compile(r"RESOURCE_EXHAUSTED|out of memory|can't allocate memory|cannot allocate memory", re.IGNORECASE)


def exhausted(error: BaseException) -> InputError | None:
    """Return the sentence for an error of running out of memory or of the range of numbers; None for any other."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    reason = lines[0].rstrip(".")[:200]
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _EXHAUSTED.search(str(error))):
        return InputError(f"The memory does not suffice for these sizes ({reason}). Give smaller ones.")
    if isinstance(error, OverflowError):
        return InputError(f"A number is too large to be computed with ({reason}). Give a smaller one.")
    return None
