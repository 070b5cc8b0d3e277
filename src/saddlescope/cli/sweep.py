"""The command `sweep`: one entry at many points of its parameters."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saddlescope.cli.completion import complete_parameter
from saddlescope.cli.options import AsJson
from saddlescope.cli.reproductions import DataFolder, EntryName, OutFolder, Settings, Size, check_data, settings_of
from saddlescope.cli.terminal import print_json, print_table, progress, say

if TYPE_CHECKING:
    from saddlescope.sweeps import Sweep

_SHOWN = 20  # failed points that are told one by one


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
        int | None, typer.Option(min=1, metavar="N", help="Points made at a time, each in a process of its own.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Make the points on the workers of a Dask scheduler.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try points again that failed.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Make all points anew.")] = False,
    out: OutFolder = Path("results"),
    data: DataFolder = None,
    as_json: AsJson = False,
) -> int:
    """Run an entry at every point of a grid. Finished points are kept and passed by; an interrupted sweep goes on.

    Exit status: 0 when all points are finished, whatever their verdicts; 1 when some failed or are missing.
    """
    from saddlescope import sweeps
    from saddlescope.reproduction import entry as entries

    found = entries.find(entry)
    chosen = sweeps.Grid.parse(found, grid or [], seeds=seeds, size=size, settings=settings_of(settings or []))
    check_data(data)
    with progress(f"{entry}, {math.prod(chosen.shape)} points") as (report, tell):
        made = sweeps.sweep(
            found,
            chosen,
            out=out,
            data=data,
            processes=processes,
            scheduler=scheduler,
            retry=retry,
            again=again,
            report=report,
            say=tell,
        )
    if as_json:
        print_json(_record(made))
    else:
        _print(made)
    return 1 if made.failures else 0


def _claims(made: "Sweep") -> list[tuple[str, dict[str, int]]]:
    """For each claim, at how many points it has which outcome."""
    from saddlescope.reproduction import Outcome

    found = [
        (str(name), list(made.data.outcome.values[..., k].ravel())) for k, name in enumerate(made.data.claim.values)
    ]
    return [(name, {str(outcome): outcomes.count(str(outcome)) for outcome in Outcome}) for name, outcomes in found]


def _record(made: "Sweep") -> dict[str, Any]:
    return {
        "entry": made.entry.name,
        "size": made.grid.size,
        "file": str(made.file),
        "axes": {axis.name: list(axis.values) for axis in made.grid.axes},
        "points": {str(state): count for state, count in made.counts.items()},
        "claims": [{"claim": name} | outcomes for name, outcomes in _claims(made)],
        "unfinished": [{"point": point, "error": error} for point, error in made.failures.items()],
    }


def _print(made: "Sweep") -> None:
    rows = [(name, *outcomes.values()) for name, outcomes in _claims(made)]
    columns = ("claim", "reproduced", "refuted", "undecided")
    print_table(columns, rows, title=f"{made.entry.name} ({made.grid.size}): points by verdict")
    for point, error in list(made.failures.items())[:_SHOWN]:
        say(f"{point}: {error or 'not made'}")
    if (rest := len(made.failures) - _SHOWN) > 0:
        say(f"... and {rest} more; the data set has them all.")
    told = ", ".join(f"{count} {state}" for state, count in made.counts.items() if count)
    typer.echo(f"{math.prod(made.grid.shape)} points: {told}.\nStored in {made.file}.")
