"""How far a recorded run has come, and the checkpoint it goes on from when it is killed."""

import time
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PyTree

from saddlescope._shared.errors import InputError
from saddlescope.flow.descent import checkpoint_file


@dataclass
class RunState:
    """How far a run is: `seen` of its marks are observed, and the weights are those after `step` steps."""

    step: int
    seen: int
    weights: PyTree
    records: list[np.ndarray]


@dataclass
class Checkpointer:
    """The checkpoint of a run."""

    path: Path
    run: str
    _last: float = field(default_factory=time.monotonic, init=False)

    def resume(self, start: RunState) -> RunState:
        """Where the checkpoint is, or the start where there is none.

        Raises:
            InputError: the checkpoint is damaged, or of another run.
        """
        kept = checkpoint_file.read(self.path, self.run)
        if kept is None:
            return start
        leaves, structure = jax.tree.flatten(start.weights)
        weights = [jnp.asarray(kept[f"weights{n}"]) for n in range(len(leaves))]
        records = [kept[f"record{n}"] for n in range(sum(name.startswith("record") for name in kept))]
        shapes = [(record.shape, record.dtype) for record in records]
        if shapes != [(record.shape, record.dtype) for record in start.records]:
            raise InputError(
                f"checkpoint must be of a run with the same observables; got {str(self.path)!r}, of one with others. "
                "Name another file, or delete it."
            )
        return RunState(int(kept["step"]), int(kept["seen"]), jax.tree.unflatten(structure, weights), records)

    def write(self, progress: RunState, *, every: float = 0.0) -> None:
        """Keeps the progress, unless that was done within so many seconds."""
        if time.monotonic() - self._last < every:
            return
        arrays = {"step": np.array(progress.step), "seen": np.array(progress.seen)}
        arrays |= {f"weights{n}": np.asarray(leaf) for n, leaf in enumerate(jax.tree.leaves(progress.weights))}
        arrays |= {f"record{n}": record for n, record in enumerate(progress.records)}
        checkpoint_file.write(self.path, self.run, arrays)
        self._last = time.monotonic()


def all_marks(marks: np.ndarray, steps: int) -> Int[np.ndarray, "k"]:
    """The marks with 0 and `steps` among them, ascending.

    Raises:
        InputError: `steps` is out of range, or a mark is no step number up to it.
    """
    if not 0 <= steps < 2**31:
        raise InputError(f"steps must be at least 0 and below 2^31; got {steps!r}.")
    marks = np.asarray(marks)
    if not (marks.ndim == 1 and np.all((marks >= 0) & (marks <= steps) & (marks == np.round(marks)))):
        raise InputError(f"marks must be a vector of step numbers between 0 and steps={steps!r}; got {marks!r}.")
    return np.unique(np.concatenate([[0], marks, [steps]])).astype(np.int64)
