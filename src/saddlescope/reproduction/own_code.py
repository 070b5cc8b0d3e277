"""Entries of your own files: sentences on their errors, with the line, and on runs stored before they were saved."""

import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from saddlescope._shared.errors import FlowError, InputError
from saddlescope._shared.outside_causes import outside_cause
from saddlescope.reproduction import catalogue


@contextmanager
def own_errors_named(entry: str) -> Iterator[None]:
    """Turn an error, or an exit, of an entry of your own file into a sentence; those of other entries pass.

    Raises:
        InputError: the code of your own entry failed.
    """
    try:
        yield
    except (FlowError, InputError):
        raise
    except (Exception, SystemExit) as error:
        file = catalogue.own_file(entry)
        if file is None or outside_cause(error) is not None:
            raise
        raise InputError(f"{place(error, file)}: {described(error)}. Mend the entry {entry}.") from error


def place(error: BaseException, file: str) -> str:
    """Return the file, and the last of its lines that led to an error."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [str(frame.lineno) for frame in frames if frame.filename == file]
    return f"{file}, line {lines[-1]}" if lines else file


def described(error: BaseException) -> str:
    """Return an error in one line: its type and the first line of its message."""
    if isinstance(error, SystemExit):
        return "it ends the process; put what a script does under `if __name__ == '__main__':`"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def saved_since(entry: str, stored: Iterable[Path]) -> str:
    """Return the clause that an entry of your own file was saved after some of these were stored; empty otherwise."""
    file = catalogue.own_file(entry)
    if file is None or not any(path.stat().st_mtime < Path(file).stat().st_mtime for path in stored):
        return ""
    return f", before {Path(file).name} was saved"
