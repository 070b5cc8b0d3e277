"""Cells and tasks for the tests of processes: functions that another process can import."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from saddlescope._shared.errors import InputError

if TYPE_CHECKING:
    import xarray as xr

    from saddlescope.reproduction.context import RunContext
    from saddlescope.reproduction.process_pool import Report


def square(n: int, context: "RunContext") -> "xr.Dataset":
    """Compute n² and report once in the middle; 0 is refused, -2 fails, -3 is killed, others below 0 never end."""
    import xarray as xr

    if n == 0:
        raise InputError("n must be at least 1; got 0.")
    if n == -2:
        raise ZeroDivisionError
    if n == -3:
        os.kill(os.getpid(), signal.SIGKILL)
    if n < 0:
        (context.scratch / f"{os.getpid()}.process").touch()
        while True:
            time.sleep(0.1)
    sys.stdout.write("a line that is no message\n")
    context.report(0.5, f"half of {n}")
    return xr.Dataset({"square": n**2, "process": os.getpid(), "cell": context.cell})


def process_id(report: "Report") -> int:
    """Return the process that runs this task."""
    return os.getpid()


@dataclass(frozen=True)
class Reports:
    """A task that takes whatever its report raises for its own failure."""

    failed: Path

    def __call__(self, report: "Report") -> None:
        try:
            report(0.5, "half")
        except Exception:
            self.failed.touch()
