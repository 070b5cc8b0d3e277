"""Rendering of figures by Matplotlib, for paper and thumbnails, without the global state of pyplot."""

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from saddlescope.figures.records import AnyMark, Axis, Band, Figure, Film, Heat, Kinds, Line, Mark, Panel, Picture
from saddlescope.plot.axis_values import has_integers
from saddlescope.plot.curve_points import lifted, positive, thin
from saddlescope.plot.film_images import Strip, can_stand, framed, grid, ranges, strip
from saddlescope.plot.series import Series, color_series, legend, style_of
from saddlescope.plot.theme import LIGHT, Theme
from saddlescope.plot.tick_names import MOST_APART, named_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure
    from matplotlib.figure import SubFigure
    from matplotlib.legend import Legend

_STYLES = {
    "solid": "-",
    "dashed": (0, (5, 3)),
    "dotted": (0, (1.2, 2)),
    "steps": "-",
    "points": "none",
    "dashdot": (0, (7, 2, 1.5, 2)),
}
_PANEL = (4.6, 3.2)  # width and height of a panel, inches
_FILM = 7.6  # width of a film that is alone or beside a single panel, inches
_NAMES = 1.8  # of it, for the names of the rows
_LUMINANCE = np.array([0.299, 0.587, 0.114])  # of red, green and blue (ITU-R BT.601)
_CELL = (0.28, 0.72)  # least and greatest width of an image of a film, inches


