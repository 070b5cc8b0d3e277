"""The renderer of figures: records and results know no drawing library, the package registers one with `draw_with`."""

from collections.abc import Callable
from types import ModuleType

_registered: list[Callable[[], ModuleType]] = []


def draw_with(load: Callable[[], ModuleType]) -> None:
    """Register the module that draws, loaded when something is first drawn.

    It has `draw_on_axes`, of a panel and axes or None, and `mime_bundle`, of a figure: what a notebook shows of it.
    """
    _registered[:] = [load]


def renderer() -> ModuleType:
    """Return the registered module."""
    return _registered[0]()
