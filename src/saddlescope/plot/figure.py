"""Figures as data: what is drawn, without how. Matplotlib and Plotly draw the same `Figure`.

A `Figure` holds panels side by side (wrapped on narrow screens), a `Panel` holds marks over two axes.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Axis:
    """An axis: what it shows, its unit (empty for pure numbers), linear or logarithmic, and an optional range."""

    label: str
    unit: str = ""
    scale: Literal["linear", "log"] = "linear"
    range: tuple[float, float] | None = None

    @property
    def title(self) -> str:
        """The label with its unit in brackets."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True, kw_only=True)
class Line:
    """A curve through (x, y). NaN in y breaks it.

    Attributes:
        x, y: one-dimensional arrays of one length.
        label: name in the legend; lines with the same `group` share one legend entry and are switched together.
        color: index into the palette, or None: the next one.
        style: how it is drawn; "steps" holds each value until the next x.
        width: line width in points.
        opacity: from 0 to 1.
    """

    x: Array
    y: Array
    label: str = ""
    group: str = ""
    color: int | None = None
    style: Literal["solid", "dashed", "dotted", "steps", "points"] = "solid"
    width: float = 1.6
    opacity: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Band:
    """The area between two curves, such as mean minus and plus one standard deviation over heads."""

    x: Array
    low: Array
    high: Array
    label: str = ""
    group: str = ""
    color: int | None = None


@dataclass(frozen=True, kw_only=True)
class Heat:
    """A coloured matrix z of shape (len(y), len(x))."""

    x: Array
    y: Array
    z: Array
    label: str = ""
    scale: Literal["linear", "log"] = "linear"


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A vertical or horizontal line with a name, such as a predicted stage time."""

    at: float
    label: str = ""
    axis: Literal["x", "y"] = "x"
    group: str = ""
    color: int | None = None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Marks over two axes."""

    x: Axis
    y: Axis
    marks: tuple[Line | Band | Heat | Mark, ...]
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text and numbers, drawn as a table; numbers are formatted by whoever draws."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Panels with a title and a caption that says what is seen; optionally a table below.

    Attributes:
        name: short, unique in its entry, fit for a file name.
        panels: drawn in rows of `columns`.
    """

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 2
    table: Table | None = field(default=None)
