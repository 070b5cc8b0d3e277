"""Figures as data, independent of the renderer: Matplotlib and Plotly draw the same `Figure`.

A `Figure` has panels side by side (wrapped on narrow screens), a `Panel` has marks over two axes. All text is plain
Unicode and shown verbatim: neither TeX nor HTML is interpreted.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.figures.renderer import renderer

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_FILM_BYTES = 12_000_000
"""Largest number of bytes of a film's images: a page with more would load slowly."""
FEW_LINES, MOST_LINES = 6, 60
"""Largest number of lines with a label and a colour of their own, and of thin lines in a crowd."""


@dataclass(frozen=True)
class Axis:
    """An axis: its label, unit (empty for pure numbers), scale, and optional range.

    With `names`, the integers from 0 on represent these words, such as the values of a grid.
    """

    label: str
    unit: str = ""
    scale: Literal["linear", "log"] = "linear"
    range: tuple[float, float] | None = None
    names: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Label with its unit in brackets."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True, repr=False, kw_only=True)
class Line(ReprMixin):
    """A curve through (x, y). NaN in y breaks it.

    Attributes:
        x, y: one-dimensional arrays of one length. On a logarithmic axis, values that are not positive are left out.
        label: name in the legend, and in the tooltip of the curve.
        group: curves, bands and marks of one group share one legend entry of this name, one colour, and one switch,
            in all panels.
        color: index into the palette, or None: the next one that no mark of the figure names.
        style: line style; "steps" holds each value until the next x. A line of a single point becomes "points".
        width: line width in points.
        opacity: from 0 to 1.
        at: for a figure with a film, the step of each point in the film's unit, of the shape of x and rising: on a
            page, a dot marks the last point that is not after the step shown. None: no dot.
        moves: on the live page, the last point can be dragged, which changes the parameters of these names: its x and
            its y. Empty: it is fixed.
    """

    x: np.ndarray
    y: np.ndarray
    label: str = ""
    group: str = ""
    color: int | None = None
    style: Literal["solid", "dashed", "dotted", "steps", "points"] = "solid"
    width: float = 1.6
    opacity: float = 1.0
    at: np.ndarray | None = None
    moves: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.at is not None and len(self.at) != len(self.x):
            raise InputError(f"at must have one step for each of the {len(self.x)} points; got {len(self.at)}.")
        if np.sum(np.isfinite(np.asarray(self.x, float) + np.asarray(self.y, float))) == 1:
            object.__setattr__(self, "style", "points")


@dataclass(frozen=True, repr=False, kw_only=True)
class Band(ReprMixin):
    """The area between two curves, such as mean minus and plus one standard deviation over heads.

    On a logarithmic axis, edges that are not positive are drawn at the band's smallest positive edge.
    """

    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    label: str = ""
    group: str = ""
    color: int | None = None


@dataclass(frozen=True, repr=False, kw_only=True)
class Heat(ReprMixin):
    """A coloured matrix z of shape (len(y), len(x)). Where z is NaN, nothing is drawn.

    Attributes:
        x, y: the middles of the cells, rising.
        z: the values.
        label: text beside the scale of colours.
        scale: of the colours; on a logarithmic one, values that are not positive are left out.
        range: the values at both ends of the colours, or None: the least and the greatest of z.
        words: short texts in the cells, also shown in their tooltips; of the shape of z, or None.
    """

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    label: str = ""
    scale: Literal["linear", "log"] = "linear"
    range: tuple[float, float] | None = None
    words: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.words is not None and self.words.shape != self.z.shape:
            raise InputError(f"words must be of the shape {self.z.shape} of z; got {self.words.shape}.")


@dataclass(frozen=True)
class Kind:
    """One of a few kinds: its name, its colour (an index into the palette, or None: neutral), and a sign for it."""

    name: str
    color: int | None
    sign: str


@dataclass(frozen=True, repr=False, kw_only=True)
class Kinds(ReprMixin):
    """A matrix of cells that are of a few kinds, such as verdicts; the legend names those that occur.

    Attributes:
        x, y: the middles of the cells, rising.
        z: index of the kind of each cell in `kinds`, or -1 for an empty cell, shape (len(y), len(x)).
        kinds: the kinds; their signs are in the cells where they fit, so that colour is not the only mark.
    """

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    kinds: tuple[Kind, ...]

    def __post_init__(self) -> None:
        if str(self.z.dtype)[:3] != "int" or bool(((self.z < -1) | (self.z >= len(self.kinds))).any()):
            raise InputError(f"z must be integers from -1 to {len(self.kinds) - 1}; got {self.z!r}.")

    @property
    def occurring(self) -> tuple[Kind, ...]:
        """Kinds that occur in a cell."""
        return tuple(kind for place, kind in enumerate(self.kinds) if bool((self.z == place).any()))


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A line across the panel at one x or y, such as a predicted stage time.

    Attributes:
        at: its position.
        label: written beside it, unless it belongs to a group, which the legend names.
        axis: the axis on which `at` is.
        group: as for `Line`.
        color: index into the palette, or None: a neutral grey.

    Raises:
        InputError: its position is not finite.
    """

    at: float
    label: str = ""
    axis: Literal["x", "y"] = "x"
    group: str = ""
    color: int | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.at):
            raise InputError(f"at must be finite; got {self.at!r} for the mark {self.label!r}. Leave it out.")


@dataclass(frozen=True, repr=False, kw_only=True)
class Picture(ReprMixin):
    """A small image above a dot at a data point, like a pin on a map, such as a sample along a trajectory.

    Attributes:
        x, y: the data point with the dot; the image is above it.
        image: colours, shape (height, width, 3), uint8.
        size: height of the image as a fraction of the panel's height.
        label: name in the tooltip of the dot.
        group: as for `Line`: image and dot are switched with it, and the dot has its colour.
        color: index into the palette, or None: that of its group, or a neutral grey.
    """

    x: float
    y: float
    image: np.ndarray
    size: float = 0.12
    label: str = ""
    group: str = ""
    color: int | None = None

    def __post_init__(self) -> None:
        _require_rgb("image", self.image, "(height, width, 3)", 3)
        if not 0 < self.size <= 1:
            raise InputError(f"size must be above 0 and at most 1, a fraction of the panel; got {self.size!r}.")


AnyMark = Line | Band | Heat | Kinds | Mark | Picture
"""Any mark of a panel."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Panel(ReprMixin):
    """Marks over two axes."""

    x: Axis
    y: Axis
    marks: tuple[AnyMark, ...]
    title: str = ""


