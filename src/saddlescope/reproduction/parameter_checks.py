"""Checks of parameters, for `__post_init__` of an entry's Params; each raises InputError in one sentence."""

from itertools import pairwise
from typing import Any

from saddlescope._shared.errors import InputError


def require_at_least(least: int, params: Any, *names: str) -> None:
    """Raise InputError unless the fields are at least `least`."""
    for name in names:
        if getattr(params, name) < least:
            raise InputError(f"{name} must be at least {least}; got {getattr(params, name)!r}.")


def require_positive(params: Any, *names: str) -> None:
    """Raise InputError unless the fields are positive and finite."""
    for name in names:
        if not 0 < getattr(params, name) < float("inf"):
            raise InputError(f"{name} must be positive and finite; got {getattr(params, name)!r}.")


def require_between(low: float, high: float, params: Any, *names: str) -> None:
    """Raise InputError unless the fields are between two bounds."""
    for name in names:
        if not low <= getattr(params, name) <= high:
            raise InputError(f"{name} must be between {low:g} and {high:g}; got {getattr(params, name)!r}.")


def require_log10_scales(params: Any, *names: str, lowest: float = float("-inf"), least: int = 1) -> None:
    """Raise InputError unless the fields are logarithms to base 10 of initial scales below 1, decreasing.

    Args:
        params: the parameters.
        *names: names of fields that are tuples.
        lowest: the smallest logarithm allowed, such as where float64 ends.
        least: the smallest number of scales.
    """
    for name in names:
        scales = getattr(params, name)
        if len(scales) < least or not all(lowest <= scale < 0 for scale in scales) or not _decreasing(scales):
            floor = "" if lowest == float("-inf") else f", at least {lowest:g}"
            raise InputError(
                f"{name} must be negative and decreasing{floor}, {least} or more, such as -1,-8,-32; got {scales!r}."
            )


def require_learning_rates(params: Any, name: str) -> None:
    """Raise InputError unless the field has two or more learning rates, decreasing."""
    rates = getattr(params, name)
    if len(rates) < 2 or not all(0 < rate < float("inf") for rate in rates) or not _decreasing(rates):
        raise InputError(f"{name} must be two or more, positive and decreasing; got {rates!r}.")


def require_token_sizes(params: Any) -> None:
    """Raise InputError unless samples, tokens and dims are sizes of token data, as many of each."""
    sizes = params.samples, params.tokens, params.dims
    if not sizes[0] or len({len(each) for each in sizes}) > 1 or min(map(min, sizes)) < 1:
        raise InputError(f"samples, tokens and dims must be as many, one or more of each; got {sizes!r}.")


def _decreasing(values: tuple[float, ...]) -> bool:
    return all(a > b for a, b in pairwise(values))
