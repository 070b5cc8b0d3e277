"""The float64 guard: one check and one sentence for every JAX computation that needs double precision."""

from saddlescope._shared.errors import InputError


def require_float64(what: str) -> None:
    """Raise unless JAX computes in float64.

    Plateaus near saddles last log(1/alpha) units of time because weights of size alpha grow by rounding-free factors;
    float32 ends them early, without a sign.

    Args:
        what: name of the function or quantity that needs float64, as the subject of the error.

    Raises:
        InputError: JAX is in its default single precision.
    """
    import jax

    if not jax.config.jax_enable_x64:
        raise InputError(
            f"{what} must be computed in float64; JAX is set to float32. Put `with jax.enable_x64(True):` around the "
            'call, or run `jax.config.update("jax_enable_x64", True)` first.'
        )
