"""Figure of the steps in the rank of each head's update, from spectra (see `saddlescope.plot.rank_figures`)."""

from dataclasses import replace

import numpy as np
import xarray as xr

from saddlescope.figures.records import Axis, Figure, Line, Mark, Panel, Table
from saddlescope.figures.spectra_panel import PRODUCTS, layer_axis, layer_title, step_axis

LEAST_RECORDS = 5
"""Smallest number of records that can show a staircase."""
_LARGEST = 8  # singular values of the head that is shown
_VALUES, _MARKS = "largest singular values", "its steps"
_ORDER = ("first step", "second step", "later steps")
_COLUMNS = ("layer", "product", "heads", "with steps", "most steps", "median time of the first")


def staircase_figure(ds: xr.Dataset, *, clock: np.ndarray | None = None) -> Figure:
    """Draw the steps of every head, as `saddlescope.measure.rank_stairs` finds them, and the head with most of them.

    Each head has its own row, layer by layer, with a point at the time of each step; points above each other show heads
    that learned at once. Below are the singular values of the head with most steps, or else with the largest update.
    The table counts steps. With seeds, the first one is shown.

    Args:
        ds: spectra with `LEAST_RECORDS` records or more.
        clock: times of the records for the search of steps, such as sums of learning rates, in which warm-up and decay
            cause no plateaus; None takes the steps of the optimiser.

    Raises:
        InputError: fewer records, or a clock that does not fit them.
    """
    one = ds.isel(seed=0) if "seed" in ds.dims else ds
    first, last = (float(one.step.values[k]) for k in (0, -1))
    x = replace(step_axis(ds), range=(first, last))
    rasters: list[Panel] = []
    examples: list[Panel] = []
    rows: list[tuple[str | float | int, ...]] = []
    for product, name in PRODUCTS.items():
        values = one.update_spectrum.sel(product=product).transpose("step", "layer", "head", "index").values
        floors = one.noise_floor.sel(product=product).transpose("step", "layer", "head").values
        found = _times(values, floors, one.step.values, one.step.values if clock is None else clock)
        y, places = layer_axis(one)
        y = replace(y, label=f"{y.label}, heads in order", range=(float(places[0]) - 0.6, float(places[-1]) + 0.6))
        rasters.append(Panel(title=f"update of {name}", x=x, y=y, marks=_raster(found, places)))
        counts = np.array([[len(times or ()) for times in heads] for heads in found])
        sizes = np.nan_to_num(values[-1, :, :, 0])
        layer, head = np.unravel_index(np.argmax(counts + sizes / (2 * max(sizes.max(), 1e-300))), counts.shape)
        examples.append(
            Panel(
                title=f"{name}, {layer_title(ds.layer.values.tolist()[layer])}, head {head}",
                x=x,
                y=Axis("singular value"),
                marks=_example(one.step.values, values[:, layer, head], floors[:, layer, head], found[layer, head]),
            )
        )
        present = [[times for times in heads if times is not None] for heads in found]
        names = map(layer_title, ds.layer.values.tolist())
        rows += [(layer, name, *_counts(heads)) for layer, heads in zip(names, present, strict=True)]
    heads, stepping = (sum(int(row[column]) for row in rows) for column in (2, 3))
    which = "with most of them" if stepping else "with the largest update"
    reported = "a decaying learning rate also causes plateaus" if clock is None else "time is the sum of learning rates"
    return Figure(
        name="stairs",
        title="Steps of the rank, head by head",
        caption=f"{stepping} of {heads} updates of a head's product have steps: a singular value moves from one "
        f"plateau to a higher one, abruptly or while all later ones stay ({reported}). Gradual growth has no step. "
        f"The singular values are those of the head {which}.",
        panels=(*(raster for raster in rasters if raster.marks), *examples),
        table=Table(columns=_COLUMNS, rows=tuple(rows)) if stepping else None,
    )


def _times(values: np.ndarray, floors: np.ndarray, steps: np.ndarray, clock: np.ndarray) -> np.ndarray:
    """Return the times of the steps of each (layer, head), in steps of the optimiser; None where the head is absent."""
    from saddlescope.measure import rank_staircases

    found = rank_staircases(clock, values, floors, time_unit="clock")
    for place, staircase in np.ndenumerate(found):
        if staircase is not None:
            found[place] = tuple(np.interp(staircase.times, clock, steps).tolist())
    return found


def _raster(found: np.ndarray, places: np.ndarray) -> tuple[Line, ...]:
    """Return a point for each step of each head, of times (layers, heads); heads fill the unit around their layer."""
    points: dict[str, list[tuple[float, float]]] = {kind: [] for kind in _ORDER}
    for (layer, head), times in np.ndenumerate(found):
        height = float(places[layer]) - 0.5 + (head + 0.5) / found.shape[1]
        for k, time in enumerate(times or ()):
            points[_ORDER[min(k, len(_ORDER) - 1)]].append((time, height))
    return tuple(
        Line(x=np.array(at)[:, 0], y=np.array(at)[:, 1], label=kind, group=kind, color=color, style="points")
        for color, (kind, at) in enumerate(points.items())
        if at
    )


def _example(
    steps: np.ndarray, values: np.ndarray, floors: np.ndarray, times: tuple[float, ...] | None
) -> tuple[Line | Mark, ...]:
    """Return the largest singular values of one head above the noise, and its steps."""
    shown = np.where(values > floors[:, None], values, np.nan)[:, :_LARGEST].T
    lines = tuple(Line(x=steps, y=row, group=_VALUES, color=5, width=1.2) for row in shown)
    return lines + tuple(Mark(at=time, group=_MARKS, color=3) for time in times or ())


def _counts(heads: list[tuple[float, ...]]) -> tuple[int | float | str, ...]:
    """Return the numbers of heads and of heads with steps, the most steps of one, and the median time of the first."""
    firsts = [times[0] for times in heads if times]
    most = max(map(len, heads), default=0)
    return (len(heads), len(firsts), most, float(np.median(firsts)) if firsts else "none")
