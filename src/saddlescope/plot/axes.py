"""Drawing of one panel on Matplotlib axes of the reader's own."""

from typing import TYPE_CHECKING

from saddlescope._shared.errors import InputError
from saddlescope.figures.records import Figure, Panel
from saddlescope.plot.render_matplotlib import draw_legend, draw_panel
from saddlescope.plot.series import color_series, legend
from saddlescope.plot.theme import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (6.4, 4.0)  # width and height of a new figure, inches


def draw_on_axes(panel: Panel, ax: "Axes | None" = None) -> "Axes":
    """Draw a panel on axes, with a legend where it covers least.

    Args:
        panel: what to draw.
        ax: axes to draw on; None: those of a new figure of pyplot.

    Returns:
        The axes.

    Raises:
        InputError: ax is something else, such as an array of axes.
    """
    if ax is None:
        from matplotlib import pyplot as plt

        ax = plt.subplots(figsize=_SIZE, layout="constrained", facecolor=LIGHT.paper)[1]
    if not hasattr(ax, "set_facecolor"):
        raise InputError(f"ax must be axes of Matplotlib; got {type(ax).__name__}. Pass one of them.")
    figure = Figure(name="panel", title=panel.title, caption="", panels=(panel,))
    ((_, marks),) = color_series(figure)
    draw_panel(ax, panel, marks, LIGHT)
    ax.set_title(panel.title, color=LIGHT.ink, fontsize=10, parse_math=False)
    if series := legend(figure):
        draw_legend(ax, series, LIGHT, loc="best")
    return ax
