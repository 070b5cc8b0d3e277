"""The one error that means: the input is at fault, and this sentence says how to cure it."""

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """Something the user gave cannot be used. The message names what was given and the cure, in one sentence.

    The command line prints the message alone, without a traceback, and leaves with exit status 2.
    """


def unknown(kind: str, given: str, known: Iterable[str]) -> InputError:
    """An `InputError` for a name that does not exist, with the nearest names that do.

    >>> str(unknown("size", "quik", ["quick", "default", "paper"]))
    "There is no size 'quik'; did you mean quick? Known: default, paper, quick."
    """
    names = sorted(known)
    near = get_close_matches(given, names, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return InputError(f"There is no {kind} {given!r}{hint} Known: {', '.join(names)}.")


class MissingExtraError(InputError, ImportError):
    """A part of the package needs an extra that is not installed; the message has the command that cures it."""

    def __init__(self, part: str, package: str, extra: str) -> None:
        super().__init__(f"{part} needs {package}: pip install 'saddlescope[{extra}]'")


class StorageError(InputError):
    """A folder cannot be written or its disk is full: no fault of what was to be stored there."""


class BusyError(InputError):
    """Another process is at the same run."""
