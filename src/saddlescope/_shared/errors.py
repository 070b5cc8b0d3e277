"""Errors for input that cannot be used; each message is one sentence that names the cure."""

import re
from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """Input that cannot be used; the message names it and the cure in one sentence.

    The command line prints the message alone, without a traceback, and exits with status 2.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(re.sub(r"\s*\n\s*", " ", message))  # arrays and file names may contain line breaks


def unknown(kind: str, given: str, known: Iterable[str]) -> InputError:
    """Return an `InputError` for a name that does not exist, with the nearest names that do.

    >>> str(unknown("size", "quik", ["quick", "default", "reduced", "paper"]))
    "There is no size 'quik'; did you mean quick? Known: default, paper, quick, reduced."
    """
    names = sorted(known)
    near = get_close_matches(given, names, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return InputError(f"There is no {kind} {given!r}{hint} Known: {', '.join(names)}.")


_WITHOUT = {
    "train": "the tracker, spectra of checkpoints, LoRA and entries that train in PyTorch cannot be used",
    "language": "GPT-2, tokenizers, the callback of Transformers' Trainer and entries on language cannot be used",
    "sweep": "sweeps run on this machine only",
    "notebook": "a notebook shows progress as plain lines",
    "tables": "results print as tables but do not become data frames",
    "explore": "the live page cannot be served",
}
_PACKAGES = {  # of the extras, by their import names
    "torch": ("PyTorch", "train"),
    "safetensors": ("Safetensors", "train"),
    "PIL": ("Pillow", "train"),
    "transformers": ("Transformers", "language"),
    "tokenizers": ("Tokenizers", "language"),
    "accelerate": ("Accelerate", "language"),
    "peft": ("PEFT", "language"),
    "distributed": ("distributed", "sweep"),
    "ipywidgets": ("ipywidgets", "notebook"),
    "pandas": ("pandas", "tables"),
    "starlette": ("Starlette", "explore"),
    "uvicorn": ("uvicorn", "explore"),
}


class MissingExtraError(InputError, ImportError):
    """A part of the package needs an extra that is not installed.

    The message has the command that installs it, and names the parts that cannot be used without it.

    Attributes:
        package: the missing package.
        extra: the extra that installs it.
    """

    def __init__(self, part: str, package: str, extra: str) -> None:
        super().__init__(f"{part} needs {package}: pip install 'saddlescope[{extra}]'; without it {_WITHOUT[extra]}.")
        self.package, self.extra = package, extra

    @classmethod
    def of(cls, part: str, error: ImportError) -> "MissingExtraError | None":
        """Return this error for a failed import of a package of an extra; None for any other package."""
        if isinstance(error, cls):
            return cls(part, error.package, error.extra)
        found = _PACKAGES.get((error.name or "").partition(".")[0])
        return cls(part, *found) if found else None


_CORE = frozenset({"clarabel", "diffrax", "equinox", "jax", "optax", "optimistix", "sklearn", "threadpoolctl"})


class MissingDependencyError(InputError, ImportError):
    """A part of the package needs a dependency that an installation for the tracker alone leaves out."""

    @classmethod
    def of(cls, part: str, error: ImportError) -> "MissingDependencyError | None":
        """Return this error for a failed import of a dependency of the theory; None for any other package."""
        package = (error.name or "").partition(".")[0]
        if package not in _CORE:
            return None
        return cls(f"{part} needs {package}, which this installation leaves out: pip install saddlescope.")


class StorageError(InputError):
    """A folder cannot be written, or its disk is full."""


class BusyError(InputError):
    """Another process is working on the same run."""
