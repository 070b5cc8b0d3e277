"""Files of states of PyTorch: written atomically and verified by digest.

A file is one line that names the format, 32 bytes of SHA-256, then the payload of `torch.save`. The digest is needed
because PyTorch does not verify the checksums of its own format: a flipped bit would pass unseen.
"""

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from saddlescope._shared.atomic_files import write_atomically
from saddlescope._shared.errors import InputError

_HEADER = b"saddlescope snapshot 1\n"
_START = len(_HEADER) + 32  # of the payload


class OldStateError(InputError):
    """State in a format that this version of saddlescope does not read."""


@contextmanager
def damage_refused(tracker: object) -> Iterator[None]:
    """Raise InputError for what goes wrong inside by values of a state that are of another kind."""
    try:
        yield
    except InputError:
        raise
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        kind = type(tracker).__name__
        raise InputError(f"state must be that of {kind}.state_dict(); got a damaged one ({error}).") from error


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write a state to a file atomically: after a kill or on a full disk, the previous file is intact.

    Args:
        path: the file; its folder is created if absent.
        state: tensors, numbers, strings, and lists, tuples and dicts of them.

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
