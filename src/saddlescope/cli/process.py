"""State of the process that runs a command: standard streams, environment, warnings of libraries."""

import io
import logging
import os
import sys
import warnings
from pathlib import Path


def prepare_process(*, compiles: bool) -> None:
    """Prepare this process, and those that it starts, for a command; a caller from Python keeps its own state.

    Args:
        compiles: keep what JAX compiles in the user's cache folder, unless the environment names another one.
    """
    _open_standard_streams()
    if compiles:
        from saddlescope.reproduction.device import compiled_code

        for name, value in compiled_code().items():
            os.environ.setdefault(name, value)
    os.environ["MPLBACKEND"] = "agg"  # pictures go to files, and a name that Matplotlib lacks would end its import
    if not sys.warnoptions:  # libraries do not speak before our sentence, unless asked to by -W or PYTHONWARNINGS
        warnings.simplefilter("ignore")
        os.environ["PYTHONWARNINGS"] = "ignore"
        logging.disable(logging.CRITICAL)


def drop_unwritten() -> None:
    """Drop what the standard streams refuse: as it exits, Python would write it again, fail and change the status."""
    for stream in filter(None, (sys.stdout, sys.stderr)):  # `main` gives up an output that nobody reads
        try:
            stream.flush()
        except OSError:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())
            os.close(nothing)


def _open_standard_streams() -> None:
    """Open what the caller has closed: the next file opened would take its number, and the output of libraries."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for as long as the process
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":  # Latin-1 has no Greek letters
            stream.reconfigure(errors="backslashreplace")
