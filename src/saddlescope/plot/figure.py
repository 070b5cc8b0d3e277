"""Figures as data: what is drawn, without how. Matplotlib and Plotly draw the same `Figure`.

A `Figure` holds panels side by side (wrapped on narrow screens), a `Panel` holds marks over two axes. All text is
plain Unicode and shown as it stands: neither TeX nor HTML is interpreted.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from numpy import ndarray as Array  # noqa: N812
else:
    Array = Any  # naming a figure's parts costs no import of NumPy


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
        x, y: one-dimensional arrays of one length. On a logarithmic axis, what is not positive is left out.
        label: name in the legend, and of the curve when it is pointed at.
        group: curves, bands and marks of one group share one legend entry of this name, one colour, and one switch,
            in all panels.
        color: index into the palette, or None: the next one that no mark of the figure names.
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
    """The area between two curves, such as mean minus and plus one standard deviation over heads.

    On a logarithmic axis, edges that are not positive are drawn at the band's smallest positive edge.
    """

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
    """A line across the panel at one x or y, such as a predicted stage time.

    Attributes:
        at: where it stands.
        label: written beside it, unless it belongs to a group, which the legend names.
        axis: the axis on which `at` is.
        group: as for `Line`.
        color: index into the palette, or None: a neutral grey.
    """

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
    """Rows of text and numbers, shown below the panels on a page; numbers are formatted by whoever shows them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Panels with a title and a caption that says what is seen; optionally a table below.

    Attributes:
        name: short, unique in its entry, fit for a file name.
        panels: drawn in rows of `columns`; the first one stands for the figure where there is room for one only.
    """

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 2
    table: Table | None = field(default=None)
