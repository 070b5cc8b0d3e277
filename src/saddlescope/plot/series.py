"""Series of a figure, shared by both renderers: the marks of each legend entry, and their colours."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from saddlescope.figures.records import AnyMark, Band, Figure, Heat, Kinds, Line, Mark, Panel, Picture
from saddlescope.plot.theme import LIGHT


@dataclass(frozen=True)
class Series:
    """One entry of a figure's legend: marks that are switched on and off together, in all panels.

    Attributes:
        name: of the group, or the label of a mark without group.
        color: index into the palette; None is neutral.
        shape: its shape in the legend: a style of `Line`, "dashdot", "band", "mark", or "kind", which has no switch.
        width, opacity: those of its first line.
    """

    name: str
    color: int | None
    shape: str
    width: float = 1.6
    opacity: float = 1.0


def style_of(line: Line, color: int | None) -> str:
    """Return the style of a line; a solid one whose colour repeats an earlier one is "dashdot"."""
    return "dashdot" if line.style == "solid" and color is not None and color >= len(LIGHT.palette) else line.style


def name_of(mark: AnyMark) -> str:
    """Return the name of the series of a mark; empty if it is not in the legend."""
    if isinstance(mark, Heat | Kinds):
        return ""
    if isinstance(mark, Mark | Picture):
        return mark.group
    return mark.group or mark.label


def color_series(
    figure: Figure,
) -> Iterator[tuple[Panel, list[tuple[AnyMark, int | None]]]]:
    """Yield the panels, each with its marks and their palette indices: their own, of their series, or free ones."""
    known: dict[str, int | None] = {}
    given = {color for panel in figure.panels for mark in panel.marks for color in _given(mark)}
    free = (index for index in count() if index not in given)
    for panel in figure.panels:
        colored = []
        for mark in panel.marks:
            name, color = name_of(mark), None if isinstance(mark, Heat | Kinds) else mark.color
            if color is None and name in known:
                color = known[name]
            elif color is None and isinstance(mark, Line | Band):
                color = next(free)
            if name and not isinstance(mark, Picture):
                known.setdefault(name, color)
            colored.append((mark, color))
        yield panel, colored


def _given(mark: AnyMark) -> set[int | None]:
    """Return the palette indices that a mark names."""
    if isinstance(mark, Kinds):
        return {kind.color for kind in mark.kinds}
    return set() if isinstance(mark, Heat) else {mark.color}


def first_legend(figure: Figure) -> tuple[Series, ...]:
    """Return the series that occur in the first panel, the picture of a thumbnail."""
    shown = figure.panels[0].marks if figure.panels else ()
    names = {name_of(mark) for mark in shown}
    names |= {f"{kind.sign} {kind.name}" for mark in shown if isinstance(mark, Kinds) for kind in mark.occurring}
    return tuple(series for series in legend(figure) if series.name in names)


def legend(figure: Figure) -> tuple[Series, ...]:
    """Return the series in the order of first appearance; a curve represents its series rather than its band."""
    found: dict[str, Series] = {}
    for _, marks in color_series(figure):
        for mark, color in marks:
            if isinstance(mark, Kinds):
                kinds = (Series(f"{kind.sign} {kind.name}", kind.color, "kind") for kind in mark.occurring)
                found |= {series.name: series for series in kinds}
            name = "" if isinstance(mark, Picture) else name_of(mark)
            if not name or (name in found and not (found[name].shape == "band" and isinstance(mark, Line))):
                continue
            if isinstance(mark, Line):
                found[name] = Series(name, color, style_of(mark, color), mark.width, mark.opacity)
            else:
                found[name] = Series(name, color, "band" if isinstance(mark, Band) else "mark")
    return tuple(found.values())
