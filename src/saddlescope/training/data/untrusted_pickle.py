"""Reader of untrusted pickles of arrays: nothing that the pickle names is ever called.

CIFAR's official files are pickles, and a pickle is a program. An array is pickled as "call `_reconstruct` on `ndarray`,
call `dtype`, then set their state". Here those three names resolve to inert classes of this module, which record what
they are given and build the array from its bytes; every other name is an error. So neither NumPy's own unpickling
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


class _Inert:
    """Class that a pickle may name, by itself the substitute for `numpy.ndarray`, which is only passed on.

    It has no attributes to set and rejects any state unless overridden.
    """

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("a pickle may not change what it names")


class _Dtype(_Inert):
    """Recorded `numpy.dtype`: a code such as "u1", and the byte order once its state is set."""

    __slots__ = ("code", "order")

    def __init__(self, code: object, *_flags: object) -> None:
        self.code, self.order = code.decode("ascii") if isinstance(code, bytes) else str(code), "|"
        if self.code not in _TYPES:
            raise pickle.UnpicklingError(f"arrays of dtype {self.code!r} are not admitted")

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        if order not in {"|", "<", ">", "="} or any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("arrays of structured dtypes are not admitted")
        self.order = order


class _Array(_Inert):
    """Recorded array, made by `_reconstruct`; `value` exists once its state is set."""

    __slots__ = ("value",)

    def __init__(self, kind: object, *_placeholders: object) -> None:
        if kind is not _Inert:
            raise pickle.UnpicklingError("only plain NumPy arrays are admitted")

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        if not isinstance(dtype, _Dtype) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("arrays of objects are not admitted")
        if not isinstance(shape, tuple) or len(shape) > _AXES:
            raise pickle.UnpicklingError("an array has no shape of a few axes")
        if not all(isinstance(size, int) and 0 <= size < _LONGEST for size in shape):
            raise pickle.UnpicklingError("an array has lengths that are none")
        stored = np.dtype(dtype.order + dtype.code)
        if len(content) != math.prod(shape) * stored.itemsize:
            raise pickle.UnpicklingError(f"an array of shape {shape!r} has {len(content)} bytes")
        self.value = np.frombuffer(content, stored).reshape(shape, order="F" if fortran else "C")


_ADMITTED: dict[tuple[str, str], type[_Inert]] = {
    ("numpy", "ndarray"): _Inert,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _Array,  # NumPy 1, all official files
    ("numpy._core.multiarray", "_reconstruct"): _Array,  # NumPy 2
}


class _Unpickler(pickle.Unpickler):
    """Unpickler that admits four names, none of which does anything."""

    def find_class(self, module: str, name: str, /) -> type[_Inert]:
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
            done[id(value)] = value.value
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
