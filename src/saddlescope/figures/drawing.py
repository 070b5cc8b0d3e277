"""Results that draw themselves, and the renderer that they use.

Records and results know no drawing library: the package registers its renderer with `draw_with`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from saddlescope.figures.records import Figure, Panel


@runtime_checkable
class Renderer(Protocol):
    """Drawing of panels and figures by a library."""

    def draw_on_axes(self, panel: "Panel", ax: "Axes | None" = None) -> "Axes":
        """Draw a panel on axes, those of a new figure if None, and return them."""
        ...

    def mime_bundle(self, figure: "Figure") -> dict[str, str]:
        """Return what a notebook shows of a figure, by MIME type."""
        ...


class PlotMixin(ABC):
    """Base of results that draw themselves: each describes its picture in `panel`."""

    @abstractmethod
    def panel(self) -> "Panel":
        """Return the picture that `plot` draws, as data."""

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw this result with Matplotlib.

        Args:
            ax: axes to draw on; None: those of a new figure.

        Returns:
            The axes.
        """
        return renderer().draw_on_axes(self.panel(), ax)


_registered: list[Callable[[], Renderer]] = []


def draw_with(load: Callable[[], Renderer]) -> None:
    """Register the renderer, loaded when something is first drawn."""
    _registered[:] = [load]


def renderer() -> Renderer:
    """Return the registered renderer."""
    return _registered[0]()
