"""JAX's float64 mode, in which everything near a saddle is computed."""

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")


def in_float64(function: Callable[_Arguments, _Returned]) -> Callable[_Arguments, _Returned]:
    """Decorate a function that computes in JAX's float64 mode, whichever mode its caller is in.

    Near a saddle, rounding seeds directions that should still be tiny: float32 would silently end plateaus early.

    JAX 0.10 hands an array of NumPy that a compiled function has closed over in one mode to programs in the other, too,
    as long as that function is kept. Those compiled for a caller in float32 mode are therefore released.
    """

    @wraps(function)
    def computed(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Returned:
        import jax

        from saddlescope._shared.compiled_functions import forget

        if jax.numpy.result_type(float) == "float64":  # the mode of the caller
            return function(*arguments, **named)
        try:
            with jax.enable_x64(True):
                return function(*arguments, **named)
        finally:
            forget()
            gc.collect()

    return computed
