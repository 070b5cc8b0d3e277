"""Command `sweep`: one entry at many points of its parameters."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saddlescope._shared.counted import counted
from saddlescope.cli.completion import complete_parameter
from saddlescope.cli.options import AsJson, whole_number
from saddlescope.cli.reproductions import (
    DataFolder,
    EntryFile,
    EntryName,
    OutFolder,
    Settings,
    Size,
    check_data,
    gallery_command,
    load_own,
    settings_of,
)
from saddlescope.cli.terminal import print_json, print_table, print_text, progress, say

if TYPE_CHECKING:
    from saddlescope.sweeps import Sweep

_SHOWN = 20  # failed points that are listed


def sweep(
    entry: EntryName,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="NAME=VALUES",
            help="Vary a parameter, such as dim=8,16 or seed=0:8 or noise=log:0.01:1:5; may be repeated.",
            autocompletion=complete_parameter,
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="VALUES", help="Vary the seed, such as 0:64.")] = "",
    size: Size = "default",
    settings: Settings = None,
    processes: Annotated[
        int | None, typer.Option(parser=whole_number, metavar="N", help="Number of worker processes.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run the points on the workers of a Dask scheduler.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Retry failed points.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Rerun all points.")] = False,
    out: OutFolder = Path("results"),
    data: DataFolder = None,
    entry_file: EntryFile = None,
    as_json: AsJson = False,
) -> int:
    """Run an entry at every point of a grid. Finished points are skipped; rerun the command to resume.

    Exit status: 0 if all points are finished, whatever their verdicts; 1 if some failed or are missing.
    """
    from saddlescope import sweeps
    from saddlescope.reproduction import entry as entries

    load_own(entry_file)
    found = entries.find_entry(entry)
    chosen = sweeps.Grid.parse(found, grid or [], seeds=seeds, size=size, settings=settings_of(settings or []))
    check_data(data)
    with progress(f"{entry}, {counted(math.prod(chosen.shape), 'point')}") as report:
        result = sweeps.sweep(
            found,
            chosen,
            out=out,
            data=data,
            processes=processes,
            scheduler=scheduler,
            retry=retry,
            again=again,
            report=report,
            say=say,
        )
    if as_json:
        print_json(_record(result))
    else:
        _print(result, gallery_command(out, entry_file))
    return 1 if result.failures else 0


def _record(result: "Sweep") -> dict[str, Any]:
    return {
        "entry": result.entry.name,
        "size": result.grid.size,
        "file": str(result.file),
        "axes": {axis.name: list(axis.values) for axis in result.grid.axes},
        "points": {str(state): count for state, count in result.counts.items()},
        "claims": [{"claim": name} | found for name, found in result.outcomes.items()],
        "unfinished": [{"point": point, "error": error} for point, error in result.failures.items()],
    }


def _print(result: "Sweep", maps: str) -> None:
    title = f"{result.entry.name} ({result.grid.size}): points by verdict, with the bounds of the default run"
    print_table(*result._table(), title=title)
    print_text(f"See the maps: {maps}")
    for point, error in list(result.failures.items())[:_SHOWN]:
        say(f"{point}: {error or 'not run'}")
    if (more := len(result.failures) - _SHOWN) > 0:
        say(f"... and {more} more; the data set has them all.")
    counts = ", ".join(f"{count} {state}" for state, count in result.counts.items() if count)
    print_text(f"{counted(math.prod(result.grid.shape), 'point')}: {counts}.\nStored in {result.file}.")
