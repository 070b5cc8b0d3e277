"""Singular values of one or many matrices, with the level below which they are rounding."""

from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import Table, in_line
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import MOST_LINES, AnyMark, Axis, Line, Mark, Panel
from saddlescope.measure.arrays import as_numpy, real_array, require_finite


@dataclass(frozen=True, repr=False)
class Spectrum(TableMixin, PlotMixin):
    """Singular values with their noise floor.

    Attributes:
        values: the singular values (..., r), descending, in the unit of the matrix.
        noise_floor: (...), absolute level below which a singular value is rounding noise of the input; same unit.

    Raises:
        InputError: a noise floor of another shape than the batch.
    """

    values: Any
    noise_floor: Any

    def __post_init__(self) -> None:
        for name in ("values", "noise_floor"):
            if isinstance(given := getattr(self, name), list | tuple | float | int):
                object.__setattr__(self, name, real_array(name, given))
        shape = tuple(getattr(self.noise_floor, "shape", ()))
        batch = tuple(self.values.shape[:-1])
        if shape != batch:
            raise InputError(f"noise_floor must have shape {batch!r}, one level per spectrum; got {shape!r}.")

    def __repr__(self) -> str:
        return in_line("Spectrum", (("values", self.values), ("noise_floor", self.noise_floor)))

    def _table(self) -> Table:
        """Return a row per singular value; of several spectra, `matrix` is the index in their batch."""
        values, floors = as_numpy("values", self.values), as_numpy("noise_floor", self.noise_floor[None])[0]
        batch = () if values.ndim == 1 else ("matrix",)
        rows = (
            (*((at[:-1],) if batch else ()), at[-1], float(values[at]), bool(values[at] > floors[at[:-1]]))
            for at in np.ndindex(values.shape)
        )
        return (*batch, "index", "value", "above noise"), rows

    def panel(self) -> Panel:
        """Return the singular values over their index, with the largest noise floor; of many spectra the first ones."""
        values, floors = (as_numpy("values", array[None]) for array in (self.values, self.noise_floor))
        rows = values.reshape(-1, values.shape[-1])
        index = np.arange(1, rows.shape[1] + 1)
        style, width = ("points", 1.6) if len(rows) == 1 else ("solid", 0.8)
        marks: list[AnyMark] = [Line(x=index, y=row, color=0, width=width, style=style) for row in rows[:MOST_LINES]]
        if (floor := float(floors.max())) > 0:
            marks.append(Mark(at=floor, axis="y", label="noise floor"))
        return Panel(x=Axis("index"), y=Axis("singular value", scale="log"), marks=tuple(marks))


def finite_spectrum(values: Any, noise: Any) -> Spectrum:
    """Return a spectrum, unless its largest value is beyond its type.

    Raises:
        InputError: it is; smaller values would be wrong, too.
    """
    require_finite(array_api_compat.array_namespace(values), values)
    return Spectrum(values, noise)
