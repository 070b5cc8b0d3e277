"""Checkpoint files of training runs: written atomically, verified by digest, and used only by their own run.

A file is one line that names the format, 32 bytes of SHA-256, then the payload of `torch.save`. The digest is needed
because PyTorch does not verify the checksums of its own format: a flipped bit would pass unseen.
"""

import hashlib
import io
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from saddlescope._shared.atomic_files import write_atomically
from saddlescope._shared.errors import InputError
from saddlescope._shared.output_paths import require_writable_file

_HEADER = b"saddlescope snapshot 1\n"
_START = len(_HEADER) + 32  # of the payload
_PAUSE = 50  # times as long as the last checkpoint took to write: writing takes at most 2 % of the time


class OldStateError(InputError):
    """State in a format that this version of saddlescope does not read."""


class Checkpointer:
    """Reader and writer of the checkpoint of one run.

    Args:
        path: the file; None disables reading and writing.
        identity: returns the properties that define the run, by name. Called once, when the file is first read, so
            before the first step. A checkpoint of another run is never used.
        cure: instruction that ends the error about a checkpoint of another run.
    """

    def __init__(self, path: Path | str | None, identity: Callable[[], dict[str, str]], *, cure: str) -> None:
        self._path = None if path is None else Path(path)
        self._compute_identity, self._cure = identity, cure
        self._identity: dict[str, str] = {}
        self._written_at, self._duration = -math.inf, 0.0  # of the last checkpoint

    def read(self) -> dict[str, Any] | None:
        """Return the stored state, or None if there is none.

        Raises:
            InputError: the file is damaged, or of another run, or cannot be written.
        """
        if self._path is None:
            return None
        require_writable_file(self._path)
        self._identity = self._compute_identity()
        state = read_state(self._path)
        if state is not None:
            require_same_run(self._path, self._identity, state.pop("identity", {}), self._cure)
        return state

    def write(self, state: dict[str, Any]) -> None:
        """Store a state in place of the previous one. Call `read` first.

        Raises:
            InputError: the folder cannot be written to, or the disk is full.
        """
        if self._path is None:
            return
        began = time.monotonic()
        write_state(self._path, {"identity": self._identity, **state})
        self._written_at = time.monotonic()
        self._duration = self._written_at - began

    def of_another_version(self) -> InputError:
        """Return the error about a checkpoint of this run that another version of saddlescope has written."""
        return InputError(
            f"checkpoint must be of this version of saddlescope; got {str(self._path)!r}, the progress that another "
            "version kept of this run. Delete this file to start afresh, or finish the run with that version."
        )

    def due(self) -> bool:
        """Return True if there is a file to write and writing it now still takes at most 2 % of the time."""
        return self._path is not None and time.monotonic() - self._written_at >= _PAUSE * self._duration


def require_same_run(path: Path, ours: dict[str, str], theirs: dict[str, str], cure: str) -> None:
    """Raise InputError unless a checkpoint has the identity of this run."""
    if different := [part for part, value in ours.items() if theirs.get(part) != value]:
        raise InputError(
            f"checkpoint must belong to this run; got {str(path)!r}, which differs in {' and '.join(different)}. {cure}"
        )


def weights_digest(model: nn.Module) -> str:
    """Return the SHA-256 of all weights and buffers, with their names, shapes and types."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(repr((name, tuple(tensor.shape), str(tensor.dtype))).encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write a state to a file atomically: after a kill or on a full disk, the previous file is intact.

    Args:
        path: the file; its folder is created if absent.
        state: tensors, numbers, strings, and lists and dicts of them.

    Raises:
        InputError: the folder cannot be written to, or the disk is full.
    """
    buffer = io.BytesIO()
    buffer.write(_HEADER.ljust(_START))
    torch.save(state, buffer)
    content = buffer.getbuffer()
    content[len(_HEADER) : _START] = hashlib.sha256(content[_START:]).digest()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        raise InputError(
            f"checkpoint must be a file that can be written; got {str(path)!r} ({error.strerror or error}). Free disk "
            "space or choose another folder; an earlier checkpoint there is intact."
        ) from error


def read_state(path: Path) -> dict[str, Any] | None:
    """Return the state in a file, or None if the file does not exist. Nothing in it is executed (`weights_only=True`).

    Raises:
        InputError: the file is damaged, or not a checkpoint.
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
    digest, payload = content[len(_HEADER) : _START], memoryview(content)[_START:]
    if not content.startswith(_HEADER) or hashlib.sha256(payload).digest() != digest:
        raise InputError(
            f"checkpoint must be a complete checkpoint of saddlescope; got {str(path)!r}, which is damaged or "
            "something else. Delete it to start this run again, or name another file."
        )
    try:
        return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception as error:  # the digest is right: it was forged, or written by a PyTorch this one cannot read
        raise InputError(
            f"checkpoint must be readable by this PyTorch ({torch.__version__}); got {str(path)!r}: {error}. Delete it "
            "to start this run again, or use the PyTorch that wrote it."
        ) from error
