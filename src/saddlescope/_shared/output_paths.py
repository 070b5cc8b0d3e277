"""Paths of outputs: links are followed, only regular files are replaced, and both are checked before any work."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from saddlescope._shared.errors import StorageError

NETCDF = b"\x89HDF\r\n\x1a\n"
"""First bytes of stored results."""
_PROBE = bytes(1 << 20)  # content that must fit before long work begins; stored runs are of this order
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a chain of links without end",
}


def output_file(path: Path) -> Path:
    """Return the file that a write to a path creates or replaces: the end of its links.

    Raises:
        StorageError: that is a folder, a device, a pipe or a socket, none of which is ever replaced.
        OSError: a folder on the way cannot be read.
    """
    target = Path(os.path.realpath(path))
    if (kind := other_than_file(target)) is not None:
        raise StorageError(f"{path} must be a file or a new one; got {kind}.")
    return target


def output_folder(path: Path) -> Path:
    """Return the folder that a write to a path fills or creates: the end of its links.

    Raises:
        StorageError: that is a file, a device, a pipe or a socket, or the links have no end.
        OSError: a folder on the way cannot be read.
    """
    target = Path(os.path.realpath(path))
    kind = "a file" if target.is_file() else other_than_file(target)
    if kind not in (None, _KINDS[stat.S_IFDIR]):
        raise StorageError(f"{path} must be a folder or a new one; got {kind}.")
    return target


def other_than_file(path: Path) -> str | None:
    """Return what a path is, such as "a pipe", if it is no regular file; None for a file or an absent path.

    Raises:
        OSError: a folder on the way cannot be read.
    """
    try:
        kind = stat.S_IFMT(os.lstat(os.path.realpath(path)).st_mode)
    except FileNotFoundError:
        return None
    return None if kind == stat.S_IFREG else _KINDS.get(kind, "something else")


def require_writable_file(path: Path, *, begins: bytes = b"") -> None:
    """Raise unless a file can be written at a path, in folders that may be absent; leave nothing there.

    Args:
        path: of the file.
        begins: first bytes of a file that may be replaced; one with other content stays.

    Raises:
        StorageError: it is no regular file, or has other content, or its folder cannot be created or written, or the
            disk is full.
    """
    with _as_storage_error(path):
        target = output_file(path)
        probe(target.parent)
        if begins and target.exists():
            with target.open("rb") as file:
                if (found := file.read(len(begins))) and found != begins:
                    raise StorageError(f"{path} has content of another kind, which is not replaced. Name a new file.")


def require_writable_folder(folder: Path) -> None:
    """Raise unless files can be written in a folder, which may be absent, and beside it; leave nothing there.

    Raises:
        StorageError: it is no folder, or cannot be created or written, or the disk is full.
    """
    with _as_storage_error(folder):
        target = Path(os.path.realpath(folder))
        probe(target.parent)
        probe(target)


def probe(folder: Path) -> None:
    """Write a temporary file in a folder, which is created if absent and then removed again.

    Raises:
        OSError: the folder cannot be created or written, or the disk is full.
    """
    with new_folder(folder), TemporaryFile(dir=folder) as file:
        file.write(_PROBE)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Create a folder and its parents where absent; at the end remove those created that are empty.

    Raises:
        OSError: one cannot be created.
    """
    with ExitStack() as undo:
        folder = Path(os.path.realpath(folder))  # a dangling link leads to a new folder
        missing = _missing(folder)
        if not (missing[0].parent if missing else folder).is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
        for absent in missing:
            undo.callback(_remove_empty, absent)
        folder.mkdir(parents=True, exist_ok=True)
        yield


def reason(error: BaseException) -> str:
    """Return the reason of an error of the system, for a sentence."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text.splitlines()[0].rstrip(".")


def _missing(folder: Path) -> list[Path]:
    """Return the absent parents of `folder` and itself if absent, outermost first."""
    missing = []
    while not folder.exists() and folder != folder.parent:
        missing.append(folder)
        folder = folder.parent
    return missing[::-1]


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def _as_storage_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cure = "Free some space." if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Give another path."
        raise StorageError(f"Cannot write {path}: {reason(error)}. {cure}") from error
