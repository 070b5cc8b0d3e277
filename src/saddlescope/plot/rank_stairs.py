"""When the rank of each head's update went up by a step, from a data set of spectra; see `saddlescope.plot.ranks`."""

from dataclasses import replace
from typing import TYPE_CHECKING

from saddlescope.plot.figure import Axis, Figure, Line, Panel, Table
from saddlescope.plot.ranks import PRODUCTS, step_axis

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    from saddlescope.measure import Staircase

LEAST_RECORDS = 5
"""Fewer show no stairs."""
_ORDER = ("first step", "second step", "later steps")
_COLUMNS = ("layer", "product", "heads", "with steps", "most steps", "median time of the first")


def staircase_figure(ds: "xr.Dataset") -> Figure:
    """The steps of every head, as `saddlescope.measure.rank_stairs` finds them: a point each, at its time.

    A head has a row of its own, layer by layer; a column of points over many rows says that heads learned at once. The
    table counts them. With seeds, the first one is shown.

    Args:
        ds: spectra with `LEAST_RECORDS` records or more.

    Raises:
        InputError: fewer records.
    """
    from saddlescope.measure import rank_staircases

    one = ds.isel(seed=0) if "seed" in ds.dims else ds
    steps = one.step.values
    x = replace(step_axis(ds), range=(float(steps[0]), float(steps[-1])))
    panels: list[Panel] = []
    rows: list[tuple[str | float | int, ...]] = []
    for product, name in PRODUCTS.items():
        values = one.update_spectrum.sel(product=product).transpose("step", "layer", "head", "index").values
        floors = one.noise_floor.sel(product=product).transpose("step", "layer", "head").values
        found = rank_staircases(steps, values, floors, time_unit="steps")
        y = Axis("layer, heads in order", range=(0.4, len(found) + 0.6))
        panels.append(Panel(title=f"update of {name}", x=x, y=y, marks=_raster(found)))
        present = [[staircase for staircase in heads if staircase is not None] for heads in found]
        rows += [(str(layer), name, *_counts(heads)) for layer, heads in zip(ds.layer.values, present, strict=True)]
    heads, stepping = (sum(int(row[column]) for row in rows) for column in (2, 3))
    return Figure(
        name="stairs",
        title="Steps of the rank, head by head",
        caption=f"{stepping} of {heads} updates of a head's product show steps: a singular value that leaves one "
        "plateau for a higher one while those still to come stay. What grows gradually, or all at once, has none.",
        panels=tuple(panels),
        table=Table(columns=_COLUMNS, rows=tuple(rows)),
    )


def _raster(found: "np.ndarray") -> tuple[Line, ...]:
    """A point for each step of each head, of staircases (layers, heads); heads fill the unit around their layer."""
    import numpy as np

    points: dict[str, list[tuple[float, float]]] = {kind: [] for kind in _ORDER}
    for (layer, head), staircase in np.ndenumerate(found):
        height = layer + 0.5 + (head + 0.5) / found.shape[1]
        for k, time in enumerate(() if staircase is None else staircase.times):
            points[_ORDER[min(k, len(_ORDER) - 1)]].append((time, height))
    return tuple(
        Line(x=np.array(at)[:, 0], y=np.array(at)[:, 1], label=kind, group=kind, color=color, style="points")
        for color, (kind, at) in enumerate(points.items())
        if at
    )


def _counts(staircases: "list[Staircase]") -> "tuple[int | float | str, ...]":
    """How many heads, how many with steps, the most steps of one, and the median time of the first."""
    import numpy as np

    times = [staircase.times for staircase in staircases if staircase.times]
    first = float(np.median([of_head[0] for of_head in times])) if times else "none"
    return (len(staircases), len(times), max(map(len, times), default=0), first)
