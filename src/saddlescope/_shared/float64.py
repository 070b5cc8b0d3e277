"""The float64 guard: one check and one sentence for every JAX computation that needs double precision."""

from saddlescope._shared.errors import InputError


def require_float64(what: str) -> None:
    """Raise unless JAX computes in float64.

    Near a saddle, rounding seeds directions that should still be tiny: float32 would silently end plateaus early.

    Args:
        what: name of the function or quantity that needs float64, as the subject of the error.

    Raises:
        InputError: JAX is in its default single precision.
    """
    import jax.numpy as jnp

    if jnp.result_type(float) != jnp.float64:
        raise InputError(
            f"{what} must be computed in float64; JAX is set to float32. Put `with jax.enable_x64(True):` around the "
            'call, or run `jax.config.update("jax_enable_x64", True)` first.'
        )
