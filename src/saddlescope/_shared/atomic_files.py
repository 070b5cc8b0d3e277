"""Atomic writes: readers see the old file or the new one, even if the writer is killed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

from saddlescope._shared.output_paths import output_file


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
    prefix = f".{target.name[:32]}."  # a long name is allowed, and the temporary one is longer
    with NamedTemporaryFile(dir=target.parent, prefix=prefix, suffix=".part", delete=False) as file:
        temporary = Path(file.name)
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            temporary.chmod(0o666 & ~_umask())  # temporary files are private; results need not be
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
