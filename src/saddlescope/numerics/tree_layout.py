"""The layout of a pytree of arrays in a flat vector."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree


@dataclass(frozen=True)
class TreeLayout:
    """Layout of a pytree of arrays in a flat vector.

    Hashable, so that compiled functions are found again: the closure of `jax.flatten_util.ravel_pytree` is not.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tree: PyTree) -> "TreeLayout":
        """Return the layout of a pytree whose leaves are arrays."""
        leaves, structure = jax.tree.flatten(tree)
        return cls(structure, tuple(np.shape(leaf) for leaf in leaves))

    @property
    def size(self) -> int:
        """Number of entries of the flat vector."""
        return sum(math.prod(shape) for shape in self.shapes)

    def flatten(self, tree: PyTree) -> np.ndarray:
        """Return the entries of a pytree of this layout, one after the other."""
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)] or [np.zeros(0)])

    def build(self, flat: Any) -> PyTree:
        """Return the pytree of a flat NumPy or JAX vector; axes before the last one precede the axes of every leaf."""
        leaves, start = [], 0
        for shape in self.shapes:
            stop = start + math.prod(shape)
            leaves.append(flat[..., start:stop].reshape(flat.shape[:-1] + shape))
            start = stop
        return jax.tree.unflatten(self.structure, leaves)
