"""Atomic replacement of folders: a killed replacement is undone by the next one, and two never interleave.

.NAME.saddlescope/                   working folder beside the folder NAME, only while it is being replaced
.NAME.saddlescope/.saddlescope-work  lock, and the mark that this program made the working folder
.NAME.saddlescope/new                the new content
.NAME.saddlescope/old                the earlier folder, from the first rename to the end
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from saddlescope._shared.errors import InputError
from saddlescope._shared.file_locks import file_lock
from saddlescope._shared.output_paths import output_folder

_MARK = ".saddlescope-work"


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces another when the block ends without an error.

    The earlier folder stays until then. A symbolic link is followed.

    Args:
        folder: the folder to replace; it may be absent.

    Raises:
        BusyError: another process is replacing it.
        StorageError: it is something other than a folder.
        InputError: files of others have the name of the working folder.
        OSError: the disk is full, or the folder cannot be written.
    """
    folder = output_folder(folder)
    with _working_folder(folder) as work:
        _recover(folder, work)
        new, old = work / "new", work / "old"
        new.mkdir()
        yield new
        if folder.exists():
            folder.rename(old)
        new.rename(folder)


def recover_folder(folder: Path) -> None:
    """Restore a folder whose replacement was killed between its two renames; otherwise do nothing.

    Raises:
        BusyError: another process is replacing it.
        StorageError: it is something other than a folder.
        OSError: the folder cannot be written.
    """
    folder = output_folder(folder)
    if _work(folder).is_dir() and not folder.exists():
        with _working_folder(folder) as work:
            _recover(folder, work)


def _work(folder: Path) -> Path:
    if not folder.name:
        raise InputError(f"{folder} is the root of the file system, which cannot be replaced. Name a new folder.")
    return folder.with_name(f".{folder.name}.saddlescope")


@contextmanager
def _working_folder(folder: Path) -> Iterator[Path]:
    """Yield the locked working folder; it is removed at the end."""
    work = _work(folder)
    mark = work / _MARK
    with ExitStack() as held:
        while True:
            if work.is_symlink() or not _free(work):
                raise InputError(f"{work} must be free for work on {folder}; got files of others; move or rename them.")
            # A process that just finished removed it: mkdir says that it exists and then finds it gone.
            with suppress(FileNotFoundError, FileExistsError):
                work.mkdir(parents=True, exist_ok=True)
                held.enter_context(file_lock(mark, f"is writing {folder}; wait for it, or give another folder."))
                break
        try:
            yield work
        finally:
            with suppress(OSError):
                _recover(folder, work)
            held.close()
            _remove(work, mark)


def _remove(work: Path, mark: Path) -> None:
    """Remove the working folder; if something in it cannot be removed, it stays marked."""
    with suppress(OSError):
        work.rmdir()
        return
    with suppress(OSError):
        mark.touch()


def _free(work: Path) -> bool:
    """Return True if absent or a working folder of this program, which is empty if killed before its first file."""
    try:
        names = [path.name for path in work.iterdir()]
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        return False
    return not names or _MARK in names


def _recover(folder: Path, work: Path) -> None:
    """Undo or complete a replacement: restore the earlier folder if there is no new one, and remove the remains."""
    old = work / "old"
    if old.exists() and not folder.exists():
        old.rename(folder)
    for remains in (work / "new", old):
        shutil.rmtree(remains, ignore_errors=True)
