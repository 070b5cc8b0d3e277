"""Tables of weight updates, one row per layer or matrix, from spectra (see `saddlescope.plot.rank_figures`).

An update whose largest singular value is below its noise floor has no rank; the table says so instead of a number.
"""

import xarray as xr

from saddlescope.figures.records import Table
from saddlescope.figures.spectra_panel import PRODUCTS, layer_title, short_name
from saddlescope.plot.rank_figures import checkpoint_name, initial_stable_rank

UNMEASURABLE = "not measurable in this precision"
ABSENT = "not measured"


def layer_table(ds: xr.Dataset) -> Table:
    """Return the updates of all attention blocks at the last record: measurable heads, and means over those.

    Args:
        ds: spectra, with the dimensions layer, head and product.
    """
    last, start = ds.isel(step=-1), initial_stable_rank(ds)
    rows: list[tuple[str | float | int, ...]] = []
    for layer in ds.layer.values.tolist():
        for product, name in PRODUCTS.items():
            one = last.sel(layer=layer, product=product)
            seen = one.measurable
            heads = int(one.noise_floor.notnull().sum())
            row: tuple[str | float | int, ...] = (layer_title(layer), name, f"{int(seen.sum())} of {heads}")
            if heads == 0:
                rows.append((*row, ABSENT, "", "", "", "", ""))
                continue
            relative = float((one.update_norm / one.initial_norm.where(one.initial_norm > 0)).mean())
            initial = float(start.sel(layer=layer, product=product).mean())
            if bool(seen.any()):
                ranks = one.stable_rank
                shown = (float(ranks.mean()), float(ranks.min()), float(ranks.max()))
                rows.append((*row, *shown, float(one.effective_rank.mean()), initial, relative))
            else:
                rows.append((*row, UNMEASURABLE, "", "", "", initial, ""))
    columns = ("layer", "product", "heads", "stable rank", "least", "most", "effective rank")
    return Table(columns=(*columns, "initial stable rank", "update / initial"), rows=tuple(rows))


def step_table(ds: xr.Dataset) -> Table:
    """Return the updates of all attention blocks at every record: means over layers and heads.

    Args:
        ds: spectra, with the dimensions layer, head and product.
    """
    rows: list[tuple[str | float | int, ...]] = []
    relative = ds.update_norm / ds.initial_norm.where(ds.initial_norm > 0)
    for step in ds.step.values:
        at = [ds.stable_rank.sel(step=step, product=product) for product in PRODUCTS]
        sizes = [relative.sel(step=step, product=product) for product in PRODUCTS]
        shown = [float(one.mean()) if bool(one.notnull().any()) else UNMEASURABLE for one in (*at, *sizes)]
        rows.append((checkpoint_name(ds, step) or int(step), *shown))
    ranks = [f"stable rank of {name}" for name in PRODUCTS.values()]
    first = "step" if checkpoint_name(ds, ds.step.values[0]) is None else "checkpoint"
    return Table(columns=(first, *ranks, *(f"update / initial, {n}" for n in PRODUCTS.values())), rows=tuple(rows))


def matrix_table(ds: xr.Dataset) -> Table:
    """Return the updates of single matrices at the last record.

    Args:
        ds: spectra, with the dimension matrix.
    """
    last = ds.isel(step=-1)
    top = ds.matrix_initial_spectrum.isel(index=0)
    start = ds.matrix_initial_norm**2 / (top**2).where(top > 0)
    rows: list[tuple[str | float | int, ...]] = []
    for matrix in ds.matrix.values:
        one, initial = last.sel(matrix=matrix), float(start.sel(matrix=matrix))
        name = short_name(str(matrix))
        if bool(one.matrix_measurable):
            relative = float(one.matrix_update_norm / one.matrix_initial_norm.where(one.matrix_initial_norm > 0))
            ranks = (float(one.matrix_stable_rank), float(one.matrix_effective_rank))
            rows.append((name, *ranks, initial, relative))
        elif bool(one.matrix_noise_floor.isnull()):
            rows.append((name, ABSENT, "", "", ""))
        else:
            rows.append((name, UNMEASURABLE, "", initial, ""))
    columns = ("matrix", "stable rank", "effective rank", "initial stable rank", "update / initial")
    return Table(columns=columns, rows=tuple(rows))
