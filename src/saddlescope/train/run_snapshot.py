"""Snapshots of a run on disk: written whole or not at all, checked by their digest, read without trusting them.

The file is one line that says what it is, 32 bytes of SHA-256, then the payload as `torch.save` writes it. The digest
is there because PyTorch's reader does not look at the checksums of its own format: a flipped bit would pass unseen.
"""

import contextlib
import hashlib
import io
import os
from pathlib import Path
from typing import Any

import torch

from saddlescope._shared.errors import InputError

_HEADER = b"saddlescope snapshot 1\n"


def write(path: Path, state: dict[str, Any]) -> None:
    """Writes the snapshot beside its place, forces it to disk, then moves it there in one step.

    Whatever happens meanwhile, be it SIGKILL or a full disk, `path` holds the former snapshot or the new one, whole.

    Args:
        path: where to; its folder is made when absent.
        state: tensors, numbers, strings, and lists and dicts of them.

    Raises:
        InputError: the folder cannot be written to, or is full.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getbuffer()
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(_HEADER)
            file.write(hashlib.sha256(payload).digest())
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise InputError(
            f"checkpoint must be a file that can be written; got {str(path)!r} ({error.strerror or error}). Make room "
            "or choose another folder; an earlier checkpoint there is untouched."
        ) from error


def _sync_folder(folder: Path) -> None:
    """Forces the move itself to disk, where the system can open folders (not on Windows)."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read(path: Path) -> dict[str, Any] | None:
    """The snapshot, or None where there is none yet. Nothing in the file is executed (`weights_only=True`).

    Raises:
        InputError: the file is damaged, or no snapshot.
    """
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise OSError("not a file")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"checkpoint must be a readable file; got {str(path)!r} ({error.strerror or error})."
        ) from error
    start = len(_HEADER) + 32
    digest, payload = content[len(_HEADER) : start], memoryview(content)[start:]
    if not content.startswith(_HEADER) or hashlib.sha256(payload).digest() != digest:
        raise InputError(
            f"checkpoint must be a whole checkpoint of saddlescope; got {str(path)!r}, which is damaged or something "
            "else. Delete it to start this run again, or name another file."
        )
    try:
        return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception as error:  # the digest is right: it was forged, or written by a PyTorch this one cannot read
        raise InputError(
            f"checkpoint must be readable by this PyTorch ({torch.__version__}); got {str(path)!r}: {error}. Delete it "
            "to start this run again, or use the PyTorch that wrote it."
        ) from error
