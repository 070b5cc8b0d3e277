"""Rendering of figures as Plotly specifications, for pages, without the Plotly package.

Data for the page's script beyond Plotly are in `meta`: the palette index of each mark (the theme changes with the
reader's system), its series (one switch for all panels), the axes that can be logarithmic, and the position of the dot
at each step of the film.
"""

from base64 import b64encode
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from saddlescope.figures.records import AnyMark, Axis, Band, Figure, Film, Heat, Kinds, Line, Mark, Panel, Picture
from saddlescope.plot.axis_values import has_integers
from saddlescope.plot.curve_points import lifted, positive, thin
from saddlescope.plot.film_images import can_stand, framed, png, ranges, sprite
from saddlescope.plot.series import color_series, legend, name_of, style_of
from saddlescope.plot.theme import LIGHT
from saddlescope.plot.tick_names import MOST_APART, named_ticks

_DASHES = {
    "solid": "solid",
    "dashed": "7px,4px",
    "dotted": "2px,3px",
    "dashdot": "9px,3px,2px,3px",
    "steps": "solid",
    "points": "solid",
}
_DIGITS = 6  # of a number in a page: finer than a pixel at any sensible zoom
BAND_OPACITY = 0.18
_LIFT = 0.015  # of the panel's height between a picture and its point, so that the dot is seen


def draw_plotly(figure: Figure) -> dict[str, Any]:
    """Return a figure as JSON values.

    Returns:
        A dictionary with the figure's `name`, `title` and `columns`; `legend`, a list of series with `name`, `color`
        (index into the palette, or null), `shape`, `width` and `opacity`; `panels`, a list of Plotly figures with
        `data`, `layout` and `config`, drawn in the light theme; and `film`, null or a dictionary with the labels of a
        film and the `width`, `height`, `across` and `down` of the frames in the image of `film_images.sprite`.
    """
    return {
        "name": figure.name,
        "title": figure.title,
        "columns": figure.columns,
        "legend": [asdict(series) for series in legend(figure)],
        "panels": [_panel(figure, panel, marks) for panel, marks in color_series(figure)],
        "film": None if figure.film is None else _film(figure.film),
    }


def _film(film: Film) -> dict[str, Any]:
    drawn = sprite(film)
    height, width, _ = drawn.pixels.shape
    return {
        "steps": _numbers(np.asarray(film.steps, float)),
        "unit": film.unit,
        "rows": list(film.rows),
        "columns": list(film.columns),
        "shape": list(film.images.shape[1:3]),
        "width": width // drawn.across,
        "height": height // drawn.down,
        "across": drawn.across,
        "down": drawn.down,
    }


def _panel(figure: Figure, panel: Panel, marks: list[tuple[AnyMark, int | None]]) -> dict[str, Any]:
    data, shapes = [], []
    pictures = [mark for mark, _ in marks if isinstance(mark, Picture) and can_stand(mark, panel)]
    fixed = any(isinstance(mark, Heat | Kinds | Picture) for mark, _ in marks)  # these need one scale
    for mark, index in marks:
        match mark:
            case Line():
                data.append(_line(mark, index, panel))
            case Band():
                data.append(_band(mark, index, panel))
            case Heat():
                data.append(_heat(mark, panel))
            case Kinds():
                data.append(_kinds(mark, panel))
            case Picture():
                data.append(_dot(mark, index, panel))
            case Mark():
                shapes.append(_mark(mark, index))
    data.sort(key=lambda trace: trace["meta"]["kind"] == "line")  # bands are below all lines
    axes, images = (panel.x, panel.y), []
    if pictures:
        axes = tuple(replace(axis, range=shown) for axis, shown in zip(axes, ranges(panel), strict=True))
        images = [_picture(mark, *axes) for mark in pictures]
    layout = {
        "autosize": True,
        "showlegend": False,  # the page shows one legend for all panels, fit for keyboards and phones
        "hovermode": "closest",
        "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": LIGHT.ink},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"namelength": -1},
        "xaxis": _axis(axes[0]),
        "yaxis": _axis(axes[1]),
        "shapes": shapes,
        "images": images,
        "meta": {
            "title": panel.title,
            "log": {"x": not fixed and _has_logarithm(panel, "x"), "y": not fixed and _has_logarithm(panel, "y")},
            "integer": {"x": has_integers(panel, "x"), "y": has_integers(panel, "y")},
            "marks": [
                {"series": name_of(mark), "color": index} for mark, index in marks if isinstance(mark, Mark)
            ],
            "pictures": [name_of(mark) for mark in pictures],
        },
    }  # fmt: skip
    config = {
        "responsive": True,
        "displaylogo": False,
        "displayModeBar": "hover",  # it covers the top of a map
        "showSendToCloud": False,  # plotly.js 4 offers to upload the data by default
        "modeBarButtonsToRemove": ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"],
        "toImageButtonOptions": {"format": "svg", "filename": figure.name},
    }
    return {"data": data, "layout": layout, "config": config}


