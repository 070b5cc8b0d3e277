"""Figures as data, and two ways to draw them: Matplotlib for paper, Plotly for pages."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from saddlescope.plot.figure import Axis, Band, Figure, Film, Heat, Kind, Kinds, Line, Mark, Panel, Picture, Table
from saddlescope.plot.theme import DARK, LIGHT, Theme

if TYPE_CHECKING:
    from saddlescope.plot.phase_diagram import phase_figures
    from saddlescope.plot.render_matplotlib import draw_matplotlib, draw_thumbnail
    from saddlescope.plot.render_plotly import draw_plotly
    from saddlescope.plot.series import corners

# Entries name figures when they are listed; only drawing them needs NumPy.
_HOME = {
    "corners": "saddlescope.plot.series",
    "draw_matplotlib": "saddlescope.plot.render_matplotlib",
    "draw_plotly": "saddlescope.plot.render_plotly",
    "draw_thumbnail": "saddlescope.plot.render_matplotlib",
    "phase_figures": "saddlescope.plot.phase_diagram",
}

__all__ = [
    "DARK",
    "LIGHT",
    "Axis",
    "Band",
    "Figure",
    "Film",
    "Heat",
    "Kind",
    "Kinds",
    "Line",
    "Mark",
    "Panel",
    "Picture",
    "Table",
    "Theme",
    "corners",
    "draw_matplotlib",
    "draw_plotly",
    "draw_thumbnail",
    "phase_figures",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'saddlescope.plot' has no attribute {name!r}")
