"""Many losses of one structure, or one loss at many points: gradients and values, each in one compiled call.

Losses of one structure are Equinox modules (or other pytrees) of the same class, functions and shapes, with different
numbers in their arrays; these are stacked, and the compiled functions map over the stack.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from saddlescope._shared.compiled_functions import compiled_for_constants
from saddlescope._shared.errors import InputError
from saddlescope.loss.abstract_loss import AbstractLoss, as_loss
from saddlescope.loss.compiled import Loss

_VALUES = 32  # points of each flow at once


class LossBatch:
    """Losses of many flows.

    Args:
        loss: one loss for all flows, or one for each.
        size: number of flows.

    Raises:
        InputError: the losses are not as many as the flows, or not of one structure.
    """

    def __init__(self, loss: Loss | Sequence[Loss], size: int) -> None:
        if isinstance(loss, Sequence):
            self._each, self._kind, self._arrays = True, *_stack(loss, size)
        else:
            self._each, (self._kind, arrays) = False, _split(loss)
            self._arrays = [jnp.asarray(array) for array in arrays]

    def form(self, flows: Int[np.ndarray, "r"] | None) -> tuple["_Kind", bool, list[Array]]:
        """Return what `map_losses` takes, for some of the flows; None: for all."""
        arrays = self._arrays
        if self._each and flows is not None and not np.array_equal(flows, np.arange(len(arrays[0]) if arrays else 0)):
            arrays = [jnp.asarray(np.asarray(array)[flows]) for array in arrays]  # JAX's indexing takes milliseconds
        return self._kind, self._each, arrays

    def with_fewest_products(self) -> "LossBatch":
        """Return losses with the same gradients, up to rounding, that take the fewest products; perhaps these."""
        structure, leaves = self._kind
        kind = type(jax.tree.unflatten(structure, leaves))
        if kind.with_fewest_products is AbstractLoss.with_fewest_products:
            return self
        batch = copy(self)
        batch._kind, arrays = _split(_with_fewest_products(self._kind, self._each, self._arrays))
        batch._arrays = arrays
        return batch

    def gradients(self, points: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n p"]:
        """Return the gradients of all flows."""
        return np.asarray(_gradients(self._kind, self._each, self._arrays, points))

    def values(self, points: Float[np.ndarray, "b k p"]) -> Float[np.ndarray, "b k"]:
        """Return the losses of all flows, each at many points."""
        count = points.shape[1]
        padded = np.pad(points, ((0, 0), (0, -count % _VALUES), (0, 0)), mode="edge")
        parts = np.split(padded, padded.shape[1] // _VALUES, axis=1)
        return np.concatenate([np.asarray(_values(self._kind, self._each, self._arrays, part)) for part in parts], 1)[
            :, :count
        ]


_Kind = tuple[Any, tuple[Any, ...]]  # the structure of a loss, and its leaves with None for arrays; hashable


def _split(loss: Loss) -> tuple[_Kind, list[Any]]:
    leaves, structure = jax.tree.flatten(as_loss(loss))
    arrays = [isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves]
    kind = structure, tuple(None if array else leaf for leaf, array in zip(leaves, arrays, strict=True))
    return kind, [leaf for leaf, array in zip(leaves, arrays, strict=True) if array]


def _stack(losses: Sequence[Loss], size: int) -> tuple[_Kind, list[Any]]:
    if len(losses) != size:
        raise InputError(
            f"loss must be one loss for all starts, or one for each of the {size!r} starts; got {len(losses)!r}."
        )
    kinds, arrays = zip(*map(_split, losses), strict=True)
    signatures = [(kind, [(a.shape, a.dtype) for a in of]) for kind, of in zip(kinds, arrays, strict=True)]
    for number, signature in enumerate(signatures):
        if signature != signatures[0]:
            raise InputError(
                "losses must be of one structure, with the same class, functions and shapes of arrays; got another "
                f"for flow {number!r} than for flow 0. Write one Equinox module with the data as fields, not "
                "closures, or call gradient_flow for each."
            )
    return kinds[0], [
        jnp.asarray(np.stack([np.asarray(array) for array in column])) for column in zip(*arrays, strict=True)
    ]


def map_losses(evaluate: Callable, kind: _Kind, each: bool, arrays: list[Array], points: PyTree) -> PyTree:
    """Evaluate (loss, its points) for every flow; for compiled code, with the `LossBatch.form` of the losses."""

    def one(arrays: list[Array], points: PyTree) -> PyTree:
        return evaluate(_build(kind, arrays), points)

    return jax.vmap(one, in_axes=(0 if each else None, 0))(arrays, points)


def _build(kind: _Kind, arrays: list[Array]) -> PyTree:
    structure, leaves = kind
    left = iter(arrays)
    return jax.tree.unflatten(structure, [next(left) if x is None else x for x in leaves])


@compiled_for_constants(2)
def _with_fewest_products(kind: _Kind, each: bool, arrays: list[Array]) -> PyTree:
    if each:
        return map_losses(lambda loss, _: loss.with_fewest_products(), kind, each, arrays, None)
    return _build(kind, arrays).with_fewest_products()


@compiled_for_constants(2)
def _gradients(kind: _Kind, each: bool, arrays: list[Array], points: Array) -> Array:
    return map_losses(lambda loss, point: loss.value_and_gradient(point)[1], kind, each, arrays, points)


@compiled_for_constants(2)
def _values(kind: _Kind, each: bool, arrays: list[Array], points: Array) -> Array:
    return map_losses(lambda loss, points: jax.lax.map(loss, points), kind, each, arrays, points)
