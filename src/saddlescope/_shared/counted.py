"""Counts in sentences."""


def counted(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun, "1 point" or "1,200 points"; without `plural`, an s is added.

    >>> counted(1, "point"), counted(1200, "point"), counted(0, "entry", "entries")
    ('1 point', '1,200 points', '0 entries')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
