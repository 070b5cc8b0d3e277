"""Numbers typed by a user: ASCII digits alone, as in every other program.

Python's `int` and `float` also read digits of other scripts, and underscores between digits.
"""

import re

_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[iI][nN][fF]|[nN][aA][nN])")


def whole_number(text: str) -> int:
    """Return the whole number that a text spells.

    Raises:
        ValueError: it spells none.

    >>> whole_number(" -12 ")
    -12
    >>> whole_number("1_000")
    Traceback (most recent call last):
        ...
    ValueError: not a whole number: '1_000'
    """
    if _WHOLE.fullmatch(text.strip()) is None:
        raise ValueError(f"not a whole number: {text!r}")
    return int(text)


def number(text: str) -> float:
    """Return the number that a text spells, which may be inf or nan.

    Raises:
        ValueError: it spells none.

    >>> number("1e-8"), number(".5")
    (1e-08, 0.5)
    """
    if _NUMBER.fullmatch(text.strip()) is None:
        raise ValueError(f"not a number: {text!r}")
    return float(text)
