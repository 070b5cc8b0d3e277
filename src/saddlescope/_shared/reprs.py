"""Reprs of results: one short line, and in a notebook a small table. Arrays are shown by type and shape."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from html import escape
from pathlib import PurePath
from typing import Any

_VALUE = 80  # characters of one value; a longer one is shown by its type
_LINE = 400  # characters of a repr
_FEW = 6  # elements of a collection that are shown
_ROWS = 24  # rows of a table in a notebook

Table = tuple[Sequence[str], Iterable[Sequence[object]]]
"""Names of the columns, and rows."""


class ReprMixin:
    """Base of dataclasses that hold arrays or many values: a repr of one line, and a small table in notebooks.

    Declare them with `repr=False`; otherwise the dataclass writes its own `__repr__`, which prints every array.
    Subclasses with more to show than their fields override `__repr__` and, for notebooks, `_table`.

    >>> @dataclasses.dataclass(frozen=True, repr=False)
    ... class Fit(ReprMixin):
    ...     slope: float
    ...     residuals: Any
    >>> import numpy as np
    >>> Fit(1 / 3, np.zeros((50, 8)))
    Fit(slope=0.333333, residuals=float64[50, 8])
    """

    def __repr__(self) -> str:
        return in_line(type(self).__name__, _fields(self))

    def _table(self) -> Table:
        """Return the columns and rows that a notebook shows below the line."""
        return ("attribute", "value"), ((name, _with_range(value)) for name, value in _fields(self))

    def _caption(self) -> str:
        return type(self).__name__ if type(self).__repr__ is ReprMixin.__repr__ else repr(self)

    def _repr_html_(self) -> str:
        return html_table(self._caption(), *self._table())


def in_line(name: str, fields: Iterable[tuple[str, object]]) -> str:
    """Return `name(field=value, ...)` in at most 400 characters; further fields are counted."""
    line, left = "", list(fields)
    while left and len(line) < _LINE - 2 * _VALUE:
        field, value = left.pop(0)
        line += f"{', ' if line else ''}{field}={brief(value)}"
    return f"{name}({line}{f', … {len(left)} more' if left else ''})"


def brief(value: object) -> str:
    """Return a value in at most 80 characters: numbers to six digits, arrays by type and shape, first elements.

    >>> import numpy as np
    >>> brief(2 / 3), brief(np.zeros((4, 5))), brief(tuple(range(40))), brief(None)
    ('0.666667', 'float64[4, 5]', '(0, 1, 2, 3, 4, 5, … 40 in all)', 'None')
    """
    text = _full(value)
    return text if len(text) <= _VALUE else f"{type(value).__name__}(…)"


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a small HTML table for a notebook, in the colours of its theme; everything shown is escaped.

    Args:
        caption: one or more lines above it.
        columns: their names.
        rows: one cell per column; numbers have six digits. Beyond 24 rows only their number is shown.

    >>> html_table("<b>", ["loss"], [[0.5]]).count("&lt;b&gt;")
    1
    """
    drawn = [tuple(row) for row in rows]
    cell = "padding:2px 10px 2px 0;text-align:left;vertical-align:top"
    head = "".join(f'<th style="{cell};font-weight:600">{escape(column)}</th>' for column in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{cell}">{escape(_cell(value))}</td>' for value in row) + "</tr>"
        for row in drawn[:_ROWS]
    )
    if len(drawn) > _ROWS:
        body += f'<tr><td style="{cell}" colspan="{len(columns)}">… {len(drawn)} rows in all</td></tr>'
    return (
        f'<div style="overflow-x:auto"><div style="white-space:pre-line">{escape(caption)}</div>'
        '<table style="border-collapse:collapse;font-size:0.9em;font-variant-numeric:tabular-nums;background:none">'
        f'<thead><tr style="border-bottom:1px solid currentColor">{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def text_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a small table of text for a terminal, with the same rows and cells as `html_table`.

    >>> print(text_table("Two losses:", ["step", "loss"], [(0, 0.5), (100, 2 / 3)]))
    Two losses:
      step  loss
      0     0.5
      100   0.666667
    """
    drawn = [tuple(row) for row in rows]
    cells = [list(columns), *([_cell(value) for value in row] for row in drawn[:_ROWS])]
    widths = [max(len(row[k]) for row in cells) for k in range(len(columns))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    if len(drawn) > _ROWS:
        lines.append(f"… {len(drawn)} rows in all")
    return "\n  ".join([caption, *lines])


def _fields(shown: Any) -> Iterable[tuple[str, object]]:
    return ((field.name, getattr(shown, field.name)) for field in dataclasses.fields(shown) if field.repr)


def _cell(value: object) -> str:
    return value if isinstance(value, str) else brief(value)


def _full(value: Any) -> str:
    if hasattr(value, "data_vars"):  # an xarray data set, which is a mapping, too
        return f"Dataset({', '.join(f'{dim}: {size}' for dim, size in value.sizes.items())})"
    match value:
        case Enum():
            return str(value.value)
        case None | bool():
            return repr(value)
        case float():
            return f"{value:.6g}"
        case str():
            return repr(value if len(value) <= _VALUE - 2 else f"{value[: _VALUE - 3]}…")
        case PurePath():
            return str(value) if len(str(value)) <= _VALUE else f"…{str(value)[1 - _VALUE :]}"
        case Mapping():
            return f"{{{_first((f'{key}: {brief(one)}' for key, one in value.items()), len(value))}}}"
        case bytes() | bytearray() | range():
            return repr(value)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _array(value)
    if isinstance(value, Collection) and not hasattr(value, "_fields"):
        if isinstance(value, tuple) and len(value) == 1:
            return f"({brief(value[0])},)"
        left, right = "()" if isinstance(value, tuple) else "[]" if isinstance(value, list) else "{}"
        return f"{left}{_first(map(brief, value), len(value))}{right}"
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return repr(value)


def _first(values: Iterable[str], count: int) -> str:
    """Return the first of a collection, as many as fit."""
    shown: list[str] = []
    for one in values:
        if len(shown) == _FEW or sum(map(len, shown)) + 2 * len(shown) + len(one) > _VALUE - 20:
            break
        shown.append(one)
    more = [f"… {count} in all"] if count > len(shown) else []
    return ", ".join([*shown, *more])


def _array(value: Any) -> str:
    shape = tuple(value.shape)
    if not shape:
        return _full(value.item())
    if len(shape) == 1 and shape[0] <= 4:
        return f"[{', '.join(_full(one) for one in value.tolist())}]"
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, shape))}]"


def _with_range(value: Any) -> str:
    """Return a value in short; for a NumPy array of real numbers also its range, and the number of NaN."""
    if isinstance(value, str):
        return str(value)
    text = brief(value)
    if type(value).__module__ != "numpy" or not getattr(value, "size", 0) or value.dtype.kind not in "iuf":
        return text
    if value.ndim == 0 or (value.ndim == 1 and value.size <= 4):
        return text
    missing = int((value != value).sum())
    if missing == value.size:
        return f"{text}, all NaN"
    finite = value[value == value]
    return f"{text}, {finite.min():.4g} to {finite.max():.4g}{f', {missing} NaN' if missing else ''}"
