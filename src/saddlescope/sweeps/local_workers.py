"""Points of a sweep on this machine: in batches if the entry supports it, else in parallel processes."""

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from saddlescope import store
from saddlescope._shared.errors import BusyError, InputError, StorageError
from saddlescope._shared.json_text import parse_json
from saddlescope._shared.progress import Report
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.process_pool import run_tasks
from saddlescope.reproduction.runner import stamp
from saddlescope.sweeps.point import BUSY_PAUSE, Point, State, describe_error

BATCH = 64
"""Points of one batch of an entry: a kill loses no more than these."""

_POINTS = "batch-points.json"  # in the scratch folder of a batch: the digests of its points
_LEFT = re.compile(r"\.?([0-9a-f]{12})\.(?:partial|lock|nc\.part|nc\.lock)")  # files of a run that is not finished
_TRIES = 3  # of a point whose process is killed, until it counts as failed
_ONE_THREAD: dict[str, str] = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def run_in_processes(points: Sequence[Point], processes: int, data: Path | None, report: Report) -> None:
    """Run the points in parallel processes; with one process here, one after the other.

    A point whose process is killed is retried, three times in all, and then counts as failed.

    Raises:
        InputError: the folder cannot be written or the disk is full.
    """
    if processes == 1:
        for k, point in enumerate(points):
            part = partial(_part, report, k, len(points), point.label)
            point.run(data, part)
            part(1.0, "done")
        return
    tasks = {point.label: _RunPoint(point, data) for point in points}

    def ended(label: str, status: int) -> None:
        if not (point := tasks[label].point).file.exists():
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            point.fail(f"Its process {how}, {_TRIES} times. Pass a smaller --processes to use less memory.")

    run_tasks(tasks, processes=processes, report=report, ended=ended, environment=_ONE_THREAD, tries=_TRIES)


def _part(report: Report, k: int, count: int, label: str, fraction: float, note: str) -> None:
    """Report the progress of the k-th of `count` points."""
    report((k + fraction) / count, f"{label}: {note}")


@dataclass(frozen=True)
class _RunPoint:
    """Task of a process: one point."""

    point: Point
    data: Path | None

    def __call__(self, report: Report) -> None:
        self.point.run(self.data, report)


def run_in_batches(
    entry: Entry,
    points: Sequence[Point],
    interrupted: Sequence[Sequence[Point]],
    data: Path | None,
    report: Report,
    say: Callable[[str], None],
) -> None:
    """Run the points in batches by the entry's `run_many`; those of a failed batch one after the other.

    Args:
        entry: the entry to run.
        points: the missing points.
        interrupted: batches that a killed process began; they are resumed as they were.
        data: folder of data sets.
        report: called with the share of finished batches.
        say: called with a sentence about a failed batch.

    Raises:
        StorageError: the folder cannot be written or the disk is full.
    """
    resumed = {point.run_folder.digest for batch in interrupted for point in batch}
    new = [point for point in points if point.run_folder.digest not in resumed]
    batches = [*interrupted, *_batches(new)]
    for k, batch in enumerate(batches):

        def part(fraction: float, note: str, k: int = k) -> None:
            report((k + fraction) / len(batches), note)

        try:
            _run_batch(entry, batch, data, part)
        except StorageError:
            raise
        except Exception as error:
            say(f"{len(batch)} points at once failed ({describe_error(error)}). Running them one after the other.")
            run_in_processes(batch, 1, data, part)


def _batches(points: Sequence[Point]) -> Iterator[list[Point]]:
    left = iter(points)
    while batch := list(islice(left, BATCH)):
        yield batch


def _run_batch(entry: Entry, batch: Sequence[Point], data: Path | None, report: Report) -> None:
    """Run the points of one batch, which share a lock and a scratch folder."""
    assert entry.run_many is not None
    folder = _batch_folder(batch)
    while any(not point.file.exists() for point in batch):
        try:
            with folder.lock() as scratch:
                resumed, stop = any(scratch.iterdir()), store.stopwatch()
                store.write_bytes(json.dumps([point.run_folder.digest for point in batch]).encode(), scratch / _POINTS)
                # All of them, even if some are stored: parts in the scratch folder are those of the whole batch.
                data_sets = dict(pair for point in batch for pair in point.data_sets.items())
                context = RunContext(scratch, report, data, data_sets=data_sets)
                runs = entry.run_many([point.params for point in batch], context)
                if len(runs) != len(batch):
                    raise InputError(f"run_many must return a run for each of {len(batch)} points; got {len(runs)}.")
                measured = stop()
                measured["cpu_seconds"] = round(measured["cpu_seconds"] / len(runs), 4)
                for point, run in zip(batch, runs, strict=True):
                    if not point.file.exists():
                        own = measured | {"data_sets": point.data_sets}
                        point.store_run(stamp(run, entry, point.params, point.size, point.settings, resumed, own))
                folder.clear()
        except BusyError:
            time.sleep(BUSY_PAUSE)


def tidy(points: Sequence[Point]) -> list[list[Point]]:
    """Remove what killed processes left at finished points, and return the batches that they left unfinished."""
    folder = points[0].file.parent
    names = [match for path in folder.iterdir() if (match := _LEFT.fullmatch(path.name))] if folder.is_dir() else []
    left, ours = {match[1] for match in names}, {point.run_folder.digest: point for point in points}
    for digest in left & ours.keys():
        ours[digest].run_folder.tidy()
    unfinished = []
    for digest in sorted(left - ours.keys()):
        batch = [ours[one] for one in _digests(folder / f"{digest}.partial" / _POINTS) if one in ours]
        if not batch or _batch_folder(batch).digest != digest:  # a point or batch of another sweep
            continue
        if any(point.state is State.MISSING for point in batch):
            unfinished.append(batch)
            continue
        with suppress(BusyError, StorageError), _batch_folder(batch).lock():
            _batch_folder(batch).clear()
    store.remove_leftovers(folder)
    return unfinished


def _batch_folder(batch: Sequence[Point]) -> store.RunFolder:
    parameters = {"points": [point.run_folder.params for point in batch]}
    return store.RunFolder(batch[0].out, batch[0].entry, parameters, part="points")


def _digests(file: Path) -> list[str]:
    """Return the points of a batch from its scratch folder; none if there are none."""
    try:
        found = parse_json(file.read_text("ascii"))
    except (OSError, ValueError):
        return []
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
