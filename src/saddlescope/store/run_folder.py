"""Where a run lives: its file, its scratch folder that survives a kill, its lock against a second process."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from saddlescope._shared.errors import BusyError, StorageError
from saddlescope._shared.reprs import ReprMixin

_PROBE = bytes(1 << 20)  # what must fit before long work begins; stored runs are of this order


@dataclass(frozen=True, repr=False)
class RunFolder(ReprMixin):
    """The place of one run below an output folder: `OUT/<paper>/<entry>/<label>.nc`.

    Attributes:
        out: the output folder.
        entry: the name of the entry, `paper/entry`.
        params: the run's parameters as JSON values; runs with equal parameters share their scratch.
        size: the name of a size whose parameters these are, or empty: the file is then named by their digest.
        part: a folder below that of the entry, in which the file lies, such as that of the points of sweeps.
    """

    out: Path
    entry: str
    params: Mapping[str, Any]
    size: str = ""
    part: str = ""

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits of a hash of the entry and its parameters."""
        canonical = json.dumps([self.entry, dict(self.params)], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @property
    def file(self) -> Path:
        """The result."""
        return self.out / self.entry / self.part / f"{self.size or self.digest}.nc"

    @property
    def scratch(self) -> Path:
        """What the run keeps to resume, named by the digest: other parameters never resume from it."""
        return self.file.with_name(f"{self.digest}.partial")

    @contextmanager
    def lock(self) -> Iterator[Path]:
        """Holds the place for this process and yields its scratch folder, which is made when it is absent.

        That the folder can be written, and has room, is tried at once and not after hours of work. What is in
        the scratch folder stays for the next try; `clear` removes it.

        Raises:
            BusyError: another process is at this run.
            StorageError: the folder cannot be written.
        """
        with ExitStack() as undo:
            try:
                for folder in _missing(self.file.parent):
                    undo.callback(_remove_empty, folder)  # a try that fails leaves no empty folders
                self.file.parent.mkdir(parents=True, exist_ok=True)
                undo.enter_context(_lock(self.file.with_name(f"{self.digest}.lock"), self.entry))
                _probe(self.file.parent)
                undo.callback(_remove_empty, self.scratch)
                self.scratch.mkdir(exist_ok=True)
            except OSError as error:
                reason = error.strerror or str(error)
                raise StorageError(
                    f"Cannot write in {self.out}: {reason}. Give another folder with --out, or make room."
                ) from error
            yield self.scratch

    def clear(self) -> None:
        """Removes the scratch folder, once the result is stored."""
        shutil.rmtree(self.scratch, ignore_errors=True)


def _missing(folder: Path) -> list[Path]:
    """The folders that would have to be made for `folder`, outermost first."""
    missing = []
    while not folder.exists() and folder != folder.parent:
        missing.append(folder)
        folder = folder.parent
    return missing[::-1]


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _probe(folder: Path) -> None:
    probe = folder / f".probe-{os.getpid()}"
    try:
        with probe.open("wb") as file:
            file.write(_PROBE)
            file.flush()
            os.fsync(file.fileno())
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


@contextmanager
def _lock(path: Path, entry: str) -> Iterator[None]:
    """An exclusive lock that the system itself releases when its holder dies, however it dies.

    A lock file left by a killed process is therefore never in the way; its text only serves the message.
    """
    import fcntl

    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise BusyError(
                f"Process {holder} is at this run of {entry} already; wait for it, or give another --out."
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                break
        os.close(descriptor)  # its holder removed the file between our opening and locking it: once more
    try:
        os.truncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)
