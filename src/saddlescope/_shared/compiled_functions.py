"""Compilation of functions that take a user's loss, with compiled code that is released.

A loss that is an Equinox module is compiled once for all arrays of one shape. Each new closure is compiled again; its
code takes a few megabytes, and JAX never releases it. Here the compiled code of all functions is dropped when more
than a number of different losses have been compiled: memory stays bounded however many closures a program makes. Of
functions that compile a whole run, each shape counts, too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from threading import Lock
from typing import Any, TypeVar

import equinox as eqx
import jax

MOST = 24
"""Different losses whose compiled code is kept."""

_Function = TypeVar("_Function", bound=Callable[..., Any])

_lock = Lock()
_known: set[Any] = set()  # the static parts of the arguments, by which JAX keeps compiled code
_compiled: list[Any] = []


def compiled_by_shape(function: _Function) -> _Function:
    """Decorate a function that compiles a whole run: like `compiled`, with each shape counted as another loss."""
    return _compiled_function(function, lambda arrays: tuple((array.shape, array.dtype) for array in arrays))


def compiled(function: _Function) -> _Function:
    """Decorate a function like `equinox.filter_jit`, with compiled code that is released.

    Arrays among the arguments, or in their pytrees, are arguments of the compiled code; all else is constant in it, and
    compared by identity where it is not hashable. The function returns a pytree of arrays.
    """
    return _compiled_function(function, lambda _: ())


def _compiled_function(function: _Function, counted: Callable[[list[Any]], tuple[Any, ...]]) -> _Function:
    @partial(jax.jit, static_argnums=(1, 2))
    def run(arrays: list[Any], constants: tuple[Any, ...], structure: Any) -> Any:
        leaves = [_value(one) if two is None else two for one, two in zip(constants, arrays, strict=True)]
        arguments, named = jax.tree.unflatten(structure, leaves)
        return function(*arguments, **named)

    _compiled.append(run)

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        leaves, structure = jax.tree.flatten((arguments, named))
        arrays = [leaf if eqx.is_array(leaf) else None for leaf in leaves]
        constants = tuple(None if eqx.is_array(leaf) else _hashable(leaf) for leaf in leaves)
        _remember((constants, structure, counted([array for array in arrays if array is not None])))
        return run(arrays, constants, structure)

    call.compilations = run._cache_size  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def compiled_for_constants(run: Any) -> Callable[..., Any]:
    """Decorate a function compiled by `jax.jit` for its first two arguments, so that its compiled code is released."""
    _compiled.append(run)

    @wraps(run)
    def call(*arguments: Any) -> Any:
        _remember((run, *arguments[:2]))
        return run(*arguments)

    return call


@dataclass(frozen=True, eq=False)
class _Identified:
    """Constant that is not hashable, such as an object of a class with __eq__ alone."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identified) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _hashable(constant: Any) -> Any:
    try:
        hash(constant)
    except TypeError:
        return _Identified(constant)
    return constant


def _value(constant: Any) -> Any:
    return constant.value if isinstance(constant, _Identified) else constant


def _remember(constants: Any) -> None:
    if constants in _known:
        return
    with _lock:
        if len(_known) >= MOST:
            forget()
        _known.add(constants)


def compilations(function: Callable[..., Any]) -> int:
    """Return the number of compiled versions that are kept of a function decorated here."""
    return function.compilations()  # type: ignore[attr-defined]


def forget() -> None:
    """Release the compiled code of all functions."""
    _known.clear()
    for run in _compiled:
        run.clear_cache()
