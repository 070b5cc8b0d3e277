"""Grid syntax of the values of a swept parameter: lists, ranges of whole numbers, linear and geometric spacing.

dim=8,16,32              these values
seed=0:64                whole numbers, the stop excluded; seed=0:64:8 takes every eighth
noise=linear:0:1:5       five numbers at equal distances, both ends included
scales=log:1e-4:1e-1:4   four numbers at equal ratios, both ends included
scales=1e-1/1e-8,1e-2    a parameter that is a tuple: `/` joins what belongs to one point, here two scales, then one
"""

import math
from typing import Any

from saddlescope._shared.errors import InputError
from saddlescope._shared.typed_numbers import number, whole_number
from saddlescope.reproduction.parameters import Parameter

MOST_POINTS = 100_000
"""Largest number of points of one sweep: each is a file."""

_SPACED = ("linear", "log")


def expand(text: str, parameter: Parameter) -> tuple[str, ...]:
    """Return the values of a parameter, each as typed after `--set`.

    Args:
        text: the values, in the syntax above.
        parameter: the record of the parameter.

    Returns:
        One string per value; a tuple of several elements is joined by commas.

    Raises:
        InputError: the syntax is none of the above, or a value is given twice.
    """
    name, kind = parameter.name, parameter.type
    values: list[str] = []
    for word in text.split(","):
        word = word.strip()
        if not word:
            raise InputError(f"{name} must be one or more values, such as {name}={_example(kind)}; got {text!r}.")
        if kind in (int, float) and ":" in word:
            values += _spread(name, word, kind)
        elif parameter.many and "/" in word:
            parts = [part.strip() for part in word.split("/")]
            if not all(parts):
                raise InputError(f"{name} must have a value on both sides of each '/', such as 0.1/0.01; got {word!r}.")
            values.append(",".join(parts))
        else:
            values.append(word)
    return tuple(values)


def _spread(name: str, word: str, kind: type) -> list[str]:
    """Return the values of a word with colons."""
    head, *parts = word.split(":")
    if head in _SPACED:
        return _spaced(name, word, head, parts, kind)
    try:
        numbers = [whole_number(part) for part in word.split(":")]
        start, stop, step = numbers if len(numbers) == 3 else (*numbers, 1)
        wanted = range(start, stop, step)
    except ValueError as error:
        raise InputError(
            f"{name} must be a range of whole numbers START:STOP or START:STOP:STEP, linear:START:STOP:COUNT or "
            f"log:START:STOP:COUNT; got {word!r}."
        ) from error
    if not wanted:
        raise InputError(
            f"{name} must be a range that contains a whole number, the stop excluded, such as 0:8; got {word!r}."
        )
    _bounded(name, word, (wanted[-1] - wanted[0]) // step + 1)  # since len() has a largest value
    return [repr(kind(value)) for value in wanted]


def _spaced(name: str, word: str, how: str, parts: list[str], kind: type) -> list[str]:
    """Return COUNT numbers from START to STOP, at equal distances or ratios; integer parameters take integers only."""
    try:
        start, stop, count = number(parts[0]), number(parts[1]), whole_number(parts[2])
    except (ValueError, IndexError) as error:
        raise InputError(f"{name} must be {how}:START:STOP:COUNT, such as {how}:1:100:3; got {word!r}.") from error
    if len(parts) != 3 or count < 2 or start == stop or not (math.isfinite(start) and math.isfinite(stop)):
        raise InputError(
            f"{name} must be {how}:START:STOP:COUNT with two ends that differ and two or more values; got {word!r}."
        )
    _bounded(name, word, count)
    if how == "log" and not (start > 0 and stop > 0):
        raise InputError(f"{name} must have two positive ends for equal ratios; got {word!r}. Take linear: for others.")
    steps = [k / (count - 1) for k in range(count)]
    if how == "linear":
        values = [(1 - t) * start + t * stop for t in steps]
    else:
        values = [math.exp((1 - t) * math.log(start) + t * math.log(stop)) for t in steps]
    values = [float(f"{value:.12g}") for value in values]  # 0.3, not 0.30000000000000004: values are labels, too
    values[0], values[-1] = start, stop
    if kind is int:
        if any(value != int(value) for value in values):
            raise InputError(f"{name} must be whole numbers; got others in {word!r}. List them, such as 1,10,100.")
        return [repr(int(value)) for value in values]
    return [repr(value) for value in values]


def _bounded(name: str, word: str, count: int) -> None:
    if count > MOST_POINTS:
        raise InputError(
            f"{name} must have at most {MOST_POINTS} values, since each is a file; got {count} in {word!r}."
        )


def _example(kind: Any) -> str:
    return {int: "8,16", float: "0.1,0.01", bool: "true,false"}.get(kind, "a,b")
