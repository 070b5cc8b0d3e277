"""Checks of parameters, for `__post_init__` of an entry's Params: each refuses at once, in one sentence."""

from itertools import pairwise
from typing import Any

from saddlescope._shared.errors import InputError


def at_least(least: int, params: Any, *names: str) -> None:
    """The fields are at least so large.

    Raises:
        InputError: one is not.
    """
    for name in names:
        if getattr(params, name) < least:
            raise InputError(f"{name} must be at least {least}; got {getattr(params, name)!r}.")


def positive(params: Any, *names: str) -> None:
    """The fields are positive and finite.

    Raises:
        InputError: one is not.
    """
    for name in names:
        if not 0 < getattr(params, name) < float("inf"):
            raise InputError(f"{name} must be positive and finite; got {getattr(params, name)!r}.")


def between(low: float, high: float, params: Any, *names: str) -> None:
    """The fields lie between two bounds.

    Raises:
        InputError: one does not.
    """
    for name in names:
        if not low <= getattr(params, name) <= high:
            raise InputError(f"{name} must be between {low:g} and {high:g}; got {getattr(params, name)!r}.")


def log10_scales(params: Any, *names: str, lowest: float = float("-inf"), least: int = 1) -> None:
    """The fields are logarithms to base 10 of initial scales below 1, decreasing.

    Args:
        params: the parameters.
        *names: of fields that are tuples.
        lowest: the smallest logarithm allowed, such as where float64 ends.
        least: how many there must be.

    Raises:
        InputError: they are not.
    """
    for name in names:
        scales = getattr(params, name)
        if len(scales) < least or not all(lowest <= scale < 0 for scale in scales) or not _decreasing(scales):
            floor = "" if lowest == float("-inf") else f", at least {lowest:g}"
            raise InputError(
                f"{name} must be negative and decreasing{floor}, {least} or more, such as -1,-8,-32; got {scales!r}."
            )


def learning_rates(params: Any, name: str) -> None:
    """The field is two or more learning rates, decreasing.

    Raises:
        InputError: it is not.
    """
    rates = getattr(params, name)
    if len(rates) < 2 or not all(0 < rate < float("inf") for rate in rates) or not _decreasing(rates):
        raise InputError(f"{name} must be two or more, positive and decreasing; got {rates!r}.")


def token_sizes(params: Any) -> None:
    """The fields samples, tokens and dims are sizes of token data, as many of each.

    Raises:
        InputError: they are not.
    """
    sizes = params.samples, params.tokens, params.dims
    if not sizes[0] or len({len(each) for each in sizes}) > 1 or min(map(min, sizes)) < 1:
        raise InputError(f"samples, tokens and dims must be as many, one or more of each; got {sizes!r}.")


def _decreasing(values: tuple[float, ...]) -> bool:
    return all(a > b for a, b in pairwise(values))