def draw_matplotlib(figure: Figure, *, theme: Theme = LIGHT) -> "MatplotlibFigure":
    """Draw all panels of a figure and one legend; its title, caption and table belong beside it.

    Args:
        figure: the figure.
        theme: the colours.

    Returns:
        A Matplotlib figure on the Agg canvas; `savefig` writes PNG, SVG or PDF.
    """
    columns = max(1, min(figure.columns, len(figure.panels)))
    shape = (-(-len(figure.panels) // columns), columns)
    size = (_PANEL[0] * columns, _PANEL[1] * shape[0] + 0.4)
    if figure.film is not None:
        return _drawing_with_film(figure, figure.film, shape, size, theme)
    drawing = _canvas(size, theme)
    _draw_panels(drawing, figure, shape, theme)
    return drawing


def _drawing_with_film(
    figure: Figure, film: Film, shape: tuple[int, int], size: tuple[float, float], theme: Theme
) -> "MatplotlibFigure":
    """Draw the film beside a single panel, or below several; `size` is that of the panels, in inches."""
    width = _FILM if len(figure.panels) < 2 else size[0]
    columns = film.images.shape[2]
    shown = strip(film, min(10, int((width - _NAMES) / _CELL[0]) // columns))
    cells = shown.columns.size + len(shown.frames) / 2  # across
    cell = min(_CELL[1], (width - _NAMES) / cells)
    height = shown.rows.size * cell + (0.9 if film.columns else 0.6)
    if len(figure.panels) == 1:
        drawing = _canvas((size[0] + width, max(size[1], height)), theme)
        places = drawing.add_gridspec(1, 2, width_ratios=(size[0], width))
    elif figure.panels:
        drawing = _canvas((width, size[1] + height), theme)
        places = drawing.add_gridspec(2, 1, height_ratios=(size[1], height))
    else:
        drawing = _canvas((min(width, cell * cells + _NAMES), height), theme)
        places = drawing.add_gridspec(1, 1)
    parts = [drawing.add_subfigure(place, facecolor=theme.paper) for place in places]
    if figure.panels:
        _draw_panels(parts[0], figure, shape, theme)
    _draw_film(parts[-1].subplots(), film, shown, theme)
    return drawing


def _draw_panels(drawing: "MatplotlibFigure | SubFigure", figure: Figure, shape: tuple[int, int], theme: Theme) -> None:
    """Draw all panels in rows and columns, and one legend below them."""
    axes = drawing.subplots(*shape, squeeze=False).ravel()
    for ax, (panel, marks) in zip(axes, color_series(figure), strict=False):
        draw_panel(ax, panel, marks, theme)
        ax.set_title(panel.title, color=theme.ink, fontsize=10, parse_math=False)
    for ax in axes[len(figure.panels) :]:
        ax.set_visible(False)
    if series := legend(figure):
        _legend_below(drawing, series, min(len(series), 3 * shape[1]), theme)


def _legend_below(drawing: "MatplotlibFigure | SubFigure", series: tuple[Series, ...], most: int, theme: Theme) -> None:
    """Draw one legend below all panels, in as many columns, up to `most`, as fit the width."""
    for columns in range(most, 0, -1):
        shown = draw_legend(drawing, series, theme, loc="outside lower center", ncols=columns)
        if columns == 1 or shown.get_window_extent().width <= drawing.bbox.width:
            return
        shown.remove()


def draw_legend(
    on: "MatplotlibFigure | SubFigure | Axes", series: Sequence[Series], theme: Theme, **place: Any
) -> "Legend":
    """Draw a legend of some series; `place` has the arguments of Matplotlib's legends for its place."""
    shown = on.legend(
        handles=[_swatch(one, theme.color(one.color)) for one in series],
        labels=[one.name for one in series],
        frameon=False,
        fontsize=8.5,
        labelcolor=theme.ink,
        **place,
    )
    for text in shown.get_texts():
        text.set_parse_math(False)
    return shown


def draw_thumbnail(figure: Figure, *, theme: Theme = LIGHT) -> "MatplotlibFigure":
    """Draw the first panel, small, with its axes but without a legend; without panels, the last frame of the film."""
    drawing = _canvas((4.0, 2.4), theme)
    ax = drawing.subplots()
    if figure.panels:
        panel, marks = next(color_series(figure))
        draw_panel(ax, panel, marks, theme)
    elif figure.film is not None:
        _draw_pixels(ax, grid(np.asarray(figure.film.images[-1])))
    return drawing


def _canvas(size: tuple[float, float], theme: Theme) -> "MatplotlibFigure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as MatplotlibFigure

    drawing = MatplotlibFigure(figsize=size, dpi=160, facecolor=theme.paper)
    drawing.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)
    FigureCanvasAgg(drawing)
    return drawing


def draw_panel(ax: "Axes", panel: Panel, marks: list[tuple[AnyMark, int | None]], theme: Theme) -> None:
    """Draw the marks of a panel, with their palette indices from `color_series`, and its axes; without a title."""
    from matplotlib.ticker import LogFormatterSciNotation, MaxNLocator

    ax.set_facecolor(theme.paper)
    ax.set_xscale(panel.x.scale)
    ax.set_yscale(panel.y.scale)
    for mark, index in marks:
        color = theme.color(index)
        match mark:
            case Line():
                _draw_line(ax, mark, panel, color, style_of(mark, index))
            case Band():
                _draw_band(ax, mark, panel, color)
            case Heat():
                _draw_heat(ax, mark, theme)
            case Kinds():
                _draw_kinds(ax, mark, theme)
            case Mark():
                _draw_mark(ax, mark, color)
            case Picture() if can_stand(mark, panel):
                _draw_picture(ax, mark, color)
    ax.set_xlabel(panel.x.title, color=theme.ink, fontsize=9.5, parse_math=False)
    ax.set_ylabel(panel.y.title, color=theme.ink, fontsize=9.5, parse_math=False)
    _set_range(ax.set_xlim, panel.x)
    _set_range(ax.set_ylim, panel.y)
    if any(isinstance(mark, Picture) for mark in panel.marks):
        shown = ranges(panel)
        ax.set_xlim(shown[0])
        ax.set_ylim(shown[1])
    whole = has_integers(panel, "x"), has_integers(panel, "y")
    for axis, integers, scale in zip((ax.xaxis, ax.yaxis), whole, (panel.x.scale, panel.y.scale), strict=True):
        if integers:
            axis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
        if scale == "log":  # labels between powers of ten only if those are too few, since labels overlap
            axis.set_minor_formatter(LogFormatterSciNotation(minor_thresholds=(0.9, 0.3)))
    for setter, axis in ((ax.set_xticks, panel.x), (ax.set_yticks, panel.y)):
        if axis.names:
            setter(*named_ticks(axis), parse_math=False)
    ax.tick_params(which="both", color=theme.grid, labelcolor=theme.muted, labelsize=8.5)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(theme.grid)
    if not any(isinstance(mark, Heat | Kinds) for mark, _ in marks):
        ax.grid(color=theme.grid, linewidth=0.6)
        ax.set_axisbelow(True)


def _set_range(setter: object, axis: Axis) -> None:
    if axis.range is not None and not (axis.scale == "log" and min(axis.range) <= 0):
        assert callable(setter)
        setter(axis.range)


def _draw_line(ax: "Axes", line: Line, panel: Panel, color: str, style: str) -> None:
    x, y = np.asarray(line.x, float), np.asarray(line.y, float)
    keep = thin(x, y)
    x, y = x[keep], y[keep]
    ax.plot(
        positive(x) if panel.x.scale == "log" else x,
        positive(y) if panel.y.scale == "log" else y,
        color=color,
        alpha=line.opacity,
        linewidth=line.width,
        linestyle=_STYLES[style],
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
    ends = heat.range or (None, None)
    scale = LogNorm(*ends) if heat.scale == "log" and z.count() else Normalize(*ends)
    mesh = ax.pcolormesh(heat.x, heat.y, z, norm=scale, cmap="viridis", shading="nearest", rasterized=True)
    assert ax.figure is not None
    bar = ax.figure.colorbar(mesh, ax=ax)
    bar.set_label(heat.label, color=theme.ink, fontsize=9.5)
    bar.ax.tick_params(which="both", color=theme.grid, labelcolor=theme.muted, labelsize=8.5)
    bar.outline.set_visible(False)  # type: ignore[operator]
    if heat.words is not None:
        light = mesh.cmap(scale(z))[..., :3] @ _LUMINANCE > 0.5
        _write_in(ax, heat, heat.words, np.where(light, LIGHT.ink, LIGHT.paper), np.isfinite(z.filled(np.nan)))


def _draw_kinds(ax: "Axes", kinds: Kinds, theme: Theme) -> None:
    from matplotlib.colors import ListedColormap

    colors = ListedColormap([theme.color(kind.color) for kind in kinds.kinds])
    z = np.ma.masked_less(kinds.z, 0)
    ax.pcolormesh(
        kinds.x, kinds.y, z, cmap=colors, vmin=-0.5, vmax=len(kinds.kinds) - 0.5, shading="nearest",
        edgecolors=theme.paper, linewidth=1.5 if max(z.shape) <= MOST_APART else 0.0,
    )  # fmt: skip
    signs = np.array([kind.sign for kind in kinds.kinds])[np.maximum(kinds.z, 0)]
    _write_in(ax, kinds, signs, np.full(z.shape, theme.paper), kinds.z >= 0)


def _write_in(ax: "Axes", grid: Heat | Kinds, words: np.ndarray, colors: np.ndarray, where: np.ndarray) -> None:
    """Write words in the cells of a matrix, if they fit."""
    letters = max((len(word) for word in words[where]), default=0)
    size = min(8.5, 150 / max(1, len(grid.x)) / max(2, letters), 110 / len(grid.y))  # points, of about 230 by 170
    if size < 4:
        return
    for row, column in zip(*np.nonzero(where), strict=True):
        text = {"color": str(colors[row, column]), "fontsize": size, "parse_math": False}
        ax.text(float(grid.x[column]), float(grid.y[row]), str(words[row, column]), ha="center", va="center", **text)


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


def _draw_picture(ax: "Axes", picture: Picture, color: str) -> None:
    """Draw the dot, and the image above it, scaled to the panel before the layout of its labels."""
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    ax.plot([picture.x], [picture.y], color=color, marker="o", markersize=3.5)
    assert ax.figure is not None
    image = framed(np.asarray(picture.image))
    points = picture.size * ax.bbox.height * 72 / ax.figure.dpi
    pin = AnnotationBbox(
        OffsetImage(image, zoom=points / len(image), interpolation="nearest"),
        (picture.x, picture.y),
        xybox=(0, 2.5),
        boxcoords="offset points",
        box_alignment=(0.5, 0),
        frameon=False,
        pad=0,
    )
    pin.set_in_layout(False)
    ax.add_artist(pin)


def _draw_film(ax: "Axes", film: Film, shown: Strip, theme: Theme) -> None:
    """Draw frames side by side: their steps above, the names of the columns below, those of the rows at the left."""
    _draw_pixels(ax, shown.pixels)
    text = {"color": theme.muted, "fontsize": 8, "parse_math": False}
    if len(film.steps) > 1:
        above = ax.secondary_xaxis("top")
        above.set_xticks(shown.columns.mean(1).tolist(), [f"{film.steps[k]:.6g}" for k in shown.frames], **text)
        above.set_xlabel(fill(film.unit, 40, max_lines=1), **text)
        above.tick_params(length=0)
        above.spines[:].set_visible(False)
    if film.rows:
        ax.set_yticks(shown.rows.tolist(), [fill(row, 28, max_lines=2) for row in film.rows], **text)
    if film.columns:
        upright = 0 if shown.columns.size * max(map(len, film.columns)) < 100 else 90
        names = [fill(column, 12, max_lines=1) for column in film.columns]
        ax.set_xticks(shown.columns.ravel().tolist(), names * len(shown.frames), rotation=upright, **text)


def _draw_pixels(ax: "Axes", pixels: np.ndarray) -> None:
    """Draw an image that fills its axes, without frame and ticks."""
    ax.imshow(pixels, interpolation="nearest")
    ax.set_facecolor("none")
    ax.set_anchor("W")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _swatch(series: Series, color: str) -> object:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shape = series.shape
    if shape in ("band", "kind"):
        return Patch(color=color, alpha=0.3 if shape == "band" else 1.0, linewidth=0)
    alpha = max(0.3, series.opacity)
    if shape == "points":
        return Line2D([], [], color=color, linestyle="none", marker="o", markersize=4, alpha=alpha)
    style = _STYLES["dotted" if shape == "mark" else shape]
    return Line2D([], [], color=color, linestyle=style, linewidth=min(4.0, max(0.8, series.width)), alpha=alpha)
