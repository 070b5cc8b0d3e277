"""Drawing of one panel on Matplotlib axes of the reader's own, with labels beside the curves instead of a legend."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from saddlescope.figures.records import Figure, Line, Mark, Panel
from saddlescope.plot.direct_labels import LabelledCurve, label_curves
from saddlescope.plot.render_matplotlib import draw_legend, draw_panel
from saddlescope.plot.series import color_series, legend, name_of
from saddlescope.plot.theme import LIGHT, Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (6.4, 4.0)  # width and height of a new figure, inches


def draw_on_axes(panel: Panel, ax: "Axes | None" = None, *, theme: Theme = LIGHT) -> "Axes":
    """Draw a panel on axes, with the label of each curve and mark beside it in its colour.

    Labels cover no curve. Those of curves without such a place are in a legend beside the axes; those of marks are left
    out.

    Args:
        panel: what to draw.
        ax: axes to draw on; None: those of a new figure of pyplot.
        theme: the colours.

    Returns:
        The axes.
    """
    if ax is None:
        from matplotlib import pyplot as plt

        ax = plt.subplots(figsize=_SIZE, layout="constrained", facecolor=theme.paper)[1]
    ((_, marks),) = color_series(Figure(name="panel", title=panel.title, caption="", panels=(panel,)))
    unlabelled = [(replace(mark, label="") if isinstance(mark, Mark) else mark, color) for mark, color in marks]
    draw_panel(ax, panel, unlabelled, theme)
    ax.set_title(panel.title, color=theme.ink, fontsize=10, parse_math=False)
    curves = []
    named: set[str] = set()
    for mark, color in marks:
        if isinstance(mark, Line):
            name = "" if name_of(mark) in named else name_of(mark)
            named.add(name)
            x, y = (np.asarray(values, float) for values in (mark.x, mark.y))
            if mark.style == "steps":
                x, y = np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]
            elif mark.style == "points":
                x, y = (np.column_stack([values, np.full(len(values), np.nan)]).ravel() for values in (x, y))
            curves.append(LabelledCurve(name, theme.color(color), x, y))
        elif isinstance(mark, Mark):
            at, upright = np.full(2, mark.at), mark.axis == "x"
            x, y = (at, np.array(ax.get_ylim())) if upright else (np.array(ax.get_xlim()), at)
            curves.append(LabelledCurve("" if mark.group else mark.label, theme.color(color), x, y))
    left_out = {curve.text for curve in label_curves(ax, curves)}
    series = [
        one for one in legend(Figure(name="panel", title="", caption="", panels=(panel,))) if one.name in left_out
    ]
    if series:
        draw_legend(ax, series, theme, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax
