"""Validation of the arguments of public functions against their annotations, with one-sentence errors.

A function itself checks the values of its arguments (positive, in order, finite), since it knows their meaning. Here
only their kinds are checked: a number where a number is annotated, an array of real numbers with as many axes, a
function, an object of this package. Python and the libraries below would detect most mistakes too, but later, in their
own words, and some never: NumPy drops the imaginary part of a complex array, reads None as NaN, and takes the letters
of a string as entries.

Shapes and types are checked, never entries, so that a checked function can be traced, differentiated and mapped.
"""

import inspect
import operator
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from numbers import Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from saddlescope._shared.errors import InputError
from saddlescope._shared.memory_limit import exhausted

_LARGEST = 2**63  # whole numbers from here on fit no array's size, no step count and no seed of JAX
_NUMBERS = ("bool", "int", "uint", "float", "bfloat")  # names of stored types that hold real numbers begin so

Sizes = dict[str, int]
"""Axes of annotated arrays by name, such as "n", as the arguments before have bound them."""

Check = Callable[[Any, Sizes], str | None]
"""Function from a value to the kind that it must be of, or to None if it is."""

Checked = TypeVar("Checked", bound=Callable[..., Any])


def validate_arguments(function: Checked) -> Checked:
    """Decorate a function or class so that its arguments must be of the kinds that its annotations name.

    Checked are `int`, `float`, `str`, `bool`, functions, classes of this package, array-likes and arrays of jaxtyping
    (axes by name too), sequences and mappings of these, and unions of all of them; other annotations are ignored.

    Raises:
        InputError: (when called) an argument of another kind.
    """
    if isinstance(function, type):
        function.__init__ = _with_checks(function.__init__)  # type: ignore[method-assign]
        return function  # type: ignore[return-value]
    return typing.cast("Checked", _with_checks(function))


def _with_checks(function: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(function).parameters.values()
    checks = {each.name: check for each in parameters if (check := check_of(each.annotation)) is not None}
    defaults = {each.name: each.default for each in parameters}
    positional = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    variadic = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), "")

    @wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        sizes: Sizes = {}
        given = [*zip(positional, arguments, strict=False), *named.items()]
        given += [(variadic, value) for value in arguments[len(positional) :]]
        for name, value in given:
            check = checks.get(name)
            if check is None or value is defaults[name]:
                continue
            wanted = check(value, sizes)
            if wanted is not None:
                raise InputError(f"{name} must be {wanted}; got {shown(value)}.")
        try:
            return function(*arguments, **named)
        except MemoryError as error:
            raise exhausted(error) or error from error

    return checked


def require(name: str, value: Any, annotation: Any) -> None:
    """Raise InputError unless a value is of the kind of an annotation, where no checked function receives it.

    Raises:
        InputError: it is of another kind.
    """
    check = check_of(annotation)
    wanted = None if check is None else check(value, {})
    if wanted is not None:
        raise InputError(f"{name} must be {wanted}; got {shown(value)}.")


@contextmanager
def calling(requirement: str, cure: str = "") -> Iterator[None]:
    """Name the requirement that a function of the user's fails to meet where tracing it raises an error.

    Raises:
        InputError: an error of the kinds that wrong shapes, types or names raise; our own errors pass.
    """
    try:
        yield
    except InputError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        first = (str(error).strip().split("\n") or [""])[0]
        raise InputError(f"{requirement}; got {first!r}. {cure}".strip()) from error


def require_samples_as_rows(name: str, data: Any, other: str, more: Any) -> None:
    """Raise unless two matrices have equally many rows, one per sample.

    Args:
        name: of the first matrix in the error.
        data: the first matrix.
        other: of the second matrix in the error.
        more: the second matrix.

    Raises:
        InputError: their numbers of rows differ; the error names the transpose that would match.
    """
    rows, columns = data.shape
    if len(more) == rows:
        return
    cure = ""
    if more.shape[1] == columns:
        cure = f" Pass `{name}.T` and `{other}.T`."
    elif len(more) == columns:
        cure = f" Pass `{name}.T`."
    elif more.shape[1] == rows:
        cure = f" Pass `{other}.T`."
    raise InputError(
        f"{other} must have a row per sample, as many as {name}; got shapes {more.shape!r} and {data.shape!r}.{cure}"
    )


def is_real(value: Any) -> bool:
    """Return True for an array of real numbers, or its shape and type."""
    return hasattr(value, "dtype") and hasattr(value, "shape") and _stored_type(value).startswith(_NUMBERS)


