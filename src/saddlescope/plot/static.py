"""Figures drawn by Matplotlib, for paper and for thumbnails. No state of pyplot is touched."""

from typing import TYPE_CHECKING

import numpy as np

from saddlescope.plot.figure import AnyMark, Axis, Band, Figure, Heat, Line, Mark, Panel
from saddlescope.plot.series import Series, color_series, legend, lifted, positive, thin
from saddlescope.plot.theme import LIGHT, Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

_STYLES = {"solid": "-", "dashed": (0, (5, 3)), "dotted": (0, (1.2, 2)), "steps": "-", "points": "none"}
_PANEL = (4.6, 3.2)  # width and height of a panel, inches


def draw_matplotlib(figure: Figure, *, theme: Theme = LIGHT) -> "MatplotlibFigure":
    """Draws all panels of a figure and one legend; its title, caption and table belong beside it.

    Args:
        figure: what to draw.
        theme: the colours.

    Returns:
        A Matplotlib figure on the Agg canvas; `savefig` writes PNG, SVG or PDF.
    """
    columns = max(1, min(figure.columns, len(figure.panels)))
    rows = -(-len(figure.panels) // columns)
    drawing = _canvas((_PANEL[0] * columns, _PANEL[1] * rows + 0.4), theme)
    axes = drawing.subplots(rows, columns, squeeze=False).ravel()
    for ax, (panel, marks) in zip(axes, color_series(figure), strict=False):
        _draw_panel(ax, panel, marks, theme)
        ax.set_title(panel.title, color=theme.ink, fontsize=10, parse_math=False)
    for ax in axes[len(figure.panels) :]:
        ax.set_visible(False)
    if series := legend(figure):
        _draw_legend(drawing, series, min(len(series), 3 * columns), theme)
    return drawing


def _draw_legend(drawing: "MatplotlibFigure", series: tuple[Series, ...], most: int, theme: Theme) -> None:
    """One legend below all panels, in as many columns, up to `most`, as the drawing is wide enough for."""
    for columns in range(most, 0, -1):
        shown = drawing.legend(
            handles=[_swatch(one.shape, theme.color(one.color)) for one in series],
            labels=[one.name for one in series],
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            fontsize=8.5,
            labelcolor=theme.ink,
        )
        for text in shown.get_texts():
            text.set_parse_math(False)
        if columns == 1 or shown.get_window_extent().width <= drawing.bbox.width:
            return
        shown.remove()


def draw_thumbnail(figure: Figure, *, theme: Theme = LIGHT) -> "MatplotlibFigure":
    """Draws the first panel alone, small, with its axes but without a legend."""
    drawing = _canvas((4.0, 2.4), theme)
    panel, marks = next(color_series(figure))
    _draw_panel(drawing.subplots(), panel, marks, theme)
    return drawing


def _canvas(size: tuple[float, float], theme: Theme) -> "MatplotlibFigure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as MatplotlibFigure

    drawing = MatplotlibFigure(figsize=size, dpi=160, facecolor=theme.paper)
    drawing.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)
    FigureCanvasAgg(drawing)
    return drawing


def _draw_panel(ax: "Axes", panel: Panel, marks: list[tuple[AnyMark, int | None]], theme: Theme) -> None:
    from matplotlib.ticker import LogFormatterSciNotation

    ax.set_facecolor(theme.paper)
    ax.set_xscale(panel.x.scale)
    ax.set_yscale(panel.y.scale)
    for mark, index in marks:
        color = theme.color(index)
        match mark:
            case Line():
                _draw_line(ax, mark, panel, color)
            case Band():
                _draw_band(ax, mark, panel, color)
            case Heat():
                _draw_heat(ax, mark, theme)
            case Mark():
                _draw_mark(ax, mark, color)
    ax.set_xlabel(panel.x.title, color=theme.ink, fontsize=9.5, parse_math=False)
    ax.set_ylabel(panel.y.title, color=theme.ink, fontsize=9.5, parse_math=False)
    _set_range(ax.set_xlim, panel.x)
    _set_range(ax.set_ylim, panel.y)
    for axis, scale in ((ax.xaxis, panel.x.scale), (ax.yaxis, panel.y.scale)):
        if scale == "log":  # between powers of ten only where there are too few of those, or the numbers overlap
            axis.set_minor_formatter(LogFormatterSciNotation(minor_thresholds=(0.9, 0.3)))
    ax.tick_params(which="both", color=theme.grid, labelcolor=theme.muted, labelsize=8.5)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(theme.grid)
    if not any(isinstance(mark, Heat) for mark, _ in marks):
        ax.grid(color=theme.grid, linewidth=0.6)
        ax.set_axisbelow(True)