def _axis(axis: Axis) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "title": {"text": _shown(axis.title), "standoff": 8},
        "type": axis.scale,
        "automargin": True,
        "gridcolor": LIGHT.grid,
        "linecolor": LIGHT.grid,
        "zeroline": False,
        "exponentformat": "power",
        "hoverformat": ".5~g",
        "nticks": 5 if axis.scale == "log" else 7,
    }
    if axis.names:
        places, names = named_ticks(axis)
        drawn |= {"tickmode": "array", "tickvals": places, "ticktext": [_shown(name) for name in names]}
        drawn["showgrid"] = False  # a line would run through the cells
    if shown := _drawn_range(axis):
        drawn["range"] = list(shown)
    return drawn


def _drawn_range(axis: Axis) -> tuple[float, float] | None:
    """Return the range of an axis in Plotly's numbers: exponents of ten on a logarithmic axis."""
    if axis.range is None or (axis.scale == "log" and min(axis.range) <= 0):
        return None
    low, high = axis.range
    return (float(np.log10(low)), float(np.log10(high))) if axis.scale == "log" else (low, high)


def _line(line: Line, index: int | None, panel: Panel) -> dict[str, Any]:
    x, y = np.asarray(line.x, float), np.asarray(line.y, float)
    keep = thin(x, y)
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers" if line.style == "points" else "lines",
        "x": _numbers(x[keep]),
        "y": _numbers(y[keep]),
        "name": _shown(line.label or line.group),
        "opacity": line.opacity,
        "connectgaps": False,
        "meta": {"kind": "line", "color": index, "series": name_of(line)},
        "hovertemplate": _hover(panel, "<b>%{fullData.name}</b><br>" if line.label or line.group else ""),
    }
    if line.at is not None:
        trace["meta"]["at"] = _numbers(np.asarray(line.at, float)[keep])
    if line.moves:
        trace["meta"]["moves"] = list(line.moves)
    color = LIGHT.color(index)
    if line.style == "points":
        trace["marker"] = {"color": color, "size": 3 * line.width}
    else:
        shape = "hv" if line.style == "steps" else "linear"
        trace["line"] = {"color": color, "width": line.width, "dash": _DASHES[style_of(line, index)], "shape": shape}
    return trace


def _band(band: Band, index: int | None, panel: Panel) -> dict[str, Any]:
    """Return a band as closed outlines, one for each stretch without gaps; null separates them."""
    x, low, high = (np.asarray(values, float) for values in (band.x, band.low, band.high))
    keep = thin(x, low, high)
    x, low, high = x[keep], low[keep], high[keep]
    outlines = {"linear": _outline(x, low, high), "log": _outline(x, *lifted(low, high))}
    meta: dict[str, Any] = {"kind": "band", "color": index, "series": name_of(band)}
    if outlines["linear"] != outlines["log"]:
        meta["y"] = {scale: y for scale, (_, y) in outlines.items()}  # the page changes them with the axis
    xs, ys = outlines[panel.y.scale]
    return {
        "type": "scatter",
        "mode": "none",
        "x": xs,
        "y": ys,
        "fill": "toself",
        "fillcolor": faint(LIGHT.color(index)),
        "hoverinfo": "skip",
        "name": _shown(band.label or band.group),
        "meta": meta,
    }