@dataclass(frozen=True, repr=False, kw_only=True)
class Film(ReprMixin):
    """Grids of images by step: on a page one grid with a slider, on paper the grids of some steps side by side.

    Attributes:
        steps: the step of each frame, shape (frame,), rising; one frame is shown without a slider.
        images: colours, shape (frame, row, column, height, width, 3), uint8; at most `MOST_FILM_BYTES` bytes.
        rows: a label for each row, or nothing.
        columns: a label for each column, or nothing.
        unit: word before the number of a step: "step 1200".
    """

    steps: np.ndarray
    images: np.ndarray
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    unit: str = "step"

    def __post_init__(self) -> None:
        _require_rgb("images", self.images, "(frame, row, column, height, width, 3)", 6)
        frames, rows, columns = self.images.shape[:3]
        if len(self.steps) != frames or any(not a < b for a, b in pairwise(self.steps)):
            raise InputError(f"steps must be rising, one for each of the {frames} frames; got {list(self.steps)!r}.")
        for name, labels, count in (("rows", self.rows, rows), ("columns", self.columns, columns)):
            if len(labels) not in (0, count):
                raise InputError(f"{name} must be {count} labels or none; got {labels!r}.")
        if self.images.nbytes > MOST_FILM_BYTES:
            raise InputError(
                f"images must hold at most {MOST_FILM_BYTES} bytes; got {self.images.nbytes}; show fewer of them."
            )


@dataclass(frozen=True, repr=False, kw_only=True)
class Table(ReprMixin):
    """Rows of text and numbers, shown below the panels on a page; numbers are formatted by the page."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | int, ...], ...]


@dataclass(frozen=True, repr=False, kw_only=True)
class Figure(ReprMixin):
    """Panels with a title and a caption; optionally a film and a table below.

    Attributes:
        name: short, unique in its entry, fit for a file name.
        panels: drawn in rows of `columns`; the first one represents the figure as a thumbnail. May be
            empty if film is given.
        film: images by step; its slider moves a dot along each `Line` with `at`.
    """

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 2
    table: Table | None = field(default=None)
    film: Film | None = None

    def __post_init__(self) -> None:
        if not self.panels and self.film is None:
            raise InputError("panels must have at least one panel if film is None; got ().")

    def to_dataframe(self) -> "DataFrame":
        """Return the points of all lines: panel and line (by title and label, or else by number), x and y.

        Raises:
            InputError: it has no lines, as a picture of a matrix.
        """
        from pandas import DataFrame, concat

        lines = [
            DataFrame(
                {
                    "panel": panel.title or f"{number}",
                    "line": mark.label or mark.group or f"{place}",
                    "x": mark.x,
                    "y": mark.y,
                }
            )
            for number, panel in enumerate(self.panels)
            for place, mark in enumerate(panel.marks)
            if isinstance(mark, Line)
        ]
        if not lines:
            raise InputError(f"{self.name} must have lines to be a table; got none. Take its numbers from the run.")
        return concat(lines, ignore_index=True)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Return the figure as a notebook shows it: title, picture, caption and table; and the picture alone."""
        return renderer().mime_bundle(self)


Figures = Iterator[Figure]
"""The figures of a run, one after the other."""


def several_lines(
    curves: Iterable[tuple[str, np.ndarray, np.ndarray]], *, style: Literal["solid", "points"] = "solid"
) -> tuple[Line, ...]:
    """Return lines with labels and colours for a few curves (label, x, y); thin equal ones without for a crowd."""
    every = list(curves)
    few = len(every) <= FEW_LINES
    return tuple(
        Line(x=x, y=y, label=label if few else "", color=k if few else 0, width=1.6 if few else 0.8, style=style)
        for k, (label, x, y) in enumerate(every[:MOST_LINES])
    )


def signed_matrix(W: np.ndarray, label: str, x: str, y: str, *, title: str = "") -> Panel:
    """Return the panel of a matrix on a scale of colours around 0."""
    size = float(np.nanmax(np.abs(W), initial=0.0)) or 1.0
    heat = Heat(x=np.arange(W.shape[1]), y=np.arange(W.shape[0]), z=W, label=label, range=(-size, size))
    return Panel(x=Axis(x), y=Axis(y), marks=(heat,), title=title)


def _require_rgb(name: str, given: np.ndarray, shape: str, dimensions: int) -> None:
    """Raise InputError unless the images are RGB in integers from 0 to 255, with at least one pixel."""
    if len(given.shape) != dimensions or given.shape[-1] != 3 or 0 in given.shape or str(given.dtype) != "uint8":
        raise InputError(f"{name} must be {shape} of uint8, none of them empty; got {given.shape} of {given.dtype}.")
