"""Atomic writes: readers see the old file or the new one, even if the writer is killed.

The content goes to a temporary file beside the target, whose name is that of the target. Writers of one file therefore
wait for each other by a lock, and the next one removes what a killed one has left.
"""

import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from saddlescope._shared.errors import BusyError
from saddlescope._shared.file_locks import file_lock
from saddlescope._shared.output_paths import output_file

_LONGEST = 240  # bytes of a name that leave room for the prefix and the suffix


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Replace a file atomically; its folder must exist. See `atomic_writer`."""
    with atomic_writer(path) as file:
        file.write(content)


@contextmanager
def atomic_writer(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces another atomically at the end; its folder must exist.

    The content goes to a temporary file in the same folder, reaches the disk, and is then renamed. Links are followed.

    Raises:
        StorageError: the path is a folder, device, pipe or socket, which stays.
        OSError: the disk is full or the folder cannot be written; the temporary file is removed.
    """
    target = output_file(path)
    with _temporary(target) as temporary:
        try:
            with temporary.open("xb") as file:  # follows no link and opens no pipe
                yield file
                file.flush()
                os.fsync(file.fileno())
            _replace(temporary, output_file(target))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    with suppress(OSError):  # the rename itself survives a power cut, where the system supports it
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def unfinished_files(path: Path) -> tuple[Path, Path]:
    """Return the temporary file of a path and its lock, which a killed writer leaves until the next one."""
    target = Path(os.path.realpath(path))
    name = target.name
    if len(os.fsencode(name)) > _LONGEST:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return target.with_name(f".{name}.part"), target.with_name(f".{name}.lock")


def remove_unfinished(path: Path) -> None:
    """Remove the files that a killed writer of a path left; those of one that is writing stay."""
    temporary, lock = unfinished_files(path)
    with suppress(BusyError, OSError), file_lock(lock, "", 0.0):
        temporary.unlink()


@contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    """Yield the path of the temporary file of a target, where nothing is, once no other writer has it."""
    path, lock = unfinished_files(target)
    with ExitStack() as held:
        try:
            held.enter_context(file_lock(lock, "", -1.0))
            path.unlink(missing_ok=True)
        except OSError:  # this file system has no locks: each writer takes a name of its own
            path = path.with_name(f".{secrets.token_hex(8)}.part")
        yield path


def _replace(temporary: Path, target: Path) -> None:
    for _ in range(200 if os.name == "nt" else 0):  # Windows replaces no file that a reader has open
        with suppress(PermissionError):
            temporary.replace(target)
            return
        time.sleep(0.01)
    temporary.replace(target)
