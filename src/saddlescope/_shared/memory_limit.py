"""Memory: what this process may use, refusal of sizes that cannot fit, and errors of running out in one sentence."""

import re
from functools import cache
from pathlib import Path

from saddlescope._shared.errors import InputError

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_EXHAUSTED = re.compile(r"RESOURCE_EXHAUSTED|out of memory|can't allocate memory|cannot allocate memory", re.IGNORECASE)


@cache
def memory_limit() -> int:
    """Return the bytes of memory of this machine, or of the container that this process is in."""
    import psutil

    limits = [psutil.virtual_memory().total]
    for file in map(Path, _LIMITS):
        try:
            limits.append(int(file.read_text()))
        except (OSError, ValueError):  # absent, or "max"
            continue
    return min(limits)


def require_memory(size: int, what: str) -> None:
    """Raise InputError if so many bytes can never be had here.

    Args:
        size: a lower bound of the bytes that the work needs.
        what: the arguments that decide it, such as "dim=99999999999".

    Raises:
        InputError: this machine has less.
    """
    if size > memory_limit():
        raise InputError(
            f"{what} needs at least {in_units(size)} of memory, and this machine has {in_units(memory_limit())}."
            " Give smaller sizes."
        )


def in_units(size: int) -> str:
    """Return a number of bytes in words.

    >>> in_units(3 * 2**40)
    '3 TiB'
    """
    for power, unit in ((50, "PiB"), (40, "TiB"), (30, "GiB")):
        if size >= 2**power:
            return f"{size // 2**power if size >= 2**60 else size / 2**power:.3g} {unit}"
    return f"{size / 2**20:.3g} MiB"


def exhausted(error: BaseException) -> InputError | None:
    """Return the sentence for an error of running out of memory or of the range of numbers; None for any other."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    reason = lines[0].rstrip(".")[:200]
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _EXHAUSTED.search(str(error))):
        return InputError(f"The memory does not suffice for these sizes ({reason}). Give smaller ones.")
    if isinstance(error, OverflowError):
        return InputError(f"A number is too large to be computed with ({reason}). Give a smaller one.")
    return None
