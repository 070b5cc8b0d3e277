"""Reader of untrusted pickles of arrays: nothing that the pickle names is ever called.

CIFAR's official files are pickles, and a pickle is a program. An array is pickled as "call `_reconstruct` on `ndarray`,
call `dtype`, then set their state". Here those three names resolve to inert recorders of this module, which build
the array from its bytes; every other name is an error. So neither NumPy's own unpickling (whose `__setstate__` trusts
its arguments), nor object arrays, nor any other importable object can be reached.
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


class _Recorder:
    """Object that a pickle may name. It has no attributes to set and rejects any state unless overridden."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("a pickle may not change what it names")


class _ArrayType(_Recorder):
    """Substitute for `numpy.ndarray`, which an array's pickle only passes on."""

    __slots__ = ()


class _Dtype(_Recorder):
    """Recorded `numpy.dtype`: a code such as "u1", and the byte order once its state is set."""

    __slots__ = ("code", "order")

    def __init__(self, code: object) -> None:
        text = code.decode("ascii") if isinstance(code, bytes) else str(code)
        if text not in {"b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"}:
            raise pickle.UnpicklingError(f"arrays of dtype {text!r} are not admitted")
        self.code = text
        self.order = "|"

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        if order not in {"|", "<", ">", "="} or any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("arrays of structured dtypes are not admitted")
        self.order = order

    def numpy(self) -> np.dtype:
        return np.dtype(self.order + self.code)


class _DtypeMaker(_Recorder):
    """Substitute for `numpy.dtype`: called with a code and two flags, records the code."""

    __slots__ = ()

    def __call__(self, code: object, *flags: object) -> _Dtype:
        return _Dtype(code)


class _Array(_Recorder):
    """Recorded array; `value` exists once its state is set."""

    __slots__ = ("value",)

    value: np.ndarray

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        if not isinstance(dtype, _Dtype) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("arrays of objects are not admitted")
        if not isinstance(shape, tuple) or len(shape) > _AXES:
            raise pickle.UnpicklingError("an array has no shape of a few axes")
        if not all(isinstance(size, int) and 0 <= size < _LONGEST for size in shape):
            raise pickle.UnpicklingError("an array has lengths that are none")
        if len(content) != math.prod(shape) * dtype.numpy().itemsize:
            raise pickle.UnpicklingError(f"an array of shape {shape!r} has {len(content)} bytes")
        self.value = np.frombuffer(content, dtype.numpy()).reshape(shape, order="F" if fortran else "C")


class _ArrayMaker(_Recorder):
    """Substitute for `numpy.core.multiarray._reconstruct`: returns an array without state."""

    __slots__ = ()

    def __call__(self, kind: object, *arguments: object) -> _Array:
        if not isinstance(kind, _ArrayType):
            raise pickle.UnpicklingError("only plain NumPy arrays are admitted")
        return _Array()


_ADMITTED: dict[tuple[str, str], _Recorder] = {
    ("numpy", "ndarray"): _ArrayType(),
    ("numpy", "dtype"): _DtypeMaker(),
    ("numpy.core.multiarray", "_reconstruct"): _ArrayMaker(),  # NumPy 1, all official files
    ("numpy._core.multiarray", "_reconstruct"): _ArrayMaker(),  # NumPy 2
}


class _Unpickler(pickle.Unpickler):
    """Unpickler that admits four names, none of which does anything."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no data file needs")
        return _ADMITTED[module, name]

    def persistent_load(self, pid: Any, /) -> Any:
        raise pickle.UnpicklingError("it asks for an object stored elsewhere")


def _plain(value: Any, done: dict[int, Any]) -> Any:
    """Replace recorded arrays by their NumPy arrays; only plain containers and scalars are admitted.

    `done` holds replaced values by identity: a pickle that repeats one list a billion times is traversed once.
    """
    if id(value) in done:
        return done[id(value)]
    if isinstance(value, _Array):
        plain: Any = value.value
    elif isinstance(value, dict):
        plain = {_plain(key, done): _plain(item, done) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        plain = type(value)(_plain(item, done) for item in value)
    elif value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    else:
        raise pickle.UnpicklingError(f"it holds a {type(value).__name__}")
    done[id(value)] = plain
    return plain


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
