"""Losses and observers of many runs: one for all, or one for each, stacked so that one compiled loop serves all.

Losses of one structure are Equinox modules (or other pytrees) of the same class, functions and shapes, with different
numbers in their arrays.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Int, PyTree

from saddlescope._shared.device_arrays import on_device
from saddlescope._shared.errors import InputError


class StackedRuns(eqx.Module):
    """A function that is called for each run.

    Attributes:
        value: one for all runs; or all of them in one, with the runs as leading axis of its arrays.
        stacked: True for the latter.
    """

    value: Any
    stacked: bool = eqx.field(static=True)

    @classmethod
    def of(cls, name: str, given: Any, runs: int) -> "StackedRuns":
        """Stack a sequence of one function for each run, or take one for all runs.

        Raises:
            InputError: a sequence of another length, or whose members differ in more than the values of their arrays.
        """
        if not isinstance(given, Sequence):
            return cls.shared(given)
        given = _on_device(given)
        kinds = [
            [(leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf for leaf in jax.tree.leaves(one)]
            + [jax.tree.structure(one)]
            for one in given
        ]
        other = next((run for run, kind in enumerate(kinds) if kind != kinds[0]), None)
        if len(given) != runs or other is not None:
            got = f"{len(given)!r}" if len(given) != runs else f"another structure for run {other!r} than for run 0"
            raise InputError(
                f"{name} must be one for all runs or one for each of the {runs} runs, of one structure, functions and "
                f"shapes; got {got}. Write one Equinox module with the data as fields, not closures."
            )
        return cls(
            jax.tree.map(lambda *leaves: _stacked(leaves) if eqx.is_array(leaves[0]) else leaves[0], *given), True
        )

    @classmethod
    def shared(cls, given: Any) -> "StackedRuns":
        """Take one function for all runs."""
        return cls(_on_device(given), False)

    @property
    def arrays(self) -> Any:
        """Arrays that differ from run to run, with the runs as leading axis."""
        return eqx.filter(self.value, eqx.is_array) if self.stacked else None

    def built(self, arrays: Any) -> Any:
        """Return the function of a single run, from its part of the arrays."""
        return eqx.combine(arrays, eqx.filter(self.value, eqx.is_array, inverse=True)) if self.stacked else self.value

    def map(self, function: Callable[..., PyTree], *trees: PyTree) -> PyTree:
        """Call a function of a run's own function and parts of these trees for every run; for compiled code."""
        return jax.vmap(lambda arrays, *parts: function(self.built(arrays), *parts))(self.arrays, *trees)

    def part(self, runs: Int[np.ndarray, "r"]) -> "StackedRuns":
        """Return those of some runs."""
        picked = jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[runs]), self.arrays)
        return StackedRuns(self.built(picked), self.stacked)  # JAX's indexing takes milliseconds

    def one(self, run: int) -> Any:
        """Return the function of a run by its number."""
        return self.built(jax.tree.map(lambda leaf: on_device(np.asarray(leaf)[run]), self.arrays))


def _on_device(given: Any) -> Any:
    return jax.tree.map(lambda leaf: on_device(leaf) if isinstance(leaf, np.ndarray) else leaf, given)


def _stacked(leaves: Sequence[Any]) -> Array:
    """Stack arrays without compiling anything."""
    return jax.device_put(np.stack([np.asarray(leaf) for leaf in leaves]))
