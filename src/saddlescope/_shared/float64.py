"""JAX's float64 mode, in which everything near a saddle is computed."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")


def in_float64(function: Callable[_Arguments, _Returned]) -> Callable[_Arguments, _Returned]:
    """Decorate a function that computes in JAX's float64 mode, whichever mode its caller is in.

    Near a saddle, rounding seeds directions that should still be tiny: float32 would silently end plateaus early.
    """

    @wraps(function)
    def computed(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Returned:
        import jax

        with jax.enable_x64(True):
            return function(*arguments, **named)

    return computed
