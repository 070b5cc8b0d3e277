"""Finished parts of an interrupted run, in a sentence."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from saddlescope import store
from saddlescope._shared.counted import counted

_GRAIN = 0.02  # seconds by which the clock of a file system may be late


@contextmanager
def interrupts_named(folder: "store.RunFolder") -> Iterator[None]:
    """Give an interrupt of a run the sentence that says what is kept and what the same call does again."""
    since = time.time() - _GRAIN
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_kept(folder, since)) from None


def _kept(folder: "store.RunFolder", since: float) -> str:
    own = [file for file in folder.scratch.rglob("*") if file.is_file()]
    shared = [file for file in (folder.out / "parts").glob("*/*.partial/**/*") if file.is_file()]  # of several entries
    shared = [file for file in shared if file.stat().st_mtime >= since]
    files = [*own, *shared]
    if not files:
        return "Interrupted before a part was finished; the same command starts from the beginning."
    verb, where = ("is" if len(files) == 1 else "are"), (folder.scratch if own else shared[0].parent)
    size = _size(sum(file.stat().st_size for file in files))
    return (
        f"Interrupted; {counted(len(files), 'file')} of finished work ({size}) {verb} kept in {where}. Rerun the same "
        "command to resume: it repeats only the part in progress, from its last checkpoint if it has one."
    )


def _size(size: int) -> str:
    unit = min((len(str(size)) - 1) // 3, 3)
    return f"{size / 1000**unit:.3g} {('bytes', 'kB', 'MB', 'GB')[unit]}"