def _set_range(setter: object, axis: Axis) -> None:
    if axis.range is not None and not (axis.scale == "log" and min(axis.range) <= 0):
        assert callable(setter)
        setter(axis.range)


def _draw_line(ax: "Axes", line: Line, panel: Panel, color: str) -> None:
    x, y = np.asarray(line.x, float), np.asarray(line.y, float)
    keep = thin(x, y)
    x, y = x[keep], y[keep]
    ax.plot(
        positive(x) if panel.x.scale == "log" else x,
        positive(y) if panel.y.scale == "log" else y,
        color=color,
        alpha=line.opacity,
        linewidth=line.width,
        linestyle=_STYLES[line.style],
        drawstyle="steps-post" if line.style == "steps" else "default",
        marker="o" if line.style == "points" else None,
        markersize=2.2 * line.width,
    )


def _draw_band(ax: "Axes", band: Band, panel: Panel, color: str) -> None:
    x, low, high = (np.asarray(values, float) for values in (band.x, band.low, band.high))
    keep = thin(x, low, high)
    x, low, high = x[keep], low[keep], high[keep]
    if panel.x.scale == "log":
        x = positive(x)
    if panel.y.scale == "log":
        low, high = lifted(low, high)
    ax.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)


def _draw_heat(ax: "Axes", heat: Heat, theme: Theme) -> None:
    from matplotlib.colors import LogNorm, Normalize

    z = np.ma.masked_invalid(positive(heat.z) if heat.scale == "log" else np.asarray(heat.z, float))
    scale = LogNorm() if heat.scale == "log" and z.count() else Normalize()
    mesh = ax.pcolormesh(heat.x, heat.y, z, norm=scale, cmap="viridis", shading="nearest", rasterized=True)
    assert ax.figure is not None
    bar = ax.figure.colorbar(mesh, ax=ax)
    bar.set_label(heat.label, color=theme.ink, fontsize=9.5)
    bar.ax.tick_params(which="both", color=theme.grid, labelcolor=theme.muted, labelsize=8.5)
    bar.outline.set_visible(False)  # type: ignore[operator]


def _draw_mark(ax: "Axes", mark: Mark, color: str) -> None:
    draw = ax.axvline if mark.axis == "x" else ax.axhline
    draw(mark.at, color=color, linewidth=0.9, linestyle=_STYLES["dotted"])
    if mark.label and not mark.group:
        upright = mark.axis == "x"
        ax.annotate(
            mark.label,
            (mark.at, 0.98) if upright else (0.99, mark.at),
            xycoords=("data", "axes fraction") if upright else ("axes fraction", "data"),
            xytext=(-2, 0) if upright else (0, 2),
            textcoords="offset points",
            rotation=90 if upright else 0,
            ha="right",
            va="top" if upright else "bottom",
            color=color,
            fontsize=8,
            parse_math=False,
        )


def _swatch(shape: str, color: str) -> "object":
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if shape == "band":
        return Patch(color=color, alpha=0.3, linewidth=0)
    if shape == "points":
        return Line2D([], [], color=color, linestyle="none", marker="o", markersize=4)
    return Line2D([], [], color=color, linestyle=_STYLES["dotted" if shape == "mark" else shape], linewidth=1.6)
