"""Imitation of Windows and macOS on Linux, so that tests show what would fail there.

Python loads this file as it starts, in the tests and in every process that they start, if PYTHONPATH has its folder.
SADDLESCOPE_LIKE names the system: `windows` or `macos`. Without it nothing changes.
That saddlescope uses no name of a module that the system lacks is checked by pyright, in `make lint`.

- Names of files have no case: a file is found under any; to write one beside another that differs by case alone is an
  `AssertionError`.
- `multiprocessing` starts processes by spawn.

On Windows, besides:

- A file that a process has open or mapped, or a folder with such a file, can be neither renamed, replaced nor removed.
  `os.rename` replaces nothing. The release of a lock removes its file.
- Folders cannot be opened, files that are open for reading alone cannot be flushed to disk, and the names of new files
  have none of the characters and words that Windows keeps to itself.
- Text files, standard streams and pipes are in cp1252 unless their encoding is given.
"""

# ruff: noqa: PTH112, PTH114, PTH118, PTH119, PTH120 (pathlib calls what is replaced here)

import builtins
import errno
import io
import locale
import multiprocessing
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

LIKE = os.environ.get("SADDLESCOPE_LIKE", "")
WINDOWS = LIKE == "windows"
PLATFORM = {"windows": "win32", "macos": "darwin"}.get(LIKE, "")
ENCODING = "cp1252"
FORBIDDEN = re.compile(r'[<>:"|?*\x00-\x1f\\]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)
NATIVE: Any = SimpleNamespace(**vars(os), io_open=io.open)  # before anything is replaced


class Elsewhere(types.ModuleType):
    """A module as it is on the other system."""

    def __init__(self, module: types.ModuleType, other: dict[str, Any]) -> None:
        for name in list(vars(self)):
            del vars(self)[name]
        vars(self).update(_module=module, _before={}, **other)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._before.setdefault(name, getattr(self._module, name, None))
        setattr(self._module, name, value)

    def __delattr__(self, name: str) -> None:  # how pytest undoes what it has set here
        setattr(self._module, name, self._before.pop(name))


@cache
def elsewhere(name: str) -> types.ModuleType:
    """Return a module of the standard library as it is on the other system."""
    other: dict[str, Any] = {"platform": PLATFORM} if name == "sys" else {}
    if name == "os" and WINDOWS:
        other = {"name": "nt", "open": open_file, "fsync": flush}
    return Elsewhere(sys.modules[name], other) if other else sys.modules[name]


def imports(native: Callable[..., Any]) -> Callable[..., Any]:
    """Return `__import__` for saddlescope and all others."""

    def imported(name: str, globals: Any = None, *more: Any, **options: Any) -> Any:
        module = native(name, globals, *more, **options)
        if not str((globals or {}).get("__package__")).startswith("saddlescope"):
            return module
        if module.__name__ == "filelock" and WINDOWS:
            release_removes(module.UnixFileLock)
        return elsewhere(module.__name__) if module.__name__ in sys.stdlib_module_names else module

    return imported


# Files.


def open_file(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
    """Refuse folders, as `os.open` does on Windows."""
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)
    return os.open(path, flags, mode, **more)


def flush(file: Any) -> None:
    """Refuse files that are open for reading alone, as `os.fsync` does on Windows."""
    import fcntl

    if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "Bad file descriptor")
    os.fsync(file)


def release_removes(lock: Any) -> None:
    """Let the release of a lock remove its file, where no other process has it open.

    It is removed while the lock is held: who opens it meanwhile finds that it is gone, and tries again.
    """
    if "native" in vars(lock._release):
        return
    native = lock._release

    def release(self: Any) -> None:
        with suppress(OSError):
            require_closed(self.lock_file, others=True)
            NATIVE.unlink(self.lock_file)
        native(self)

    release.native = native  # type: ignore[attr-defined]
    lock._release = release


def exists(path: str) -> bool:
    """Return True if something has this very name."""
    try:
        NATIVE.lstat(path)
    except (OSError, ValueError):
        return False
    return True


def on_disk(path: str) -> str:
    """Return the path of what exists under another case of a name; the same path if nothing does."""
    if exists(path):
        return path
    parent, name = os.path.split(path)
    if not name:
        return path
    parent = on_disk(parent) if parent else parent
    try:
        found = [other for other in NATIVE.listdir(parent or ".") if other.casefold() == name.casefold()]
    except OSError:
        return path
    return os.path.join(parent, found[0] if found else name)


def found(path: Any) -> Any:
    """Return the path to read under any case."""
    text = path if isinstance(path, int) else os.fspath(path)
    return on_disk(text) if isinstance(text, str) else path


def created(path: Any) -> Any:
    """Return the path to write; refuse one that differs from another by case alone or that Windows does not allow."""
    there = found(path)
    if isinstance(there, str):
        name = os.path.basename(os.fspath(path))
        assert os.path.basename(there) == name, f"{path} and {there} are one file on {LIKE}"
        if WINDOWS and not exists(there) and FORBIDDEN.search(name):
            raise OSError(errno.EINVAL, "Invalid argument", path)
    return there


LIKE_THIS: dict[str, bool] = {}  # by the number of a process: it imitates a system, too


