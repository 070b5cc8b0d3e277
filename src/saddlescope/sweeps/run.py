"""Execution of a sweep: run its missing points on the available workers, then write the data set."""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from saddlescope import store
from saddlescope._shared.counted import counted
from saddlescope._shared.errors import InputError, StorageError
from saddlescope._shared.output_paths import require_writable_file
from saddlescope._shared.progress import Report, silent
from saddlescope.reproduction import entry as entries
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.own_code import saved_since
from saddlescope.reproduction.process_pool import run_tasks
from saddlescope.sweeps.assemble import assemble
from saddlescope.sweeps.grid import Grid
from saddlescope.sweeps.point import Point, State
from saddlescope.sweeps.result import Sweep
from saddlescope.sweeps.scheduler_address import require_scheduler

if TYPE_CHECKING:
    from distributed import Client

_FOLDER = "sweeps"
_TRIES = 3  # of a point whose process is killed, until it counts as failed
_ONE_THREAD: dict[str, str] = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_LEFT = re.compile(r"\.?([0-9a-f]{12})\.(?:partial|lock|nc\.part|nc\.lock)")  # files of a run that is not finished
_README = "Sweeps of saddlescope: one data set each, and the runs of their points, which sweeps share.\n"


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
    report: Report = silent,
    say: Callable[[str], None] = lambda sentence: None,
) -> Sweep:
    """Run an entry at every point of a grid, and store the runs and one labelled data set.

    Points stored by any sweep in the same folder are skipped; so are failed points, unless `retry`. Completed points
    survive any crash of the sweep, its workers or its scheduler: call this again to resume. The kind and number of
    workers change no result.

    Args:
        entry: the entry to run, or its name.
        grid: the points, or the words of `Grid.parse`.
        out: the output folder; files are written below `OUT/sweeps/<paper>/<entry>`: the runs in `points`, the data
            set beside it.
        data: folder with data sets in their official formats, if any.
        processes: number of worker processes, by default that of processors. 1 runs the points in this process.
        scheduler: address of a Dask scheduler, or a client of it: the points run on its workers.
        retry: retry failed points.
        again: rerun all points; their stored runs are removed first.
        report: called with the finished fraction and a note.
        say: called with sentences about stored and failed points.

    Returns:
        The stored sweep.

    Raises:
        InputError: the grid, the folder, the data or the workers cannot be used; finished points are stored.
        KeyboardInterrupt: with a sentence that says which points are stored.
    """
    entry = entries.find_entry(entry) if isinstance(entry, str) else entry
    grid = grid if isinstance(grid, Grid) else Grid.parse(entry, grid)
    if grid.entry is not entry:
        raise InputError(f"grid must be one of {entry.name}; got one of {grid.entry.name}.")
    if processes is not None and (scheduler is not None or not isinstance(processes, int) or processes < 1):
        raise InputError(f"processes must be at least 1, and left out with a scheduler; got {processes!r}.")
    if isinstance(scheduler, str):
        require_scheduler(scheduler)
    data = None if data is None else Path(data)
    if data is not None and not data.is_dir():
        raise InputError(f"data must be an existing folder; got '{data}'. Embedded data sets need none.")
    folder = Path(out) / _FOLDER
    store.write_bytes(_README.encode(), folder / store.SWEEPS)
    known: dict[str, str] = {}

    read = [entry.checksums(params, data, known=known, report=report) for params in grid.params]
    points = [
        Point(folder, entry.name, params, grid.size, grid.at(index), grid.label(index), checksums)
        for index, params, checksums in zip(grid.indices, grid.params, read, strict=True)
    ]
    file = points[0].file.parent.parent / f"{grid.digest}.nc"
    require_writable_file(file)
    notes: dict[str, str] = {}
    missing = _missing(points, retry=retry, again=again, say=say)
    _tidy(points)
    try:
        if missing:
            report(0.0, f"{len(missing)} of {counted(len(points), 'point')} to run")
            if scheduler is not None:
                from saddlescope.sweeps.dask_workers import run_on_cluster

                notes |= run_on_cluster(missing, scheduler, data, report, say)
            else:
                from joblib import cpu_count

                _run_here(missing, processes or cpu_count(), data, report)
    except (InputError, KeyboardInterrupt) as stopped:
        with suppress(StorageError):
            store.write(assemble(grid, points, file.parent, notes), file)
        if isinstance(stopped, KeyboardInterrupt):
            raise KeyboardInterrupt(_kept(points, again)) from None
        raise
    store.write(assemble(grid, points, file.parent, notes), file)
    return Sweep.open(file)


def _run_here(points: Sequence[Point], processes: int, data: Path | None, report: Report) -> None:
    """Run the points in parallel processes; with one process here, one after the other.

    A point whose process is killed is retried, three times in all, and then counts as failed.
    """
    if processes == 1:
        for point, step in RunContext(Path(), report).steps(points):
            point.run(data, step.note(point.label))
            step.report(1.0, f"{point.label}, done")
        return
    by_label = {point.label: point for point in points}

    def ended(label: str, status: int) -> None:
        if not (point := by_label[label]).file.exists():
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            point.fail(f"Its process {how}, {_TRIES} times. Pass a smaller --processes to use less memory.")

    tasks = {label: partial(point.run, data) for label, point in by_label.items()}
    run_tasks(tasks, processes=processes, report=report, ended=ended, environment=_ONE_THREAD, tries=_TRIES)


def _missing(points: Sequence[Point], *, retry: bool, again: bool, say: Callable[[str], None]) -> list[Point]:
    """Return the points to run."""
    for point in points:
        if again:
            point.forget()
        elif retry:
            point.forget_failure()
    states = [point.state for point in points]
    if finished := states.count(State.FINISHED):
        done = (point.file for point, state in zip(points, states, strict=True) if state is State.FINISHED)
        since = saved_since(points[0].entry, done)
        say(f"{_of(finished, points)} stored already{since}. Pass --again to rerun.")
    if failed := states.count(State.FAILED):
        say(f"{_of(failed, points)} skipped after an earlier failure. Pass --retry to retry.")
    return [point for point, state in zip(points, states, strict=True) if state is State.MISSING]


def _tidy(points: Sequence[Point]) -> None:
    """Remove what killed processes left at finished points."""
    folder = points[0].file.parent
    names = [match for path in folder.iterdir() if (match := _LEFT.fullmatch(path.name))] if folder.is_dir() else []
    left = {match[1] for match in names}
    for point in points:
        if point.run_folder.digest in left:
            point.run_folder.tidy()
    store.remove_leftovers(folder)


def _of(count: int, points: Sequence[Point]) -> str:
    return f"{count} of {counted(len(points), 'point')} {'is' if count == 1 else 'are'}"


def _kept(points: Sequence[Point], again: bool) -> str:
    """Return the sentence after an interrupt: the stored points, and what the same command runs."""
    states = [point.state for point in points]
    finished, missing, where = states.count(State.FINISHED), states.count(State.MISSING), points[0].file.parent
    if not missing:
        return f"Interrupted; no point is left to run: {_of(finished, points)} stored in {where}."
    command = "the same command, without --again," if again else "the same command"
    return (
        f"Interrupted; {_of(finished, points)} stored in {where}. Rerun {command} to run the "
        f"{'other' if finished else 'first'} {missing}; points in progress resume from their finished parts."
    )
