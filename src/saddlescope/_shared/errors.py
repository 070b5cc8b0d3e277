"""The one error that means: the input is at fault, and this sentence says how to cure it."""

import re
from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """Something the user gave cannot be used. The message names what was given and the cure, in one sentence.

    The command line prints the message alone, without a traceback, and leaves with exit status 2.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(re.sub(r"\s*\n\s*", " ", message))  # arrays and file names may bring lines of their own


def unknown(kind: str, given: str, known: Iterable[str]) -> InputError:
    """An `InputError` for a name that does not exist, with the nearest names that do.

    >>> str(unknown("size", "quik", ["quick", "default", "paper"]))
    "There is no size 'quik'; did you mean quick? Known: default, paper, quick."
    """
    names = sorted(known)
    near = get_close_matches(given, names, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return InputError(f"There is no {kind} {given!r}{hint} Known: {', '.join(names)}.")


_WITHOUT = {
    "train": "there is no tracker, no spectra of checkpoints, no LoRA and no entry that trains in PyTorch",
    "language": "there is no GPT-2, no tokenizer, no callback of Transformers' Trainer and no entry on language",
    "sweep": "sweeps stay on this machine",
    "notebook": "progress is told in plain lines in a notebook",
}
_PACKAGES = {  # of the extras, by the names they are imported by
    "torch": ("PyTorch", "train"),
    "safetensors": ("Safetensors", "train"),
    "PIL": ("Pillow", "train"),
    "transformers": ("Transformers", "language"),
    "tokenizers": ("Tokenizers", "language"),
    "accelerate": ("Accelerate", "language"),
    "peft": ("PEFT", "language"),
    "distributed": ("distributed", "sweep"),
    "ipywidgets": ("ipywidgets", "notebook"),
}


class MissingExtraError(InputError, ImportError):
    """A part of the package needs an extra that is not installed.

    The message has the command that cures it, and what the extra takes away while it is missing.

    Attributes:
        package: what is missing.
        extra: what brings it.
    """

    def __init__(self, part: str, package: str, extra: str) -> None:
        super().__init__(f"{part} needs {package}: pip install 'saddlescope[{extra}]'; without it {_WITHOUT[extra]}.")
        self.package, self.extra = package, extra

    @classmethod
    def of(cls, part: str, error: ImportError) -> "MissingExtraError | None":
        """The same for a part that failed with an error of an import, or None: another package is missing."""
        if isinstance(error, cls):
            return cls(part, error.package, error.extra)
        found = _PACKAGES.get((error.name or "").partition(".")[0])
        return cls(part, *found) if found else None


class StorageError(InputError):
    """A folder cannot be written or its disk is full: no fault of what was to be stored there."""


class BusyError(InputError):
    """Another process is at the same run."""
