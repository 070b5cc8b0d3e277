"""What a killed run goes on from: named arrays in one file, written whole or not at all, and known by their run."""

import contextlib
import dataclasses
import hashlib
import io
import os
import zipfile
from pathlib import Path

import numpy as np

from saddlescope._shared.errors import InputError

_RUN = "run"


def fingerprint(*parts: object) -> str:
    """A hash of arrays (bytes, shapes, types), of dataclasses by their fields, and of everything else by its `repr`."""
    digest = hashlib.sha256()
    for part in parts:
        if hasattr(part, "shape"):
            array = np.ascontiguousarray(part)  # type: ignore[arg-type]
            digest.update(repr((array.shape, str(array.dtype))).encode())
            digest.update(array.data)
        elif dataclasses.is_dataclass(part) and not isinstance(part, type):  # their repr is for readers, and short
            fields = (getattr(part, field.name) for field in dataclasses.fields(part))
            digest.update(fingerprint(type(part).__qualname__, *fields).encode())
        else:
            digest.update(repr(part).encode() + b"\0")
    return digest.hexdigest()


def write(path: Path, run: str, arrays: dict[str, np.ndarray]) -> None:
    """Writes beside the place, forces it to disk, then moves it there: a kill leaves the former file or the new one.

    Args:
        path: where to; its folder is made when absent.
        run: the fingerprint of the run.
        arrays: what to keep.

    Raises:
        InputError: the file cannot be written; an earlier one stays.
    """
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **(arrays | {_RUN: np.array(run)}))
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise InputError(
            f"checkpoint must be a file that can be written; got {str(path)!r} ({error.strerror or error}). Make room "
            "or choose another folder; an earlier checkpoint there is untouched."
        ) from error


def read(path: Path, run: str) -> dict[str, np.ndarray] | None:
    """What was written there by this run, or None where there is nothing yet.

    Raises:
        InputError: the file is damaged, or of another run.
    """
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        found = str(arrays.pop(_RUN))
    except (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise InputError(
            f"checkpoint must be a whole checkpoint of saddlescope; got {str(path)!r}, which is damaged or something "
            "else. Delete it to start this run again, or name another file."
        ) from error
    if found != run:
        raise InputError(
            f"checkpoint must be of this very run; got {str(path)!r}, of one with another loss, start, seed, learning "
            "rate, batch, number of steps or marks. Name another file, or delete it."
        )
    return arrays
