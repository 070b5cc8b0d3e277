"""Groups of runs that are taken side by side, as many as the cache holds, and one group after the other."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from saddlescope._shared.device_arrays import on_device
from saddlescope.flow.descent.compiled_epoch import epoch
from saddlescope.flow.descent.learning_rates import AbstractLearningRate
from saddlescope.loss.stacked import StackedRuns

_CACHE = 2**17  # bytes of weights that fit a core's cache with the temporaries of a step


@dataclass(frozen=True)
class _Group:
    """Runs of one compiled call; the last group repeats its last run, to have as many as the others."""

    rows: slice | Int[np.ndarray, "runs"]
    count: int
    losses: StackedRuns
    observers: StackedRuns
    rates: Float[Array, "runs"] | AbstractLearningRate

    def epoch(
        self, weights: PyTree, orders: Int[np.ndarray, "runs steps batch"] | None, bounds: list[Array], checked: bool
    ) -> tuple[PyTree, PyTree, np.ndarray]:
        """Return what `compiled_epoch.epoch` returns for these runs, in NumPy's arrays."""
        given: Any = jax.tree.map(lambda leaf: jax.device_put(leaf[self.rows]), (weights, orders))
        edges, count, first = bounds
        ends, seen, values = epoch(
            self.losses, self.observers, self.rates, given[0], given[1], edges, count, first, checked
        )
        ends, values = jax.tree.map(lambda leaf: np.asarray(leaf)[: self.count], (ends, values))
        return ends, jax.tree.map(lambda leaf: np.asarray(leaf)[:, : self.count], seen), values


class RunGroups:
    """Many runs in groups."""

    def __init__(
        self,
        losses: StackedRuns,
        observers: StackedRuns,
        rates: Float[np.ndarray, "runs"] | AbstractLearningRate,
        weights: PyTree,
    ) -> None:
        leaves = jax.tree.leaves(weights)
        runs = len(leaves[0])
        each = -(-runs // min(runs, -(-sum(leaf.nbytes for leaf in leaves) // _CACHE)))
        self._groups = []
        for start in range(0, runs, each):
            rows = slice(start, start + each)
            if rows.stop > runs:
                rows = np.minimum(np.arange(start, rows.stop), runs - 1)
            own = rates if isinstance(rates, AbstractLearningRate) else on_device(rates[rows], leaves[0].dtype)
            self._groups.append(_Group(rows, min(each, runs - start), losses.some(rows), observers.some(rows), own))

    def epoch(
        self,
        weights: PyTree,
        orders: Int[np.ndarray, "runs steps batch"] | None,
        edges: Int[np.ndarray, "segments"],
        count: int,
        first: int,
        *,
        checked: bool = False,
    ) -> tuple[PyTree, PyTree, np.ndarray]:
        """Return what `compiled_epoch.epoch` returns for all runs; see there."""
        bounds = [on_device(part, np.int32) for part in (edges, count, first)]
        parts = [group.epoch(weights, orders, bounds, checked) for group in self._groups]
        if len(parts) == 1:
            return parts[0]
        ends, seen, values = zip(*parts, strict=True)
        return (
            jax.tree.map(lambda *leaves: np.concatenate(leaves), *ends),
            jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *seen),
            np.concatenate(values),
        )
