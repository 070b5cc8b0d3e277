"""Points of a sweep on this machine, in parallel processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from saddlescope._shared.progress import Report
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.process_pool import run_tasks
from saddlescope.sweeps.point import Point

_TRIES = 3  # of a point whose process is killed, until it counts as failed
_ONE_THREAD: dict[str, str] = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def run_in_processes(points: Sequence[Point], processes: int, data: Path | None, report: Report) -> None:
    """Run the points in parallel processes; with one process here, one after the other.

    A point whose process is killed is retried, three times in all, and then counts as failed.

    Raises:
        InputError: the folder cannot be written or the disk is full.
    """
    if processes == 1:
        for point, step in RunContext(Path(), report).steps(points):
            point.run(data, step.note(point.label))
            step.report(1.0, f"{point.label}, done")
        return
    tasks = {point.label: _RunPoint(point, data) for point in points}

    def ended(label: str, status: int) -> None:
        if not (point := tasks[label].point).file.exists():
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            point.fail(f"Its process {how}, {_TRIES} times. Pass a smaller --processes to use less memory.")

    run_tasks(tasks, processes=processes, report=report, ended=ended, environment=_ONE_THREAD, tries=_TRIES)


@dataclass(frozen=True)
class _RunPoint:
    """Task of a process: one point."""

    point: Point
    data: Path | None

    def __call__(self, report: Report) -> None:
        self.point.run(self.data, report)
