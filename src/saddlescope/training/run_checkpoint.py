"""Checkpoints of training runs: state files that only their own run reads."""

import hashlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope._shared.output_paths import require_writable_file
from saddlescope.ranks.state_files import read_state, write_state

_PAUSE = 50  # times as long as the last checkpoint took to write: writing takes at most 2 % of the time


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
