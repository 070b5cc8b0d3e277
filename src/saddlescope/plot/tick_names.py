"""Names along the axes of grids of cells: thinned and shortened until they do not overlap."""

from saddlescope.figures.records import Axis

MOST_NAMES = 14
"""Largest number of names along an axis; more would overlap."""
MOST_APART = 16
"""Largest number of cells along an axis with gaps; with more, the gaps would be wider than the cells."""
_LONGEST = 22  # letters of a name along an axis


def named_ticks(axis: Axis) -> tuple[list[int], list[str]]:
    """Return the positions of the names along an axis, and the names, shortened and, if there are many, thinned."""
    places = list(range(0, len(axis.names), -(-len(axis.names) // MOST_NAMES)))
    return places, [shortened(axis.names[place]) for place in places]


def shortened(name: str) -> str:
    """Return the name, or the beginning of a long one."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
