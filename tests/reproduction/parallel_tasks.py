"""Parts of runs for the tests of processes: functions that another process can import."""

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


@dataclass(frozen=True)
class Square:
    """Compute n^2 and report the process once in the middle."""

    n: int

    def __call__(self, context: "RunContext") -> "xr.Dataset":
        import xarray as xr

        sys.stdout.write("a line that is no message\n")
        context.report(0.5, f"half of {self.n}")
        return xr.Dataset({"square": self.n**2, "process": os.getpid()})


@dataclass(frozen=True)
class Reports:
    """A task that takes whatever its report raises for its own failure."""

    failed: Path

    def __call__(self, report: "Report") -> None:
        try:
            report(0.5, "half")
        except Exception:
            self.failed.touch()


def refused(context: "RunContext") -> "xr.Dataset":
    """Cannot go on, and says why."""
    raise InputError("n must be at least 1; got 0.")


def failing(context: "RunContext") -> "xr.Dataset":
    """Fail with a defect."""
    raise ZeroDivisionError


def killed(context: "RunContext") -> "xr.Dataset":
    """Is killed, as for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def endless(context: "RunContext") -> "xr.Dataset":
    """Never comes to an end; its number is in a file."""
    (context.scratch / f"{os.getpid()}.process").touch()
    while True:
        time.sleep(0.1)
