"""The one checkpoint file of a run: only ever its own, and written so seldom that it takes 2 % of the time at most."""

import hashlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.train import run_snapshot

_PAUSE = 50  # times as long as the last checkpoint took to write: writing takes at most 2 % of the time


class Checkpointer:
    """Reads and writes the checkpoint of one run.

    Args:
        path: the file; None keeps nothing and finds nothing.
        identity: what makes this run this run, by name; called once, when the file is first read, so before the first
            step. A checkpoint of another run is never used.
        cure: what to do about a checkpoint of another run, as the end of the error's message.
    """

    def __init__(self, path: Path | str | None, identity: Callable[[], dict[str, str]], *, cure: str) -> None:
        self._path = None if path is None else Path(path)
        self._make_identity, self._cure = identity, cure
        self._identity: dict[str, str] = {}
        self._kept_at, self._keeping = -math.inf, 0.0  # when the last checkpoint was written, and how long it took

    def read(self) -> dict[str, Any] | None:
        """What was kept, or None where nothing was.

        Raises:
            InputError: the file is damaged, or of another run.
        """
        if self._path is None:
            return None
        self._identity = self._make_identity()
        state = run_snapshot.read(self._path)
        if state is None:
            return None
        theirs = state.pop("identity", {})
        if different := [part for part, ours in self._identity.items() if theirs.get(part) != ours]:
            raise InputError(
                f"checkpoint must belong to this very run; got {str(self._path)!r}, which differs in "
                f"{' and '.join(different)}. {self._cure}"
            )
        return state

    def write(self, state: dict[str, Any]) -> None:
        """Keeps a state, in place of the former one; `read` comes first.

        Raises:
            InputError: the folder cannot be written to, or is full.
        """
        if self._path is None:
            return
        began = time.monotonic()
        run_snapshot.write(self._path, {"identity": self._identity, **state})
        self._kept_at = time.monotonic()
        self._keeping = self._kept_at - began

    def rested(self) -> bool:
        """Whether there is a file to keep, written so long ago that writing takes at most 2 % of the time."""
        return self._path is not None and time.monotonic() - self._kept_at >= _PAUSE * self._keeping


def fingerprint(model: nn.Module) -> str:
    """SHA-256 of all weights and buffers, with their names, shapes and types."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(repr((name, tuple(tensor.shape), str(tensor.dtype))).encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
