"""Making a sweep: its points side by side, what is finished kept, and the data set at the end."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from saddlescope.papers import entry as entries
from saddlescope.sweeps.grid import Grid
from saddlescope.sweeps.result import Sweep

if TYPE_CHECKING:
    from distributed import Client


def sweep(
    entry: entries.Entry,
    grid: Grid,
    *,
    out: str | os.PathLike[str],
    data: Path | None = None,
    processes: int | None = None,
    scheduler: "str | Client | None" = None,
    retry: bool = False,
    again: bool = False,
    report: Callable[[float, str], None] = lambda fraction, note: None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Sweep:
    """Runs an entry at every point of a grid, and stores the runs and one labelled data set."""
    raise NotImplementedError
