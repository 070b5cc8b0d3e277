"""Locks on files, which the system releases when their holder ends, however it ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from filelock import FileLock, Timeout

from saddlescope._shared.errors import BusyError


@contextmanager
def file_lock(path: Path, busy: str, patience: float = 0.2) -> Iterator[None]:
    """Hold an exclusive lock on a file, which is created if absent and removed at the end.

    Args:
        path: the file; its folder must exist.
        busy: predicate of the sentence if another process holds it, such as "is writing here; wait for it."; the file
            then has the number of its holder.
        patience: seconds to wait, such as for a process that is just removing the file; negative: without end.

    Raises:
        BusyError: another process holds it.
        OSError: the file cannot be created, or the file system has no locks.
    """
    with TemporaryFile(dir=path.parent):  # raises if the folder is absent, which FileLock would create, or holds no
        pass  # new files, such as /proc: FileLock would wait for ever
    lock = FileLock(path, timeout=patience, poll_interval=0.01)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(f"{_holder(path)} {busy}") from None
    try:
        if busy and type(lock) is FileLock:  # not the one for file systems without locks, which has content of its own
            _sign(path)
        yield
    finally:
        with suppress(PermissionError):  # Windows keeps open files; there the release removes it
            path.unlink(missing_ok=True)
        lock.release()


def remove_unheld(path: Path) -> None:
    """Remove the lock file of a killed process; one that is held stays, and so does what is no regular file."""
    with suppress(BusyError, OSError):
        if path.is_file():
            with file_lock(path, "", 0.0):
                pass


def _sign(path: Path) -> None:
    with suppress(OSError), path.open("r+b", buffering=0) as file:
        file.seek(1)  # Windows locks the first byte against reading and writing
        file.write(b"%-20d" % os.getpid())


def _holder(path: Path) -> str:
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(1)
            return f"Process {int(file.read(20))}"
    except (OSError, ValueError):  # not written yet
        return "Another process"