def _outline(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[list[float | None], list[float | None]]:
    complete = np.isfinite(x) & np.isfinite(low) & np.isfinite(high)
    stretches = np.split(np.arange(len(x)), np.flatnonzero(np.diff(complete.astype(int))) + 1)
    xs: list[float | None] = []
    ys: list[float | None] = []
    for part in stretches:
        if len(part) == 0 or not complete[part[0]]:
            continue
        xs += [*([None] if xs else []), *_numbers(np.concatenate([x[part], x[part][::-1]]))]
        ys += [*([None] if ys else []), *_numbers(np.concatenate([high[part], low[part][::-1]]))]
    return xs, ys


def _heat(heat: Heat, panel: Panel) -> dict[str, Any]:
    z = np.asarray(heat.z, float)
    bar: dict[str, Any] = {
        "title": {"text": _shown(heat.label), "side": "right"},
        "thickness": 12,
        "outlinewidth": 0,
        "exponentformat": "power",
    }
    drawn = z
    if heat.scale == "log":
        drawn = np.log10(positive(z))
        if np.isfinite(drawn).any():
            first, last = int(np.floor(np.nanmin(drawn))), int(np.ceil(np.nanmax(drawn)))
            decades = range(first, last + 1, max(1, (last - first) // 6))
            bar |= {"tickvals": list(decades), "ticktext": [f"10<sup>{decade}</sup>" for decade in decades]}
    trace: dict[str, Any] = {
        "type": "heatmap",
        "x": _numbers(np.asarray(heat.x, float)),
        "y": _numbers(np.asarray(heat.y, float)),
        "z": [_numbers(row) for row in drawn],
        "customdata": [_numbers(row) for row in z],
        "colorscale": "Viridis",
        "colorbar": bar,
        "hovertemplate": _hover(panel, f"<b>{_literal(heat.label)} %{{customdata:.4~g}}</b><br>"),
        "meta": {"kind": "heat", "color": None, "series": ""},
    }
    if heat.range is not None:
        low, high = heat.range
        trace |= (
            {"zmin": low, "zmax": high} if heat.scale == "linear" else {"zmin": np.log10(low), "zmax": np.log10(high)}
        )
    if heat.words is not None:
        trace |= {"text": [[_shown(str(word)) for word in row] for row in heat.words], "texttemplate": "%{text}"}
    if panel.x.names or panel.y.names:
        texts = np.array([[f"{heat.label} {value:.4g}" for value in row] for row in z])
        trace |= _tooltips(texts, heat, panel)
    return trace


def _kinds(kinds: Kinds, panel: Panel) -> dict[str, Any]:
    """Return cells in the colours of their kinds, which the page changes with the theme."""
    count, gap = len(kinds.kinds), 2 if max(kinds.z.shape) <= MOST_APART else 0
    signs = np.array([kind.sign for kind in kinds.kinds] + [""])
    names = np.array([kind.name for kind in kinds.kinds] + [""])
    scale = [
        (edge / count, LIGHT.color(kind.color)) for place, kind in enumerate(kinds.kinds) for edge in (place, place + 1)
    ]
    return {
        "type": "heatmap",
        "x": _numbers(np.asarray(kinds.x, float)),
        "y": _numbers(np.asarray(kinds.y, float)),
        "z": [[place if place >= 0 else None for place in row] for row in kinds.z.tolist()],
        "zmin": -0.5,
        "zmax": count - 0.5,
        "colorscale": scale,
        "showscale": False,
        "xgap": gap,
        "ygap": gap,
        "text": [[_shown(sign) for sign in row] for row in signs[kinds.z].tolist()],
        "texttemplate": "%{text}",
        "textfont": {"color": LIGHT.paper},
        "meta": {"kind": "kinds", "color": None, "series": "", "colors": [kind.color for kind in kinds.kinds]},
        **_tooltips(names[kinds.z], kinds, panel),
    }


def _tooltips(texts: np.ndarray, grid: Heat | Kinds, panel: Panel) -> dict[str, Any]:
    """Return the tooltip of each cell, with the names of its row and column; Plotly itself would show their numbers."""

    def place(axis: Axis, at: float) -> str:
        return f"{axis.title} {axis.names[round(at)] if axis.names else f'{at:.5g}'}"

    tooltips = [
        [
            f"<b>{_shown(str(texts[row, column]))}</b><br>{_shown(place(panel.x, x))}<br>{_shown(place(panel.y, y))}"
            for column, x in enumerate(np.asarray(grid.x, float))
        ]
        for row, y in enumerate(np.asarray(grid.y, float))
    ]
    return {"hovertext": tooltips, "hovertemplate": "%{hovertext}<extra></extra>"}


def _dot(picture: Picture, index: int | None, panel: Panel) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": _numbers(np.array([picture.x], float)),
        "y": _numbers(np.array([picture.y], float)),
        "name": _shown(picture.label or picture.group),
        "marker": {"color": LIGHT.color(index), "size": 7},
        "meta": {"kind": "line", "color": index, "series": name_of(picture)},
        "hovertemplate": _hover(panel, "<b>%{fullData.name}</b><br>" if picture.label or picture.group else ""),
    }


def _picture(picture: Picture, x: Axis, y: Axis) -> dict[str, Any]:
    """Return an image that scales with its panel; the box is so wide that its height decides the size."""
    image = framed(np.asarray(picture.image))
    height, width, _ = image.shape
    placed: dict[str, Any] = {
        "xref": "x",
        "yref": "y",
        "xanchor": "center",
        "yanchor": "bottom",
        "sizing": "contain",
        "layer": "above",
    }
    for name, axis, at, size, lift in (
        ("x", x, picture.x, 2 * picture.size * width / height, 0.0),
        ("y", y, picture.y, picture.size, _LIFT),
    ):
        low, high = _drawn_range(axis) or (0.0, 1.0)
        placed[name] = float(np.log10(at) if axis.scale == "log" else at) + lift * (high - low)
        placed[f"size{name}"] = size * (high - low)
    return placed | {"source": "data:image/png;base64," + b64encode(png(image)).decode()}


def _mark(mark: Mark, index: int | None) -> dict[str, Any]:
    along, across = ("x", "y") if mark.axis == "x" else ("y", "x")
    shape: dict[str, Any] = {
        "type": "line",
        f"{along}ref": along,
        f"{along}0": mark.at,
        f"{along}1": mark.at,
        f"{across}ref": "paper",
        f"{across}0": 0,
        f"{across}1": 1,
        "layer": "below",
        "line": {"color": LIGHT.color(index), "width": 1.2, "dash": "2px,3px"},
    }
    if mark.label and not mark.group:
        shape["label"] = {
            "text": _shown(mark.label),
            "textposition": "end",
            "xanchor": "right",  # Plotly's own choice leaves half of a vertical text outside
            "font": {"size": 11, "color": LIGHT.color(index)},
        }
    return shape


def faint(color: str) -> str:
    """Return a colour #rrggbb with the opacity of bands."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{BAND_OPACITY})"


def _hover(panel: Panel, heading: str) -> str:
    return f"{heading}{_literal(panel.x.title)} %{{x}}<br>{_literal(panel.y.title)} %{{y}}<extra></extra>"


def _shown(text: str) -> str:
    """Escape text, in which Plotly interprets some HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _literal(text: str) -> str:
    return _shown(text).replace("%", "&#37;")


def _numbers(values: np.ndarray) -> list[float | None]:
    """Round to significant digits; values that are not finite become null, which breaks a curve."""
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in values.tolist()]


def _has_logarithm(panel: Panel, axis: str) -> bool:
    """Return True if a positive value is drawn along an axis, so that a logarithmic axis is not empty."""
    values = [
        np.asarray(values, float)
        for mark in panel.marks
        if isinstance(mark, Line | Band)
        for values in ((mark.x,) if axis == "x" else (mark.y,) if isinstance(mark, Line) else (mark.low, mark.high))
    ]
    return any(bool((v > 0).any()) for v in values)
