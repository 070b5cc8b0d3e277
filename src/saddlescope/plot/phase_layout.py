"""Layout of a sweep's axes: mapped axes, axes of panels, and the axis of seeds.

Cells of a map have equal widths and are named by their values, whatever the spacing of the grid.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from saddlescope.figures.records import Axis

SEEDS = ("seed", "seeds")
"""Names of axes over which runs are repetitions of each other."""
MOST_PANELS = 12
"""Largest number of panels of one figure; of more, only some values of the further axes are shown."""
_DECADE_STEP = 20.0  # smallest ratio of the greatest value of an axis to the least for a logarithmic axis


@dataclass(frozen=True)
class PhaseLayout:
    """Layout of the axes of a sweep.

    Attributes:
        mapped: the one or two axes that are drawn, the first one along x.
        panels: the axes with one panel per value.
        seeds: the axis over which runs are averaged, or empty.
    """

    mapped: tuple[str, ...]
    panels: tuple[str, ...] = ()
    seeds: str = ""

    @classmethod
    def of(cls, array: xr.DataArray) -> "PhaseLayout":
        """Return the layout of an array whose dimensions are all axes of a sweep, at least one.

        The two longest axes are mapped. Seeds are drawn as an axis only if nothing else varies.
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
        """Return the title and the array of each panel: over seeds, if any, and the mapped axes.

        At most `MOST_PANELS` are returned, evenly among the values of the further axes. The dimensions are the seeds,
        then the second axis, which is y, then the first.
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
        """Return a sentence on the panels that are not shown; empty if all are."""
        total = int(np.prod([array.sizes[name] for name in self.panels]))
        return f" {MOST_PANELS} of {total} panels are shown; the data set has all." if total > MOST_PANELS else ""


def values_of(array: xr.DataArray, name: str) -> tuple[str, ...]:
    """Return the values of an axis, in the shortest words that distinguish them."""
    values = array[name].values.tolist()
    words: tuple[str, ...] = ()
    for digits in (3, 6, 17):
        words = tuple(_word(value, digits) for value in values)
        if len(set(words)) == len(values):
            break
    return words


def names_axis(label: str, names: tuple[str, ...], *, falling: bool = False) -> Axis:
    """Return an axis of cells with names; `falling` puts the first one on top, as in a table."""
    low, high = -0.5, len(names) - 0.5
    return Axis(label, range=(high, low) if falling else (low, high), names=names)


def cells_axis(array: xr.DataArray, name: str) -> Axis:
    """Return an axis of cells, one per value."""
    return names_axis(name, values_of(array, name))


def line_axis(array: xr.DataArray, name: str) -> tuple[Axis, np.ndarray]:
    """Return an axis for curves and the positions of its values: the numbers themselves, or else their order."""
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
