"""Making points on this machine: all at once where the entry can, else side by side in processes of their own."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from saddlescope import store
from saddlescope._shared.errors import BusyError, InputError, StorageError
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.process_pool import (
    Report,
    TaskDone,
    TaskEnded,
    TaskFailed,
    TaskProgress,
    TaskRefused,
    run_parallel,
)
from saddlescope.reproduction.runner import json_values, stamp
from saddlescope.sweeps.point import BUSY_PAUSE, Point, sentence

BATCH = 64
"""Points that an entry makes at once: a kill costs no more than these."""

_TRIES = 3  # of a point whose process is killed, before it counts as failed
_ONE_THREAD: dict[str, str] = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def make_in_processes(points: Sequence[Point], processes: int, data: Path | None, report: Report) -> None:
    """Makes the points side by side; with one process here, one after the other.

    A point whose process is killed is tried again, three times in all, and counts as failed then.

    Raises:
        StorageError: the folder cannot be written or the disk is full.
    """
    if processes == 1:
        for k, point in enumerate(points):
            part = partial(_part, report, k, len(points), point.label)
            point.run(data, part)
            part(1.0, "done")
        return
    fractions = {point.label: 0.0 for point in points}
    tries, left = 0, list(points)
    while left:
        tries += 1
        killed: list[Point] = []
        tasks = {point.label: _MakePoint(point, data) for point in left}
        with closing(run_parallel(tasks, processes=min(processes, len(left)), environment=_ONE_THREAD)) as happened:
            for news in happened:
                match news:
                    case TaskProgress(name, fraction, note):
                        fractions[name] = fraction
                        report(sum(fractions.values()) / len(points), f"{name}: {note}")
                    case TaskDone(name):
                        fractions[name] = 1.0
                        report(sum(fractions.values()) / len(points), f"{name}: done")
                    case TaskRefused(_, told):  # the point itself never raises for its own sake
                        raise StorageError(told)
                    case TaskFailed(name, error):
                        raise RuntimeError(f"The point {name} could not be stored: {error}")
                    case TaskEnded(name, status):
                        point = tasks[name].point
                        if tries < _TRIES:
                            killed.append(point)
                        elif not point.file.exists():
                            point.fail(_killed(status))
        left = killed


def _part(report: Report, k: int, count: int, label: str, fraction: float, note: str) -> None:
    """The report of the k-th of so many points."""
    report((k + fraction) / count, f"{label}: {note}")


def _killed(status: int) -> str:
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"Its process {how}, {_TRIES} times; where memory is short, fewer --processes take less."


@dataclass(frozen=True)
class _MakePoint:
    """The task of a process: one point."""

    point: Point
    data: Path | None

    def __call__(self, report: Report) -> None:
        self.point.run(self.data, report)


def make_at_once(
    entry: Entry, points: Sequence[Point], data: Path | None, report: Report, say: Callable[[str], None]
) -> None:
    """Makes the points by the entry's `run_many`, so many at a time; those of a batch that fails, one after the other.

    Raises:
        StorageError: the folder cannot be written or the disk is full.
    """
    batches = list(_batches(points))
    for k, batch in enumerate(batches):

        def part(fraction: float, note: str, k: int = k) -> None:
            report((k + fraction) / len(batches), note)

        try:
            _make_batch(entry, batch, data, part)
        except StorageError:
            raise
        except Exception as error:
            say(f"{len(batch)} points at once failed ({sentence(error)}): making them one after the other.")
            make_in_processes(batch, 1, data, part)


def _batches(points: Sequence[Point]) -> Iterator[list[Point]]:
    left = iter(points)
    while batch := list(islice(left, BATCH)):
        yield batch


def _make_batch(entry: Entry, batch: Sequence[Point], data: Path | None, report: Report) -> None:
    """The points of one batch, which have a lock and a scratch folder together."""
    assert entry.run_many is not None
    place = store.RunFolder(batch[0].out, entry.name, {"points": [json_values(p.params) for p in batch]}, part="points")
    while missing := [point for point in batch if not point.file.exists()]:
        try:
            with place.lock() as scratch:
                resumed, stop = any(scratch.iterdir()), store.stopwatch()
                runs = entry.run_many([point.params for point in missing], RunContext(scratch, report, data))
                if len(runs) != len(missing):
                    raise InputError(f"run_many must make a run for each of {len(missing)} points; got {len(runs)}.")
                measured = stop()
                measured["cpu_seconds"] = round(measured["cpu_seconds"] / len(runs), 4)
                for point, run in zip(missing, runs, strict=True):
                    point.keep(stamp(run, entry, point.params, point.size, point.settings, resumed, measured))
                place.clear()
        except BusyError:
            time.sleep(BUSY_PAUSE)
