"""Compilation of functions that take a user's loss, with compiled code that is released.

A loss that is an Equinox module is compiled once for all arrays of one shape. Each new closure is compiled again; its
code takes a few megabytes, and JAX never releases it. Here the compiled code of all functions is dropped when more
than a number of different losses have been compiled: memory stays bounded however many closures a program makes.

Caches of JAX that no call empties keep the constants of its last 4096 compilations, thus closures with all their data.
JAX is therefore given a `_Key` in place of constants, which finds them for as long as they are kept here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import unwrap
from threading import Lock
from typing import Any, TypeVar
from weakref import ref

import equinox as eqx
import jax
from jax.core import Tracer
from jax.extend.core import Jaxpr

MOST = 24
"""Different losses whose compiled code is kept."""

_Function = TypeVar("_Function", bound=Callable[..., Any])

_QUICK = {
    "xla_cpu_use_fusion_emitters": False,  # these take most of the time, through MLIR, for the same loops
    "xla_cpu_parallel_codegen_split_count": 1,  # one module instead of up to 32 with copies of shared functions
    "xla_backend_optimization_level": 1,  # vectorised, as at 3, without the passes that gain nothing here
}
"""Options of XLA for processors."""

_IN_PLACE = {"xla_cpu_copy_insertion_use_region_analysis": True}  # else each step of a loop copies what it carries

_lock = Lock()
_known: dict[Any, "_Held"] = {}  # by the constants and their kinds
_compiled: list[Any] = []


def compiled(function: _Function) -> _Function:
    """Decorate a function like `equinox.filter_jit`, with compiled code that is released.

    Arrays among the arguments, or in their pytrees, are arguments of the compiled code; all else is constant in it, and
    compared by identity where it is not hashable. The function returns a pytree of arrays.
    """
    return _compiled_function(function)


def quickly_compiled(function: _Function) -> _Function:
    """Decorate a function like `compiled`, for runs that may be shorter than their compilation.

    On a processor, XLA then takes half the time or less to compile; on accelerators nothing changes.
    """
    return _compiled_function(function, _QUICK)


def compiled_in_place(function: _Function) -> _Function:
    """Decorate a function like `compiled`, for long loops that change large arrays.

    On a processor, XLA then changes them where they are instead of copying some in each step.
    """
    return _compiled_function(function, _IN_PLACE)


def _compiled_function(function: _Function, options: dict[str, Any] | None = None) -> _Function:
    def traced(arrays: list[Any], key: "_Key") -> Any:
        constants, structure = key.constants()
        leaves = [_value(one) if two is None else two for one, two in zip(constants, arrays, strict=True)]
        arguments, named = jax.tree.unflatten(structure, leaves)
        return function(*arguments, **named)

    traced.__name__ = function.__name__  # in the logs and profiles of JAX
    run = jax.jit(traced, static_argnums=1) if options is None else _WithOptions(traced, options)
    _compiled.append(run)

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        leaves, structure = jax.tree.flatten((arguments, named))
        arrays = [leaf if eqx.is_array(leaf) else None for leaf in leaves]
        constants = tuple(None if eqx.is_array(leaf) else _hashable(leaf) for leaf in leaves)
        held = _held((constants, structure), tuple(map(_kind, constants)))
        return run(arrays, held.key)

    def bind(first: tuple[Any, ...], count: int) -> Callable[..., Any]:
        leaves, structure = jax.tree.flatten(((*first, *count * [0.0]), {}))
        leaves = leaves[: len(leaves) - count]
        arrays = [leaf if eqx.is_array(leaf) else None for leaf in leaves]
        constants = tuple(None if eqx.is_array(leaf) else _hashable(leaf) for leaf in leaves) + count * (None,)
        held = _held((constants, structure), tuple(map(_kind, constants)))
        return lambda *rest: run([*arrays, *rest], held.key)

    call.bind = bind  # type: ignore[attr-defined]
    call.compilations = run._cache_size  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def bound(function: Callable[..., Any], *first: Any, count: int) -> Callable[..., Any]:
    """Return a function decorated with `compiled` for fixed first arguments, whose calls cost less.

    Args:
        function: the decorated function.
        *first: its first arguments.
        count: number of its other arguments, which must be arrays, of NumPy too.
    """
    return function.bind(first, count)  # type: ignore[attr-defined]


def compiled_for_constants(count: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function of so many hashable constants, and of arrays and numbers, like `quickly_compiled`."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        def traced(arguments: list[Any], key: "_Key") -> Any:
            return function(*key.constants(), *arguments)

        traced.__name__ = function.__name__
        run = _WithOptions(traced, _QUICK)
        _compiled.append(run)

        @wraps(function)
        def call(*arguments: Any) -> Any:
            held = _held(arguments[:count], tuple(map(_kind, arguments[:count])))
            return run(list(arguments[count:]), held.key)

        return call

    return decorated


def eval_shape(function: Callable[..., Any], *arguments: Any) -> Any:
    """Evaluate a function like `equinox.filter_eval_shape`; caches of JAX keep no constant of its arguments."""
    return eqx.filter_eval_shape(*_of_arrays(function, arguments))


def program(function: Callable[..., Any], *arguments: Any) -> Jaxpr:
    """Return the operations of a function of arrays; caches of JAX keep no constant of its arguments."""
    evaluated, arrays = _of_arrays(function, arguments)
    return jax.make_jaxpr(lambda arrays: eqx.filter(evaluated(arrays), eqx.is_array))(arrays).jaxpr


def _of_arrays(
    function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Callable[[list[Any]], Any], list[Any]]:
    """Return a call as a function of the arrays in it alone, and these."""
    leaves, structure = jax.tree.flatten((function, arguments))
    arrays = [leaf if isinstance(leaf, jax.ShapeDtypeStruct) or eqx.is_array(leaf) else None for leaf in leaves]

    def evaluated(arrays: list[Any]) -> Any:
        given = [leaf if array is None else array for leaf, array in zip(leaves, arrays, strict=True)]
        function, arguments = jax.tree.unflatten(structure, given)
        return function(*arguments)

    return evaluated, arrays


def inlined(function: _Function) -> _Function:
    """Return a function without its `equinox.filter_jit`, of which JAX would keep the constants; for compiled code."""
    return unwrap(function)  # type: ignore[return-value]


class _WithOptions:
    """Jitted function of arrays and a key that XLA compiles with options for processors where it knows them."""

    def __init__(self, traced: Callable[..., Any], options: dict[str, Any]) -> None:
        self._plain: Any = jax.jit(traced, static_argnums=1)
        self._special: Any = jax.jit(traced, static_argnums=1, compiler_options=options)
        self._known = True

    def __call__(self, arrays: list[Any], key: "_Key") -> Any:
        traced = any(isinstance(array, Tracer) for array in arrays)  # inside code compiled without options
        if self._known and not traced and jax.default_backend() == "cpu":
            try:
                return self._special(arrays, key)
            except jax.errors.JaxRuntimeError as error:
                if "compile option" not in str(error):
                    raise
                self._known = False  # options of XLA come and go with its versions
                self._special.clear_cache()
        return self._plain(arrays, key)

    def _cache_size(self) -> int:
        return self._plain._cache_size() + self._special._cache_size()

    def clear_cache(self) -> None:
        self._plain.clear_cache()
        self._special.clear_cache()


class _Held:
    """Constants of compiled code, kept until it is released and by calls that run."""

    def __init__(self, constants: tuple[Any, ...]) -> None:
        self.constants = constants
        self.key = _Key(ref(self))


@dataclass(frozen=True, eq=False)
class _Key:
    """Key of constants in the caches of JAX, which must not keep them."""

    held: "ref[_Held]"

    def constants(self) -> tuple[Any, ...]:
        held = self.held()
        assert held is not None, "a call keeps its constants"
        return held.constants


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


def _kind(constant: Any) -> Any:
    """Return what tells equal constants apart: 1 is not compiled like 1.0 or True, nor 0.0 like -0.0."""
    return repr(constant) if isinstance(constant, float | complex) else type(constant)


def _held(constants: tuple[Any, ...], kinds: tuple[Any, ...]) -> _Held:
    held = _known.get((constants, kinds))
    if held is None:
        with _lock:
            if len(_known) >= MOST:
                forget()
            held = _known.setdefault((constants, kinds), _Held(constants))
    return held


def compilations(function: Callable[..., Any]) -> int:
    """Return the number of compiled versions that are kept of a function decorated here."""
    return function.compilations()  # type: ignore[attr-defined]


def forget() -> None:
    """Release the compiled code of all functions."""
    _known.clear()
    for run in _compiled:
        run.clear_cache()
