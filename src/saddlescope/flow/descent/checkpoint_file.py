"""Checkpoint of a killed run: named arrays in one file, written atomically, with the fingerprint of the run."""

import dataclasses
import hashlib
import io
from pathlib import Path

import jax
import numpy as np

from saddlescope._shared.atomic_files import write_atomically
from saddlescope._shared.errors import InputError
from saddlescope._shared.npz_files import read_npz
from saddlescope._shared.output_paths import require_writable_file

_RUN = "run"


def fingerprint(*parts: object) -> str:
    """Return a hash of arrays (bytes, shapes, types), of dataclasses by their fields, and of all else by its `repr`."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray | np.generic | jax.Array):
            array = np.ascontiguousarray(part)
            digest.update(repr((array.shape, str(array.dtype))).encode())
            digest.update(array.data)
        elif dataclasses.is_dataclass(part) and not isinstance(part, type):  # their repr is short
            fields = (getattr(part, field.name) for field in dataclasses.fields(part))
            digest.update(fingerprint(type(part).__qualname__, *fields).encode())
        else:
            digest.update(repr(part).encode() + b"\0")
    return digest.hexdigest()


def write(path: Path, run: str, arrays: dict[str, np.ndarray]) -> None:
    """Write a checkpoint atomically: after a kill the old file or the new one is there.

    Args:
        path: the file; its folder is created if absent.
        run: the fingerprint of the run.
        arrays: the state of the run.

    Raises:
        InputError: the file cannot be written; an earlier one stays.
    """
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **(arrays | {_RUN: np.array(run)}))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content.getbuffer())
    except OSError as error:
        raise InputError(
            f"checkpoint must be a file that can be written; got {str(path)!r} ({error.strerror or error}). Make room "
            "or choose another folder; an earlier checkpoint there is untouched."
        ) from error


def read(path: Path, run: str) -> dict[str, np.ndarray] | None:
    """Return the arrays that this run has written, or None if there is no file yet, which can then be written.

    Raises:
        InputError: the file is damaged, or of another run, or cannot be written.
    """
    require_writable_file(path)
    if not path.exists():
        return None
    try:
        arrays = read_npz(path)
        found = str(arrays.pop(_RUN))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"checkpoint must be a complete checkpoint of saddlescope; got {str(path)!r}, which is damaged or another "
            "kind of file. Delete it to start this run again, or name another file."
        ) from error
    if found != run:
        raise InputError(
            f"checkpoint must be of the same run; got {str(path)!r}, of one with another loss, start, seed, learning "
            "rate, batch, number of steps or recorded steps. Name another file, or delete it."
        )
    return arrays
