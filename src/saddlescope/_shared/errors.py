"""Errors for input that cannot be used and for runs that end early; each message is a sentence that names the cure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from saddlescope._shared.visible_text import visible

_NEAREST = 6  # names in one sentence


class InputError(ValueError):
    """Input that cannot be used; the message names it and the cure in one sentence.

    The command line prints the message alone, without a traceback, and exits with status 2.
    """

    def __init__(self, message: str = "") -> None:
        # Arrays, file names and texts from others may contain line breaks and control characters.
        super().__init__(visible(re.sub(r"\s*\n\s*", " ", message)))


def unknown(kind: str, given: str, known: Iterable[str]) -> InputError:
    """Return an `InputError` for a name that does not exist, with the nearest names that do, or a few if none is near.

    >>> str(unknown("size", "quik", ["quick", "default", "reduced", "paper"]))
    "There is no size 'quik'; did you mean quick?"
    """
    names = sorted(known)
    if near := nearest(given, names):
        return InputError(f"There is no {kind} {given!r}; did you mean {' or '.join(near)}?")
    more = f" and {len(names) - _NEAREST} more" if len(names) > _NEAREST else ""
    return InputError(f"There is no {kind} {given!r}. Known: {', '.join(names[:_NEAREST])}{more}.")


def nearest(given: str, names: Sequence[str]) -> list[str]:
    """Return names of which a part is the given one, or else begins with it, or else the most similar ones, if any.

    >>> nearest("figure-2", ["gradual-rank/figure-2", "gradual-rank/figure-20", "deep-relu/figure-2"])
    ['gradual-rank/figure-2', 'deep-relu/figure-2']
    >>> nearest("gradual", ["gradual-rank/figure-2", "deep-relu/figure-2"])
    ['gradual-rank/figure-2']
    """
    whole = [name for name in names if given in name.split("/")]
    begun = [name for name in names if given and any(part.startswith(given) for part in (name, *name.split("/")))]
    return (whole or begun)[:_NEAREST] or get_close_matches(given, names, cutoff=0.5)


_WITHOUT = {
    "torch": "the tracker, spectra of checkpoints and LoRA cannot be used",
    "jax": "predictions and flows cannot be used",
    "language": "GPT-2, tokenizers, the callback of Transformers' Trainer and adapters of PEFT cannot be used",
    "papers": "not every entry can be run",
    "explore": "the live page cannot be served",
    "sweep": "sweeps run on this machine only",
    "tensorboard": "event files cannot be read, other logs can",
}
_PACKAGES = {  # of the extras, by their import names
    "torch": ("PyTorch", "torch"),
    "safetensors": ("Safetensors", "torch"),
    "plotly": ("Plotly", "papers"),
    "sklearn": ("scikit-learn", "papers"),
    "jax": ("JAX", "jax"),
    "equinox": ("Equinox", "jax"),
    "diffrax": ("Diffrax", "jax"),
    "optimistix": ("Optimistix", "jax"),
    "clarabel": ("Clarabel", "jax"),
    "transformers": ("Transformers", "language"),
    "tokenizers": ("Tokenizers", "language"),
    "accelerate": ("Accelerate", "language"),
    "peft": ("PEFT", "language"),
    "distributed": ("distributed", "sweep"),
    "starlette": ("Starlette", "explore"),
    "uvicorn": ("uvicorn", "explore"),
    "tensorboard": ("TensorBoard", "tensorboard"),
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
    @contextmanager
    def named(cls, part: str, extra: str | None = None) -> Iterator[None]:
        """Raise this error for a failed import of a package of an extra, with the part of the package that needs it.

        Args:
            part: what needs the package.
            extra: the extra to install, where the part needs more than that package; None: the package's own.
        """
        try:
            yield
        except ImportError as error:
            of_extra = (error.package, error.extra) if isinstance(error, cls) else None
            found = of_extra or _PACKAGES.get((error.name or "").partition(".")[0])
            if found is None:
                raise
            raise cls(part, found[0], extra or found[1]) from error


class StorageError(InputError):
    """A folder cannot be written, or its disk is full."""


class BusyError(InputError):
    """Another process is working on the same run."""


class FlowError(RuntimeError):
    """A run that ended early, or whose result cannot be trusted.

    Attributes:
        result: what was computed until then; `result.status` says what happened.
    """

    def __init__(self, result: Any) -> None:
        super().__init__(self._message(result))
        self.result = result

    @staticmethod
    def _message(result: Any) -> str:
        return str(result.status)
