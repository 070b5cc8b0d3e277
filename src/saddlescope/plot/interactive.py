"""Figures as plain Plotly specifications, for pages; nothing of the Plotly package is needed to write them.

Everything a page's script must know beyond Plotly stands in `meta`: the palette index of what is coloured (the theme
changes with the reader's system), the series it belongs to (one switch for all panels), and which axes can be
logarithmic.
"""

from typing import Any

import numpy as np

from saddlescope.plot.figure import AnyMark, Axis, Band, Figure, Heat, Line, Mark, Panel
from saddlescope.plot.series import color_series, legend, lifted, name_of, positive, thin
from saddlescope.plot.theme import LIGHT

_DASHES = {"solid": "solid", "dashed": "7px,4px", "dotted": "2px,3px", "steps": "solid", "points": "solid"}
_DIGITS = 6  # of a number in a page: finer than a pixel at any zoom that means something
BAND_OPACITY = 0.18


def draw_plotly(figure: Figure) -> dict[str, Any]:
    """A figure as JSON values.

    Returns:
        A dictionary with the figure's `name`, `title` and `columns`; `legend`, a list of series with `name`, `color`
        (index into the palette, or null) and `shape`; and `panels`, a list of Plotly figures with `data`, `layout`
        and `config`, drawn in the light theme.
    """
    return {
        "name": figure.name,
        "title": figure.title,
        "columns": figure.columns,
        "legend": [{"name": s.name, "color": s.color, "shape": s.shape} for s in legend(figure)],
        "panels": [_panel(figure, panel, marks) for panel, marks in color_series(figure)],
    }


def _panel(figure: Figure, panel: Panel, marks: list[tuple[AnyMark, int | None]]) -> dict[str, Any]:
    data, shapes, heat = [], [], False
    for mark, index in marks:
        match mark:
            case Line():
                data.append(_line(mark, index, panel))
            case Band():
                data.append(_band(mark, index, panel))
            case Heat():
                data.append(_heat(mark, panel))
                heat = True
            case Mark():
                shapes.append(_mark(mark, index))
    data.sort(key=lambda trace: trace["meta"]["kind"] == "line")  # bands lie below all lines
    layout = {
        "autosize": True,
        "showlegend": False,  # the page shows one legend for all panels, fit for keyboards and phones
        "hovermode": "closest",
        "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": LIGHT.ink},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"namelength": -1},
        "xaxis": _axis(panel.x),
        "yaxis": _axis(panel.y),
        "shapes": shapes,
        "meta": {
            "title": panel.title,
            "log": {"x": not heat and _has_logarithm(panel, "x"), "y": not heat and _has_logarithm(panel, "y")},
            "marks": [
                {"series": name_of(mark), "color": index} for mark, index in marks if isinstance(mark, Mark)
            ],
        },
    }  # fmt: skip
    config = {
        "responsive": True,
        "displaylogo": False,
        "showSendToCloud": False,  # plotly.js 4 offers to upload the data unless it is told not to
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
    if axis.range is not None and not (axis.scale == "log" and min(axis.range) <= 0):
        low, high = axis.range
        drawn["range"] = [float(np.log10(low)), float(np.log10(high))] if axis.scale == "log" else [low, high]
    return drawn


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
    color = LIGHT.color(index)
    if line.style == "points":
        trace["marker"] = {"color": color, "size": 3 * line.width}
    else:
        shape = "hv" if line.style == "steps" else "linear"
        trace["line"] = {"color": color, "width": line.width, "dash": _DASHES[line.style], "shape": shape}
    return trace


def _band(band: Band, index: int | None, panel: Panel) -> dict[str, Any]:
    """A band as closed outlines, one for each stretch without gaps; null separates them."""
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
    whole = np.isfinite(x) & np.isfinite(low) & np.isfinite(high)
    stretches = np.split(np.arange(len(x)), np.flatnonzero(np.diff(whole.astype(int))) + 1)
    xs: list[float | None] = []
    ys: list[float | None] = []
    for part in stretches:
        if len(part) == 0 or not whole[part[0]]:
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
    }
    drawn = z
    if heat.scale == "log":
        drawn = np.log10(positive(z))
        if np.isfinite(drawn).any():
            first, last = int(np.floor(np.nanmin(drawn))), int(np.ceil(np.nanmax(drawn)))
            decades = range(first, last + 1, max(1, (last - first) // 6))
            bar |= {"tickvals": list(decades), "ticktext": [f"10<sup>{decade}</sup>" for decade in decades]}
    return {
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
            "font": {"size": 11, "color": LIGHT.color(index)},
        }
    return shape


def faint(color: str) -> str:
    """A colour #rrggbb as translucent as bands are."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{BAND_OPACITY})"


def _hover(panel: Panel, heading: str) -> str:
    return f"{heading}{_literal(panel.x.title)} %{{x}}<br>{_literal(panel.y.title)} %{{y}}<extra></extra>"


def _shown(text: str) -> str:
    """Plotly reads a little HTML in text; what is shown here is what was written."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _literal(text: str) -> str:
    return _shown(text).replace("%", "&#37;")


def _numbers(values: np.ndarray) -> list[float | None]:
    """Rounded to significant digits; what is not finite is null, which breaks a curve."""
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in values.tolist()]


def _has_logarithm(panel: Panel, axis: str) -> bool:
    """Whether something positive is drawn along an axis: a logarithmic one would not be empty."""
    values = [
        np.asarray(values, float)
        for mark in panel.marks
        if isinstance(mark, Line | Band)
        for values in ((mark.x,) if axis == "x" else (mark.y,) if isinstance(mark, Line) else (mark.low, mark.high))
    ]
    return any(bool((v > 0).any()) for v in values)
