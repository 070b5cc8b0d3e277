"""Arrays of JAX from arrays of NumPy, without compiling anything."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def on_device(value: Any, dtype: Any = None) -> Array:
    """Return an array of JAX with a copy of the values, in a type or in JAX's own.

    `jax.numpy.asarray` compiles a program for each shape of a NumPy array, and another for each conversion, which takes
    longer than many a computation on it. Here NumPy copies and converts. (JAX's array may share the memory of what it
    is given, so that a copy is needed.)
    """
    if isinstance(value, jax.Array):
        return jnp.asarray(value, dtype)
    return jax.device_put(np.array(value, dtype))
