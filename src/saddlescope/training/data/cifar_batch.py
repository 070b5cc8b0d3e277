"""Batches of CIFAR in their official files, which are pickles; nothing that a pickle names is ever called.

A pickle is a program: an array is pickled as "call `_reconstruct` on `ndarray`, call `dtype`, then set their state".
Here those three names resolve to a class that records what it is given, and the images are built from their bytes;
every other name is an error. So neither NumPy's own unpickling (whose `__setstate__` trusts its arguments) nor any
other importable object can be reached.
"""

import io
import pickle
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8

from saddlescope._shared.errors import InputError
from saddlescope.ranks.pickle_scan import require_plain

_VALUES = 3 * 32 * 32  # of an image
_ADMITTED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),  # NumPy 1, all official files
    ("numpy._core.multiarray", "_reconstruct"),  # NumPy 2
}


class _Recorded:
    """Result of a call that a pickle asks for: its arguments, and the state set afterwards."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Unpickler that admits four names, none of which does anything."""

    def find_class(self, module: str, name: str, /) -> type[_Recorded]:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no data file needs")
        return _Recorded

    def persistent_load(self, pid: object, /) -> object:
        raise pickle.UnpicklingError("it asks for an object stored elsewhere")


def read_batch(content: bytes, name: str, key: str) -> tuple[UInt8[np.ndarray, "n 3 32 32"], Int64[np.ndarray, " n"]]:
    """Return images and labels of a batch; a row is 1,024 red, then green, then blue pixels, row by row.

    Args:
        content: the complete pickle, of Python 2 or 3.
        name: name for error messages, such as the file's path.
        key: name of the labels in the batch.

    Raises:
        InputError: the pickle is damaged or truncated, asks for anything but arrays, or is not such a batch.
    """
    try:
        require_plain(content)
        batch = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise InputError(
            f"{name} must be a complete pickle of NumPy arrays, lists, dicts, strings and numbers; got one that cannot "
            f"be read ({str(error) or type(error).__name__}), and nothing in it was executed. Fetch the file again."
        ) from error
    items = batch.items() if isinstance(batch, dict) else ()
    entries = {entry.decode("latin1") if isinstance(entry, bytes) else entry: value for entry, value in items}
    images, labels = _pixels(entries.get("data")), entries.get(key)
    if images is None:
        raise InputError(f"{name} must hold 'data', bytes of shape (n, {_VALUES}). Fetch the official file again.")
    if not (isinstance(labels, list) and all(type(label) is int for label in labels)):
        raise InputError(f"{name} must hold '{key}', a list of integers. Fetch the official file again.")
    if len(labels) != len(images):
        raise InputError(f"{name} must have one label per image; got {len(images)} images and {len(labels)} labels.")
    return images.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def _pixels(array: object) -> UInt8[np.ndarray, "n 3072"] | None:
    """Return an array of bytes from what its pickle recorded, or None if it is anything else."""
    match array:
        case _Recorded(
            state=(_, (int(count), int(values)), _Recorded(arguments=("u1" | b"u1", *_)), bool(fortran), bytes(content))
        ) if values == _VALUES and len(content) == count * values:
            return np.frombuffer(content, np.uint8).reshape(count, values, order="F" if fortran else "C")
    return None
