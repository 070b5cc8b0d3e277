"""Input arrays of `measure`: finite, floating-point, of NumPy, JAX or PyTorch, one library per call, or lists.

Results have the library and device of the input. On the CPU all work is done by NumPy: its loops over small matrices
are the fastest, JAX need not compile, and float64 is available even if JAX has it switched off. On an accelerator the
array's own library does the work, in float64 if it has it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import array_api_compat
import array_api_compat.numpy
import numpy as np

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope.measure.thread_pool import collect, threaded_map

# Largest relative error of rounding a real number to the nearest stored one, by name of the stored type.
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}

_PIECE = 2**19  # entries processed at once on the CPU: they fit into the cache, and memory is bounded
_ACCELERATOR_PIECE = 2**24  # on an accelerator, where each operation costs a launch


@dataclass(frozen=True)
class Stored:
    """Input array with the precision in which it was stored.

    Attributes:
        array: the entries, in float32 or float64, in the library that does the work.
        roundoff: unit roundoff of the type in which the entries were stored.
    """

    array: Any
    roundoff: float


@dataclass(frozen=True)
class Library:
    """Library that does the work, its type, and the conversion of results to the library of the input.

    Attributes:
        xp: the array-API namespace that does the work.
        wide: the type to work in: float64 if `xp` offers it on this device, else float32.
        give_back: function of an array of `xp` to one of the library and device of the input.
    """

    xp: ModuleType
    wide: Any
    give_back: Callable[[Any], Any]


def take(*, axes: int, **arrays: Any) -> tuple[Library, list[Stored]]:
    """Return the named arrays, checked and at least float32, and the library to work with; gradients are dropped.

    Lists are taken as arrays of NumPy in float64.

    Args:
        axes: number of trailing axes that must exist and not be empty: 1 for vectors, 2 for matrices.
        **arrays: input arrays by argument name.

    Raises:
        InputError: no array, arrays of two libraries, a type that is not floating-point, too few axes, NaN or infinity.
    """
    arrays = {name: real_array(name, one) if isinstance(one, list | tuple) else one for name, one in arrays.items()}
    given = " and ".join(arrays)
    kinds = ", ".join(type(array).__name__ for array in arrays.values())
    try:
        if not all(hasattr(array, "dtype") for array in arrays.values()):  # None and numbers
            raise TypeError("no array")
        home = array_api_compat.array_namespace(*arrays.values())
    except TypeError as error:
        wanted = (
            "an array of NumPy, JAX or PyTorch" if len(arrays) == 1 else "arrays of one library (NumPy, JAX, PyTorch)"
        )
        raise InputError(f"{given} must be {wanted}; got {kinds}. Convert with numpy.asarray first.") from error
    stored = [_checked(home, name, array, axes) for name, array in arrays.items()]
    device = array_api_compat.device(stored[0].array)
    if is_cpu(device):
        library = Library(array_api_compat.numpy, np.float64, lambda result: home.asarray(result, device=device))
        stored = [Stored(np.asarray(one.array), one.roundoff) for one in stored]
    else:
        offered = home.__array_namespace_info__().dtypes(device=device, kind="real floating")
        library = Library(home, offered.get("float64", home.float32), lambda result: result)
    for name, one in zip(arrays, stored, strict=True):
        if not bool(library.xp.all(library.xp.isfinite(one.array))):
            raise InputError(f"{name} must be finite; got NaN or infinite entries. Look for the step that diverged.")
    return library, stored


def in_pieces(
    library: Library,
    compute: Callable[..., tuple[Any, ...]],
    matrices: Sequence[Stored],
    *,
    report: Report = silent,
) -> tuple[Any, ...]:
    """Compute over one batch axis, piece by piece, and restore the batch axes and the library of the input.

    On the CPU pieces are computed in parallel; see `saddlescope.measure.thread_pool`.
    """
    xp, batch = library.xp, matrices[0].array.shape[:-2]
    count = math.prod(batch)
    flat = [xp.reshape(one.array, (count, *one.array.shape[-2:])) for one in matrices]
    on_cpu = is_numpy(library)
    step = max(1, entries_at_once(library) // sum(math.prod(X.shape[-2:]) for X in flat))

    def piece(i: int) -> tuple[Any, ...]:
        with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what is not finite
            return compute(*(Stored(X[i : i + step], one.roundoff) for X, one in zip(flat, matrices, strict=True)))

    starts = range(0, max(1, count), step)
    pieces = threaded_map(piece, starts, report) if on_cpu else collect(map(piece, starts), len(starts), report)
    joined = (xp.concat(parts) for parts in zip(*pieces, strict=True))
    return tuple(library.give_back(xp.reshape(one, (*batch, *one.shape[1:]))) for one in joined)


def entries_at_once(library: Library) -> int:
    """Return the number of entries to process at once, which bounds the memory that the work needs."""
    return _PIECE if is_numpy(library) else _ACCELERATOR_PIECE


def is_numpy(library: Library) -> bool:
    """Return True if NumPy does the work."""
    return library.xp is array_api_compat.numpy


def upcast(library: Library, one: Stored) -> Any:
    """Return the array in the type in which the library works."""
    return library.xp.astype(one.array, library.wide, copy=False)


def normalised(xp: ModuleType, X: Any) -> tuple[Any, Any]:
    """Return X divided by its largest entry (1 for the zero matrix), and that entry.

    Raises:
        InputError: an entry is not finite, which only differences of finite matrices can have.
    """
    largest = xp.max(xp.abs(X), axis=(-2, -1), keepdims=True)
    require_finite(xp, largest)
    largest = xp.where(largest > 0, largest, xp.ones_like(largest))
    return X / largest, largest


def require_finite(xp: ModuleType, numbers: Any) -> None:
    """Refuse numbers computed from finite matrices that are beyond their type."""
    if not bool(xp.all(xp.isfinite(numbers))):
        raise InputError(
            f"The matrices must have differences and singular values below {float(xp.finfo(numbers.dtype).max):.2g};"
            " got larger ones. Divide the matrices by their size."
        )


def as_numpy(name: str, given: Any) -> np.ndarray:
    """Return the numbers in NumPy's float64; lists and integers, such as step numbers, are accepted."""
    if isinstance(given, np.ndarray):
        given = real_array(name, given)
    _, (stored,) = take(axes=1, **{name: given})
    return np.asarray(stored.array, dtype=float)


