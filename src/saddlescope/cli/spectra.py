"""Command `spectra`: spectra of weight updates between checkpoints."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saddlescope._shared.errors import InputError
from saddlescope._shared.output_paths import NETCDF, require_writable_file
from saddlescope.cli.options import (
    AsJson,
    Base,
    Heads,
    LossColumn,
    LossFile,
    Matrices,
    Site,
    Weights,
    parse_heads,
    read_loss_file,
    whole_number,
)
from saddlescope.cli.terminal import Faults, on_interrupt, print_json, print_table, print_text, progress, say, unwritten

if TYPE_CHECKING:
    import xarray as xr

    from saddlescope.plot import Table


def spectra(
    base: Base,
    tuned: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[TUNED] [STEP...]",
            help="Checkpoints or adapters after training, in the order of training; none if BASE is an adapter.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE.nc", help="File for the spectra.")] = Path("spectra.nc"),
    site: Site = None,
    matrices: Matrices = None,
    attention: Annotated[bool, typer.Option(help="Measure attention heads, not only single matrices.")] = True,
    top: Annotated[
        int | None, typer.Option(parser=whole_number, metavar="K", help="Keep the K largest singular values.")
    ] = None,
    heads: Heads = None,
    layout: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help='Names of the attention weights, such as "Separate(wk, wq, wv, wo)"; may be repeated.',
        ),
    ] = None,
    subspace: Annotated[
        int,
        typer.Option(
            parser=whole_number, metavar="K", help="Angles of the K leading directions from one checkpoint to the next."
        ),
    ] = 0,
    weights: Weights = None,
    loss: LossFile = None,
    column: LossColumn = None,
    as_json: AsJson = False,
) -> int:
    """Measure spectra of weight updates between checkpoints, head by head, with memory for one layer at a time.

    Exit status 2: something could not be measured; all other results are stored and shown.
    """
    require_writable_file(out, begins=NETCDF)  # before the work
    from saddlescope import store
    from saddlescope.gallery import build_spectra
    from saddlescope.gallery.site import require_gallery_folder
    from saddlescope.ranks.attention.layout_text import read_layouts
    from saddlescope.ranks.checkpoints import Angles, Values, checkpoint_spectra

    if site is not None:
        require_gallery_folder(site)
    if loss is not None and site is None:
        raise InputError(f"loss is drawn on the page alone; got --loss {loss} without a page. Add --site DIR.")
    log = read_loss_file(loss, column)  # before the work
    counts, layouts = parse_heads(heads), read_layouts(layout or [])
    stop = store.stopwatch()
    faults = Faults()
    with on_interrupt(lambda: unwritten(out)), progress("spectra") as report:
        found = checkpoint_spectra(
            base,
            *(tuned or []),
            heads=counts,
            layouts=layouts,
            attention=attention,
            matrices=matrices,
            recorders=[Values(top), *([Angles(subspace)] if subspace else [])],
            weights=weights,
            report=report,
            on_error=faults.add,
        )
    for remark in found.attrs["remarks"].splitlines():
        say(remark)
    command = shlex.join(["saddlescope", "spectra", str(base), *map(str, tuned or [])])
    stored = store.write(store.stamped(found, stop(), command=command, faults="\n".join(faults)), out)
    page = build_spectra(stored, site, loss=log) if site is not None else None
    tables = _tables(found)
    if as_json:
        print_json(
            {name: _records(table) for name, table in tables.items()} | {"faults": faults, "stored": str(stored)}
        )
    else:
        for table in tables.values():
            print_table(table.columns, [[_cell(value) for value in row] for row in table.rows])
        print_text(f"Stored in {stored}.")
        if page is not None:
            print_text(f"Open {page} in a browser.")
    return faults.status


def _tables(ds: "xr.Dataset") -> "dict[str, Table]":
    """Return the measurements as tables by the name of their rows."""
    from saddlescope.plot.rank_tables import layer_table, matrix_table, step_table

    tables = {}
    if "update_spectrum" in ds:
        tables["layers"] = layer_table(ds)
        if ds.sizes["step"] > 1:
            tables["steps"] = step_table(ds)
    if "matrix_update_spectrum" in ds:
        tables["matrices"] = matrix_table(ds)
    return tables


def _cell(value: object) -> str:
    from saddlescope.reproduction.formatting import number

    return number(value, 3) if isinstance(value, float) else str(value)


def _records(table: "Table") -> list[dict[str, object]]:
    """Return the rows as JSON values; NaN and infinity are null."""
    from saddlescope.reproduction.formatting import finite

    return [
        {
            name: finite(value) if isinstance(value, float) else value
            for name, value in zip(table.columns, row, strict=True)
        }
        for row in table.rows
    ]
