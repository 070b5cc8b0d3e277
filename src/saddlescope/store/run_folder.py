"""Folder of a run: its file, its scratch folder that survives a kill, its lock against a second process."""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from saddlescope._shared.atomic_files import remove_unfinished, unfinished_files
from saddlescope._shared.errors import BusyError, StorageError
from saddlescope._shared.file_locks import file_lock, remove_unheld
from saddlescope._shared.output_paths import new_folder, output_file, probe, reason
from saddlescope._shared.reprs import ReprMixin

_CLEARED = re.compile(r"\.[0-9a-f]{12}\.cleared")


@dataclass(frozen=True, repr=False)
class RunFolder(ReprMixin):
    """Files of one run below an output folder: `OUT/<paper>/<entry>/<label>.nc`.

    Attributes:
        out: the output folder.
        entry: the name of the entry, `paper/entry`.
        params: the run's parameters as JSON values; runs with equal parameters share their scratch folder.
        size: the name of a size whose parameters these are, or empty: the file is then named by their digest.
        part: a folder below that of the entry that holds the file, such as that of the points of sweeps.
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
        """File of the result."""
        return self.out / self.entry / self.part / f"{self.size or self.digest}.nc"

    @property
    def scratch(self) -> Path:
        """Folder of checkpoints, named by the digest: other parameters never resume from it."""
        return self.file.with_name(f"{self.digest}.partial")

    @contextmanager
    def lock(self, patience: float = 0.2) -> Iterator[Path]:
        """Lock the run for this process and yield its scratch folder, which is created if absent.

        Fails at once, not after hours of work, if the folder cannot be written or the disk is full. The content of the
        scratch folder stays for the next try; `clear` removes it.

        Args:
            patience: seconds to wait for another process at this run; negative: without end.

        Raises:
            BusyError: another process is at this run.
            StorageError: the folder cannot be written.
        """
        with ExitStack() as undo:
            try:
                undo.enter_context(new_folder(self.file.parent))  # a failed try leaves no empty folders
                output_file(self.file)
                busy = f"is at this run of {self.entry} already; wait for it, or give another folder."
                undo.enter_context(file_lock(self._lock_file, busy, patience))
                probe(self.file.parent)
                undo.callback(_remove_empty, self.scratch)
                self.scratch.mkdir(exist_ok=True)
            except OSError as error:
                raise StorageError(
                    f"Cannot write in {self.out}: {reason(error)}. Give another folder, or free some space."
                ) from error
            yield self.scratch

    def clear(self) -> None:
        """Remove the scratch folder, once the result is stored."""
        shutil.rmtree(self._cleared, ignore_errors=True)
        with suppress(OSError):
            self.scratch.rename(self._cleared)  # so that a kill leaves no part of it to resume from
        shutil.rmtree(self._cleared, ignore_errors=True)

    def restart(self) -> None:
        """Empty the scratch folder of a locked run, unless this was done already and the rerun was interrupted."""
        begun = self.scratch / ".again"
        if not begun.exists():
            self.clear()
            self.scratch.mkdir()
            begun.touch()

    def tidy(self) -> None:
        """Remove what a process left that was killed after it had stored the result.

        Nothing happens while a process is at this run, and parts that are newer than the result stay: they belong to a
        rerun.
        """
        left = (self.scratch, self._cleared, self._lock_file, *unfinished_files(self.file))
        if not any(path.exists() for path in left) or not self.file.exists():
            return
        with suppress(BusyError, StorageError), self.lock():
            remove_unfinished(self.file)
            shutil.rmtree(self._cleared, ignore_errors=True)
            stored = self.file.stat().st_mtime_ns
            if all(part.stat().st_mtime_ns <= stored for part in self.scratch.rglob("*") if part.is_file()):
                self.clear()

    @property
    def _cleared(self) -> Path:
        return self.file.with_name(f".{self.digest}.cleared")

    @property
    def _lock_file(self) -> Path:
        return self.file.with_name(f"{self.digest}.lock")


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def remove_leftovers(folder: Path) -> None:
    """Remove cleared scratch folders, and locks without a scratch folder or a holder, that killed processes left."""
    for path in folder.glob(".*.cleared"):
        if _CLEARED.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob("*.lock"):
        if not path.with_suffix(".partial").exists():
            remove_unheld(path)