def shown(value: Any) -> str:
    """Return a value for a sentence: an array by shape and type, anything else by its repr, cut to 80 characters."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"an array of shape {tuple(value.shape)!r} and type {_stored_type(value)}"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a foreign object's own fault, which must not hide ours
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def check_of(annotation: Any) -> Check | None:
    """Return the check of an annotation; None where everything passes."""
    for kind, check in _PLAIN.items():
        if annotation is kind:
            return check
    if hasattr(annotation, "dim_str") and hasattr(annotation, "dtypes"):
        return _of_shape(annotation.dim_str)
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return check_of(inner[0])
    if origin in (typing.Union, types.UnionType):
        return _one_of(_alternatives(inner))
    if origin is Callable or annotation is Callable:
        return _function
    if origin in (tuple, list, Sequence, Iterable):
        entries = [check_of(each) for each in inner if each is not Ellipsis]
        same = origin is not tuple or Ellipsis in inner
        return _row(entries[0] if same else entries)
    if origin in (dict, Mapping):
        return lambda value, _: None if isinstance(value, Mapping) else "a mapping"
    if inspect.isclass(annotation) and annotation.__module__.partition(".")[0] == "saddlescope":
        if getattr(annotation, "_is_protocol", False):
            return _offering(sorted(name for name in vars(annotation) if not name.startswith("_")))
        return None if inspect.isabstract(annotation) else _instance(annotation)
    return None


def _number(value: Any, _: Sizes) -> str | None:
    fits = isinstance(value, Real) or (is_real(value) and value.shape == ())
    return None if fits else "a number"


def _whole(value: Any, _: Sizes) -> str | None:
    try:
        return None if abs(operator.index(value)) < _LARGEST else "a whole number below 2^63 in size"
    except TypeError:
        traced = is_real(value) and value.shape == () and "int" in _stored_type(value)  # has no value yet
        return None if traced else "a whole number"


def _text(value: Any, _: Sizes) -> str | None:
    return None if isinstance(value, str) else "a string"


def _switch(value: Any, _: Sizes) -> str | None:
    fits = isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1))
    return None if fits else "True or False"


def _function(value: Any, _: Sizes) -> str | None:
    return None if callable(value) else "a function"


def _nothing(value: Any, _: Sizes) -> str | None:
    return None if value is None else "None"


def _array_like(value: Any, _: Sizes) -> str | None:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return None if is_real(value) else "an array of real numbers"
    try:
        kind = np.asarray(value).dtype.kind
    except (TypeError, ValueError):  # rows of unequal length
        kind = ""
    return None if kind in {"b", "i", "u", "f"} else "an array of real numbers"


_PLAIN: dict[Any, Check] = {int: _whole, float: _number, str: _text, bool: _switch}


def _stored_type(array: Any) -> str:
    return str(array.dtype).rpartition(".")[2]


def _instance(wanted: type) -> Check:
    article = "an" if wanted.__name__[0] in "AEIOU" else "a"

    def check(value: Any, _: Sizes) -> str | None:
        return None if isinstance(value, wanted) else f"{article} {wanted.__name__}"

    return check


def _offering(members: Sequence[str]) -> Check | None:
    """Return a check that passes objects with all members of a protocol."""

    def check(value: Any, _: Sizes) -> str | None:
        fits = all(hasattr(value, name) for name in members)
        return None if fits else f"an object with {', '.join(members)}"

    return check if members else None


def _one_of(checks: Sequence[Check | None]) -> Check | None:
    """Return a check that passes what one of the checks passes."""
    known = [check for check in checks if check is not None]
    if len(known) < len(checks):
        return None

    def check(value: Any, sizes: Sizes) -> str | None:
        wanted: list[str] = []
        for each in known:
            kind = each(value, sizes)
            if kind is None:
                return None
            if kind not in wanted:
                wanted.append(kind)
        return " or ".join(wanted)

    return check


def _row(entry: Check | Sequence[Check | None] | None) -> Check:
    """Return a check that passes sequences: of as many entries as there are checks, or of entries of one kind."""

    def check(value: Any, sizes: Sizes) -> str | None:
        if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__") or _is_scalar(value):
            return "a sequence"
        if not hasattr(value, "__len__"):  # an iterator, which a check would use up
            return None
        if isinstance(entry, Sequence) and len(value) != len(entry):
            return f"a sequence of {len(entry)}"
        for index, each in enumerate(value):
            one = entry[index] if isinstance(entry, Sequence) else entry
            wanted = None if one is None else one(each, sizes)
            if wanted is not None:
                return f"a sequence with {wanted} at {index}"
        return None

    return check


def _is_scalar(value: Any) -> bool:
    return getattr(value, "shape", None) == ()


def _of_shape(axes: str) -> Check:
    """Return a check that passes arrays of real numbers with these axes; equal names mean equal lengths."""
    named = axes.split()
    free = [place for place, axis in enumerate(named) if axis == "..." or axis.startswith("*")]
    least = len(named) - len(free)
    count = f"{least or 'any number of'}{' or more' if free and least else ''}"
    wanted = "an array of 1 axis" if count == "1" else f"an array of {count} axes"

    def check(value: Any, sizes: Sizes) -> str | None:
        if not is_real(value):
            return "an array of real numbers"
        shape = tuple(value.shape)
        if len(shape) < least or (not free and len(shape) > least):
            return f"{wanted}, ({', '.join(named)})"
        if len(free) > 1:
            return None
        middle = free[0] if free else len(named)
        tail = named[middle + 1 :] if free else []
        pairs = [*zip(named[:middle], shape, strict=False), *zip(tail, shape[len(shape) - len(tail) :], strict=True)]
        for axis, length in pairs:
            expected = int(axis) if axis.isdigit() else sizes.get(axis, length)
            if expected != length:
                return f"an array of shape ({', '.join(named)}) with {axis} = {expected}"
            if axis.isidentifier() and axis != "_":
                sizes[axis] = length
        return None

    return check


def _alternatives(members: Sequence[Any]) -> list[Check | None]:
    """Return the checks of a union's members; an array-like, itself a union, counts as one member."""
    jax = getattr(sys.modules.get("jax"), "typing", None)  # with its own name for them, where it is loaded
    for likes in (set(typing.get_args(ArrayLike)), set(typing.get_args(getattr(jax, "ArrayLike", None)))):
        if likes and likes <= set(members):
            return [_array_like, *_alternatives([each for each in members if each not in likes])]
    return [_nothing if each is type(None) else check_of(each) for each in members]
