"""Making a sweep: what is missing of its points, on whatever workers there are, and the data set at the end."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from saddlescope import store
from saddlescope._shared.errors import InputError, StorageError
from saddlescope.reproduction import entry as entries
from saddlescope.reproduction.process_pool import Report
from saddlescope.sweeps.assemble import assemble
from saddlescope.sweeps.grid import Grid
from saddlescope.sweeps.local_workers import make_at_once, make_in_processes
from saddlescope.sweeps.point import Point, State
from saddlescope.sweeps.result import Sweep

if TYPE_CHECKING:
    from distributed import Client

_FOLDER = "sweeps"
_README = "The sweeps of saddlescope: a data set each, and the runs of their points, which sweeps share.\n"


def sweep(
    entry: entries.Entry | str,
    grid: Grid | Sequence[str],
    *,
    out: str | os.PathLike[str],
    data: Path | None = None,
    processes: int | None = None,
    scheduler: "str | Client | None" = None,
    retry: bool = False,
    again: bool = False,
    report: Report = lambda fraction, note: None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Sweep:
    """Runs an entry at every point of a grid, and stores the runs and one labelled data set.

    Points that are stored already are passed by, those of other sweeps in the same folder as well; so are those that
    failed, unless they are to be tried again. A sweep that is killed, at any moment, or whose workers or scheduler are,
    goes on where it was when it is called again. The kind and number of workers changes no result.

    Args:
        entry: what to run, or its name.
        grid: the points, or the words of `Grid.parse`.
        out: the output folder; all lies below `OUT/sweeps/<paper>/<entry>`: the runs in `points`, the data set beside.
        data: folder with data sets in their official formats, if there is one.
        processes: how many points are made at a time, each in a process of its own. By default all points are made at
            once where the entry can do that, else there are as many processes as processors. 1 makes them here.
        scheduler: address of a Dask scheduler, or a client of it: the points are made on its workers.
        retry: try points again that failed.
        again: make all points anew; what is stored of them is removed first.
        report: called with the finished fraction and a note.
        say: called with a sentence on what is found.

    Returns:
        The stored sweep.

    Raises:
        InputError: the grid, the folder, the data or the workers cannot be used; what is finished is stored.
    """
    entry = entries.find(entry) if isinstance(entry, str) else entry
    grid = grid if isinstance(grid, Grid) else Grid.parse(entry, grid)
    if grid.entry is not entry:
        raise InputError(f"grid must be one of {entry.name}; got one of {grid.entry.name}.")
    if processes is not None and (scheduler is not None or not isinstance(processes, int) or processes < 1):
        raise InputError(f"processes must be at least 1, and left out where there is a scheduler; got {processes!r}.")
    data = None if data is None else Path(data)
    if data is not None and not data.is_dir():
        raise InputError(f"data must be an existing folder; got '{data}'. Without one, the embedded data are used.")
    folder = Path(out) / _FOLDER
    store.write_bytes(_README.encode(), folder / store.SWEEPS)
    points = [
        Point(folder, entry.name, params, grid.size, grid.at(index), grid.label(index))
        for index, params in zip(grid.indices, grid.params, strict=True)
    ]
    file = points[0].file.parent.parent / f"{grid.digest}.nc"
    notes: dict[str, str] = {}
    missing = _missing(points, retry=retry, again=again, say=say)
    try:
        if missing:
            report(0.0, f"{len(missing)} of {len(points)} points to make")
            if scheduler is not None:
                from saddlescope.sweeps.dask_workers import make_on_cluster

                notes |= make_on_cluster(missing, scheduler, data, report, say)
            elif processes is None and entry.run_many is not None:
                make_at_once(entry, missing, data, report, say)
            else:
                make_in_processes(missing, processes or len(os.sched_getaffinity(0)), data, report)
    except (InputError, KeyboardInterrupt):
        with suppress(StorageError):
            store.write(assemble(grid, points, file.parent, notes), file)
        raise
    store.write(assemble(grid, points, file.parent, notes), file)
    return Sweep.open(file)


def _missing(points: Sequence[Point], *, retry: bool, again: bool, say: Callable[[str], None]) -> list[Point]:
    """The points that are to be made."""
    for point in points:
        if again:
            point.forget()
        elif retry:
            point.forget_failure()
    states = [point.state for point in points]
    if finished := states.count(State.FINISHED):
        say(f"{finished} of {len(points)} points are stored already. --again makes them anew.")
    if failed := states.count(State.FAILED):
        say(f"{failed} of {len(points)} points failed before and are passed by. --retry tries them again.")
    return [point for point, state in zip(points, states, strict=True) if state is State.MISSING]
