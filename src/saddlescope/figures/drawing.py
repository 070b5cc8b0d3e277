"""Results that draw themselves: they describe their picture as data."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from saddlescope.figures.records import Panel
from saddlescope.figures.renderer import renderer

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class PlotMixin(ABC):
    """Base of results that draw themselves: each describes its picture in `panel`."""

    @abstractmethod
    def panel(self) -> Panel:
        """Return the picture that `plot` draws, as data."""

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw this result with Matplotlib.

        Args:
            ax: axes to draw on; None: those of a new figure.

        Returns:
            The axes.
        """
        return renderer().draw_on_axes(self.panel(), ax)
