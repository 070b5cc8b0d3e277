"""Atomic writes: readers see the old file or the new one, even if the writer is killed.

The content goes to a temporary file beside the target, whose name is that of the target. Writers of one file therefore
wait for each other by a lock on it, and the next one uses what a killed one has left.
"""

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

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
    with _temporary(target) as file:
        temporary = Path(file.name)
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(output_file(target))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    with suppress(OSError):  # the rename itself survives a power cut, where the system supports it
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def unfinished_file(path: Path) -> Path:
    """Return the temporary file of a path, which a killed writer leaves until the next one."""
    target = Path(os.path.realpath(path))
    name = target.name
    if len(os.fsencode(name)) > _LONGEST:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return target.with_name(f".{name}.part")


def remove_unfinished(path: Path) -> None:
    """Remove the temporary file that a killed writer of a path left; one that is being written stays."""
    temporary = unfinished_file(path)
    with suppress(OSError), open(temporary, "rb", opener=_open_itself) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        temporary.unlink()


def _temporary(target: Path) -> IO[bytes]:
    """Open the temporary file of a target, empty, once no other writer has it."""
    path = unfinished_file(target)
    while True:
        file = open(path, "ab", opener=_open_itself)  # noqa: SIM115 (the caller closes it)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # this file system has no locks: each writer takes a name of its own
            file.close()
            return path.with_name(f"{path.name[:64]}.{secrets.token_hex(4)}").open("xb")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.lstat()):  # not one that another writer has just renamed
                file.truncate(0)
                return file
        file.close()


def _open_itself(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