def imitating() -> Iterator[str]:
    """Yield the numbers of the processes that imitate a system."""
    for number in filter(str.isdigit, NATIVE.listdir("/proc")):
        if number not in LIKE_THIS:
            try:
                with NATIVE.io_open(f"/proc/{number}/environ", "rb") as file:
                    LIKE_THIS[number] = b"SADDLESCOPE_LIKE=" in file.read()
            except OSError:
                continue
        if LIKE_THIS[number]:
            yield number


def held_by(number: str) -> Iterator[str]:
    """Yield the files and folders that a process has open or mapped."""
    folder = f"/proc/{number}"
    with suppress(OSError):
        for name in NATIVE.listdir(f"{folder}/fd"):
            with suppress(OSError):  # closed meanwhile
                yield NATIVE.readlink(f"{folder}/fd/{name}")
        with NATIVE.io_open(f"{folder}/maps", encoding="utf-8", errors="replace") as file:
            yield from (line[line.index("/") :].rstrip("\n") for line in file if "/" in line)


def require_closed(path: Any, folder: int | None = None, *, others: bool = False) -> None:
    """Raise PermissionError if a process, or another one, has a file open or mapped, or one in a folder."""
    above = "" if folder is None else NATIVE.readlink(f"/proc/self/fd/{folder}")
    whole = os.path.join(above, os.fspath(path))
    whole = os.path.join(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))
    if not exists(whole) or os.path.islink(whole):
        return
    for number in imitating():
        if others and number == str(os.getpid()):
            continue
        if any(one == whole or one.startswith(f"{whole}/") for one in held_by(number)):
            raise PermissionError(errno.EACCES, f"The process {number} has it open", path)


def replaces(native: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator of a function that replaces another, and is pickled by the public name of it."""

    def decorated(function: Any) -> Any:
        function = wraps(native)(function)
        function.__module__ = {"posix": "os", "_io": "io"}.get(native.__module__, native.__module__)
        return function

    return decorated


def reads(native: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of `os` that finds files under any case."""

    @replaces(native)
    def call(path: Any = ".", *more: Any, **options: Any) -> Any:
        return native(path if options.get("dir_fd") is not None else found(path), *more, **options)

    return call


def makes(native: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of `os` that creates what it is given."""

    @replaces(native)
    def call(path: Any, *more: Any, **options: Any) -> Any:
        return native(path if options.get("dir_fd") is not None else created(path), *more, **options)

    return call


def removes(native: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of `os` that removes files."""

    @replaces(native)
    def call(path: Any, *, dir_fd: int | None = None) -> None:
        there = path if dir_fd is not None else found(path)
        if WINDOWS:
            require_closed(there, dir_fd)
        native(there, dir_fd=dir_fd)

    return call


def moves(native: Callable[..., Any]) -> Callable[..., Any]:
    """Return `os.rename` or `os.replace`."""

    @replaces(native)
    def call(source: Any, target: Any, **options: Any) -> None:
        source, target = found(source), created(target)
        if WINDOWS:
            require_closed(source)
            require_closed(target)
            if native is NATIVE.rename and exists(target):
                raise FileExistsError(errno.EEXIST, "File exists", target)
        native(source, target, **options)

    return call


def opens(native: Callable[..., Any]) -> Callable[..., Any]:
    """Return `open`, with the encoding of the system for text."""

    @replaces(native)
    def call(file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, *more: Any, **options: Any) -> Any:
        if WINDOWS and "b" not in mode and encoding in (None, "locale"):
            encoding = ENCODING
        there = file if isinstance(file, int) else created(file) if set(mode) & set("wxa") else found(file)
        return native(there, mode, buffering, encoding, *more, **options)

    return call


def starts(native: Callable[..., None]) -> Callable[..., None]:
    """Return `Popen.__init__` whose processes imitate the system, too."""

    @replaces(native)
    def call(self: Any, *words: Any, env: Any = None, **options: Any) -> None:
        if env is not None:
            here = str(Path(__file__).parent)
            paths = [here, *(path for path in (env.get("PYTHONPATH"),) if path and path != here)]
            env = {**env, "SADDLESCOPE_LIKE": LIKE, "PYTHONPATH": os.pathsep.join(paths)}
            env |= {"PYTHONIOENCODING": ENCODING} if WINDOWS else {}
        native(self, *words, env=env, **options)

    return call


def install() -> None:
    """Make this process one of the other system."""
    multiprocessing.set_start_method("spawn", force=True)
    builtins.__import__ = imports(builtins.__import__)
    for name in ("stat", "lstat", "access", "listdir", "scandir", "readlink", "utime", "chmod", "chdir", "rmdir"):
        setattr(os, name, reads(getattr(os, name)))
    for name in ("mkdir", "mkfifo"):
        setattr(os, name, makes(getattr(os, name)))
    for name in ("unlink", "remove"):
        setattr(os, name, removes(getattr(os, name)))
    for name in ("rename", "replace"):
        setattr(os, name, moves(getattr(os, name)))
    io.open = builtins.open = opens(io.open)  # type: ignore[assignment]
    subprocess.Popen.__init__ = starts(subprocess.Popen.__init__)
    if WINDOWS:
        os.environ["PYTHONIOENCODING"] = ENCODING
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # neither closed nor replaced
                stream.reconfigure(encoding=ENCODING)
        locale.getencoding = locale.getpreferredencoding = lambda *_: ENCODING


if PLATFORM:
    install()