def real_array(name: str, given: Any) -> np.ndarray:
    """Return the numbers in NumPy's float64, NaN and infinity included.

    Raises:
        InputError: other objects, such as complex numbers.
    """
    try:
        if np.iscomplexobj(given):  # of which float would drop the imaginary part
            raise TypeError("complex")
        return np.asarray(given, dtype=float)
    except (TypeError, ValueError) as error:
        shown = f"an array of {given.dtype}" if isinstance(given, np.ndarray) else repr(given)
        raise InputError(f"{name} must be real numbers, in rows of one length; got {shown}.") from error


def is_cpu(device: Any) -> bool:
    """Return True if NumPy can read arrays on this device without a transfer."""
    return getattr(device, "type", getattr(device, "platform", device)) == "cpu"


def _checked(home: ModuleType, name: str, array: Any, axes: int) -> Stored:
    kind = getattr(array.dtype, "name", str(array.dtype).rpartition(".")[2])
    if kind not in UNIT_ROUNDOFF:
        raise InputError(
            f"{name} must be of type {', '.join(UNIT_ROUNDOFF)}; got {kind!r}. Convert it to float32 first."
        )
    if len(array.shape) < axes or 0 in array.shape[len(array.shape) - axes :]:
        shape = ("(..., r)", "(..., m, n)")[axes - 1]
        raise InputError(f"{name} must have shape {shape} with no trailing axis empty; got {tuple(array.shape)!r}.")
    if np.ma.is_masked(array):
        raise InputError(f"{name} must have no masked entries; got some. Fill or remove them first.")
    if array_api_compat.is_torch_array(array) and (array.is_meta or str(array.layout) != "torch.strided"):
        raise InputError(f"{name} must be dense and hold its numbers; got a meta or sparse tensor. Call to_dense().")
    array = array.detach() if hasattr(array, "detach") else array
    if kind in ("float16", "bfloat16"):
        array = home.astype(array, home.float32)
    return Stored(array, UNIT_ROUNDOFF[kind])
