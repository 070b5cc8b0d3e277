"""Reader of untrusted pickles of arrays: nothing that the pickle names is ever called.

CIFAR's official files are pickles, and a pickle is a program. An array is pickled as "call `_reconstruct` on `ndarray`,
call `dtype`, then set their state". Here those three names resolve to classes of this module, which record what they
are given, and the array is built from its bytes; every other name is an error. So neither NumPy's own unpickling
(whose `__setstate__` trusts its arguments), nor object arrays, nor any other importable object can be reached.
"""

import io
import math
import pickle
from typing import Any

import numpy as np

from saddlescope._shared.errors import InputError
from saddlescope.ranks.pickle_scan import require_plain

_AXES = 32  # of an array, as many as every version of NumPy admits
_LONGEST = 2**63  # lengths of axes are below
_TYPES = {"b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"}


class _Named:
    """Substitute for a class that a pickle names: it records the arguments and the state that it is given."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Ndarray(_Named):
    """`numpy.ndarray`, which is only passed on."""


class _Dtype(_Named):
    """`numpy.dtype`, called with a code such as "u1"; its state has the byte order."""


class _Array(_Named):
    """Result of `_reconstruct`; its state has shape, dtype and content."""

    def read(self) -> np.ndarray:
        """Return the array; a state of another form raises anything."""
        (kind, *_), (_, shape, dtype, fortran, content) = self.arguments, self.state
        if kind is not _Ndarray or not isinstance(dtype, _Dtype):
            raise pickle.UnpicklingError("what is no plain NumPy array is not admitted")
        (code, *_), (_, order, *structure) = dtype.arguments, dtype.state
        code, order = (one.decode("ascii") if isinstance(one, bytes) else one for one in (code, order))
        plain = order in {"|", "<", ">", "="} and all(part is None for part in structure[:3])
        if code not in _TYPES or not plain or not isinstance(content, bytes):
            raise pickle.UnpicklingError(f"arrays of dtype {code!r} are not admitted")
        sizes = shape if isinstance(shape, tuple) and len(shape) <= _AXES else (None,)
        if not all(isinstance(size, int) and 0 <= size < _LONGEST for size in sizes):
            raise pickle.UnpicklingError("an array has no shape of a few axes")
        stored = np.dtype(order + code)
        if len(content) != math.prod(shape) * stored.itemsize:
            raise pickle.UnpicklingError(f"an array of shape {shape!r} has {len(content)} bytes")
        return np.frombuffer(content, stored).reshape(shape, order="F" if fortran else "C")


_ADMITTED: dict[tuple[str, str], type[_Named]] = {
    ("numpy", "ndarray"): _Ndarray,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _Array,  # NumPy 1, all official files
    ("numpy._core.multiarray", "_reconstruct"): _Array,  # NumPy 2
}


class _Unpickler(pickle.Unpickler):
    """Unpickler that admits four names, none of which does anything."""

    def find_class(self, module: str, name: str, /) -> type[_Named]:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no data file needs")
        return _ADMITTED[module, name]

    def persistent_load(self, pid: object, /) -> object:
        raise pickle.UnpicklingError("it asks for an object stored elsewhere")


def _plain(value: Any, done: dict[int, Any]) -> Any:
    """Replace recorded arrays by their NumPy arrays; only plain containers and scalars are admitted.

    `done` holds replaced values by identity: a pickle that repeats one list a billion times is traversed once.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if id(value) not in done:
        if isinstance(value, _Array):
            done[id(value)] = value.read()
        elif isinstance(value, dict):
            done[id(value)] = {_plain(key, done): _plain(item, done) for key, item in value.items()}
        elif isinstance(value, list | tuple):
            done[id(value)] = type(value)(_plain(item, done) for item in value)
        else:
            raise pickle.UnpicklingError(f"it holds a {type(value).__name__}")
    return done[id(value)]


def unpickle(content: bytes, name: str) -> Any:
    """Load a pickle of arrays, lists, tuples, dicts, strings, bytes and numbers.

    Nothing that the pickle names is imported or called. Python 2 strings arrive as bytes, as with `encoding="bytes"`.

    Args:
        content: the complete pickle.
        name: name for error messages, such as the file's path.

    Raises:
        InputError: the pickle is damaged or truncated, or holds or asks for anything else.

    >>> unpickle(pickle.dumps({"labels": [3, 5], "data": np.arange(4, dtype=np.uint8)}), "a batch")
    {'labels': [3, 5], 'data': array([0, 1, 2, 3], dtype=uint8)}
    """
    try:
        require_plain(content)
        loaded = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        return _plain(loaded, {})
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise InputError(
            f"{name} must be a complete pickle of NumPy arrays, lists, dicts, strings and numbers; got one that cannot "
            f"be read ({str(error) or type(error).__name__}), and nothing in it was executed. Fetch the file again."
        ) from error
