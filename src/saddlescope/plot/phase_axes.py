"""How a sweep's axes are laid out: which are mapped, which make panels, and over which its seeds are taken together.

Cells of a map are as wide as each other and named by their values: whoever chose the grid chose how even it is.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from saddlescope.plot.figure import Axis

SEEDS = ("seed", "seeds")
"""Axes over which runs are repetitions of each other."""
MOST_PANELS = 12
"""Panels of one figure beyond which only some values of the further axes are shown."""
_DECADE_STEP = 20.0  # ratio of the greatest value of an axis to the least from which it is drawn as a logarithmic one


@dataclass(frozen=True)
class PhaseLayout:
    """Where the axes of a sweep go.

    Attributes:
        mapped: the one or two axes that are drawn, the first one along x.
        panels: the axes of which each value has a panel of its own.
        seeds: the axis over which runs are taken together, or empty.
    """

    mapped: tuple[str, ...]
    panels: tuple[str, ...] = ()
    seeds: str = ""

    @classmethod
    def of(cls, array: xr.DataArray) -> "PhaseLayout":
        """The layout of an array whose dimensions are all axes of a sweep, at least one.

        The two longest axes are mapped. Seeds are an axis to be drawn only where nothing else varies.
        """
        varied = [str(name) for name, size in array.sizes.items() if size > 1] or [str(array.dims[0])]
        seeds = next((name for name in SEEDS if name in varied), "")
        if seeds and len(varied) > 1:
            varied.remove(seeds)
        else:
            seeds = ""
        longest = sorted(varied, key=lambda name: -array.sizes[name])[:2]
        return cls(
            mapped=tuple(name for name in varied if name in longest),
            panels=tuple(name for name in varied if name not in longest),
            seeds=seeds,
        )

    def slices(self, array: xr.DataArray) -> list[tuple[str, xr.DataArray]]:
        """What each panel is drawn from, with its title: an array over seeds, if there are any, and the mapped axes.

        At most `MOST_PANELS` are taken, evenly among all values of the further axes. The dimensions are the seeds, then
        the second axis, which is y, then the first.
        """
        fixed = {name: 0 for name in array.dims if name not in (*self.mapped, *self.panels, self.seeds)}
        kept = array.isel(fixed)
        places = list(product(*(range(array.sizes[name]) for name in self.panels)))
        chosen = np.unique(np.linspace(0, len(places) - 1, min(len(places), MOST_PANELS)).round().astype(int))
        found = []
        for place in (places[k] for k in chosen):
            at = dict(zip(self.panels, place, strict=True))
            title = ", ".join(f"{name} = {values_of(array, name)[k]}" for name, k in at.items())
            order = (*([self.seeds] if self.seeds else []), *reversed(self.mapped))
            found.append((title, kept.isel(at).transpose(*order)))
        return found

    def left_out(self, array: xr.DataArray) -> str:
        """A sentence on the panels that are not shown; empty where all are."""
        whole = int(np.prod([array.sizes[name] for name in self.panels]))
        return f" {MOST_PANELS} of {whole} panels are shown; the data set has all." if whole > MOST_PANELS else ""


def values_of(array: xr.DataArray, name: str) -> tuple[str, ...]:
    """The values of an axis, in words as short as tell them apart."""
    values = array[name].values.tolist()
    words: tuple[str, ...] = ()
    for digits in (3, 6, 17):
        words = tuple(_word(value, digits) for value in values)
        if len(set(words)) == len(values):
            break
    return words


def names_axis(label: str, names: tuple[str, ...], *, falling: bool = False) -> Axis:
    """An axis of cells with names; `falling` puts the first one on top, as in a table."""
    low, high = -0.5, len(names) - 0.5
    return Axis(label, range=(high, low) if falling else (low, high), names=names)


def cells_axis(array: xr.DataArray, name: str) -> Axis:
    """An axis of cells, one a value."""
    return names_axis(name, values_of(array, name))


def line_axis(array: xr.DataArray, name: str) -> tuple[Axis, np.ndarray]:
    """An axis for curves and where its values stand on it: by number where they are numbers, else in their order."""
    values = array[name].values
    if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        return cells_axis(array, name), np.arange(len(values))
    positive = bool((values > 0).all())
    spread = positive and len(values) > 2 and values.max() / values.min() >= _DECADE_STEP
    return Axis(name, scale="log" if spread else "linear"), values.astype(float)


def _word(value: Any, digits: int) -> str:
    if not isinstance(value, float):
        return str(value)
    if value.is_integer() and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.{digits}g}".replace("e-0", "e-")
