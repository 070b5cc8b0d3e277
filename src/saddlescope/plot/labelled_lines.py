"""Lines from labelled data: one per value of a dimension."""

from collections.abc import Callable
from typing import Any, Literal

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.figures.records import Line


def lines(
    data: xr.DataArray,
    *,
    x: str,
    hue: str = "",
    label: str | Callable[[Any], str] = "{}",
    grouped: bool = False,
    color: int | None = 0,
    style: Literal["solid", "dashed", "dotted", "steps", "points"] = "solid",
    width: int | float = 1.6,
    opacity: int | float = 1.0,
) -> tuple[Line, ...]:
    """Return one line per value of a dimension.

    Args:
        data: the values, over the dimension of `x` and, if given, that of `hue`.
        x: name of the coordinate along the axis.
        hue: name of the dimension with one line per value; empty for a single line.
        label: name of each line: a format of its value on `hue`, such as "alpha = 1e{:g}", or a function of it.
        grouped: True if lines of one label share legend entry, colour and switch in all panels of the figure.
        color: palette index of the first line; the next ones count up; None for neutral or automatic.
        style: as in `Line`.
        width: as in `Line`.
        opacity: as in `Line`.

    Raises:
        InputError: the data have other dimensions.

    >>> run = xr.Dataset({"loss": (("scale", "time"), [[4.0, 1.0], [4.0, 2.0]])}, {"scale": [-1, -8], "time": [0, 9]})
    >>> [line.label for line in lines(run.loss, x="time", hue="scale", label="alpha = 1e{:g}")]
    ['alpha = 1e-1', 'alpha = 1e-8']
    """
    along = data[x]
    if set(data.dims) != {*along.dims, *([hue] if hue else [])} or along.ndim != 1:
        raise InputError(f"data must be over {x}{' and ' + hue if hue else ''} alone; got {data.dims!r}.")
    named = label if callable(label) else label.format
    values = data[hue].values.tolist() if hue else [""]
    drawn = []
    for k, value in enumerate(values):
        name = named(value)
        drawn.append(
            Line(
                x=along.values,
                y=(data.sel({hue: value}) if hue else data).values,
                label="" if grouped else name,
                group=name if grouped else "",
                color=None if color is None else color + k,
                style=style,
                width=float(width),
                opacity=float(opacity),
            )
        )
    return tuple(drawn)
