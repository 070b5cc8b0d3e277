"""Pairs (inputs, targets) of pytrees of arrays with a leading axis of samples."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from saddlescope._shared.errors import InputError


def sample_pair(data: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
    """Return inputs and targets as JAX arrays, real ones in float64.

    Raises:
        InputError: data is no pair, an array has no real numbers or is not finite, or numbers of samples differ.
    """
    if not (isinstance(data, tuple | list) and len(data) == 2):
        raise InputError("data must be a pair (inputs, targets), with a leading axis of samples in every array.")
    parts = []
    for name, part in zip(("inputs", "targets"), data, strict=True):
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(part)]
        if any(leaf.dtype.kind not in "biuf" for leaf in leaves):
            raise InputError(
                f"{name} of data must be arrays of real numbers; got types {[str(x.dtype) for x in leaves]!r}."
            )
        lengths = {leaf.shape[0] if leaf.ndim else -1 for leaf in leaves}
        if len(lengths) != 1 or min(lengths) < 1:
            shapes = [leaf.shape for leaf in leaves[:3]]
            raise InputError(
                f"{name} of data must be arrays with the same leading axis, one sample or more; got the shapes"
                f" {shapes!r}. Convert lists with numpy.asarray."
            )
        if any(leaf.dtype.kind == "f" and not np.isfinite(leaf).all() for leaf in leaves):
            raise InputError(f"{name} of data must be finite; got NaN or infinite entries.")
        parts.append((jax.tree.map(_double, part), lengths.pop()))
    (inputs, n), (targets, m) = parts
    if n != m:
        raise InputError(f"data must have as many targets as inputs; got {m} and {n}.")
    return inputs, targets


def _double(leaf: Any) -> Array:
    array = np.asarray(leaf)
    return jnp.asarray(array, float) if array.dtype.kind == "f" else jnp.asarray(array)
