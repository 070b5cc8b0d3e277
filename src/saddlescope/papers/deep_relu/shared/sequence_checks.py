"""Checks of parameters that are sequences, for `__post_init__` of an entry's Params."""

from itertools import pairwise
from typing import Any

from saddlescope._shared.errors import InputError


def require_distinct(least: int, params: Any, name: str, *, example: str = "") -> None:
    """Raise InputError unless the field is one or more different integers, at least so large."""
    values = getattr(params, name)
    if not values or min(values) < least or len(set(values)) < len(values):
        such = f", such as {example}" if example else ""
        raise InputError(f"{name} must be different integers of at least {least}{such}; got {values!r}.")


def require_increasing(least: int, params: Any, name: str, *, example: str) -> None:
    """Raise InputError unless the field is one or more increasing integers, at least so large."""
    values = getattr(params, name)
    if not values or values[0] < least or any(a >= b for a, b in pairwise(values)):
        raise InputError(f"{name} must be at least {least} and increasing, such as {example}; got {values!r}.")
