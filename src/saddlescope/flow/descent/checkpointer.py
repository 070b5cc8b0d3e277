"""State of a recorded run, and the checkpoint from which a killed run resumes."""

import time
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
from jaxtyping import PyTree

from saddlescope._shared.device_arrays import on_device
from saddlescope._shared.errors import InputError
from saddlescope.flow.descent import checkpoint_file


@dataclass
class RunState:
    """Progress of a run: `seen` of its records are complete, and its place is that after `step` steps."""

    step: int
    seen: int
    place: PyTree
    records: list[np.ndarray]


@dataclass
class Checkpointer:
    """Checkpoint of a run."""

    path: Path
    run: str
    _last: float = field(default_factory=time.monotonic, init=False)

    @classmethod
    def of(cls, path: Path, *parts: object) -> "Checkpointer":
        """Return the checkpoint of the run that these parts identify."""
        return cls(path, checkpoint_file.fingerprint(*parts))

    def resume(self, start: RunState) -> RunState:
        """Return the state in the checkpoint, or the start if there is none.

        Raises:
            InputError: the checkpoint is damaged, or of another run.
        """
        stored = checkpoint_file.read(self.path, self.run)
        if stored is None:
            return start
        leaves, structure = jax.tree.flatten(start.place)
        place = [on_device(stored[f"place{n}"]) for n in range(len(leaves))]
        records = [stored[f"record{n}"] for n in range(sum(name.startswith("record") for name in stored))]
        shapes = [(record.shape, record.dtype) for record in records]
        if shapes != [(record.shape, record.dtype) for record in start.records]:
            raise InputError(
                f"checkpoint must be of a run with the same observables; got {str(self.path)!r}, of one with others. "
                "Name another file, or delete it."
            )
        return RunState(int(stored["step"]), int(stored["seen"]), jax.tree.unflatten(structure, place), records)

    def write(self, progress: RunState, *, every: float = 0.0) -> None:
        """Write the progress, unless that was done within so many seconds."""
        if time.monotonic() - self._last < every:
            return
        arrays = {"step": np.array(progress.step), "seen": np.array(progress.seen)}
        arrays |= {f"place{n}": np.asarray(leaf) for n, leaf in enumerate(jax.tree.leaves(progress.place))}
        arrays |= {f"record{n}": record for n, record in enumerate(progress.records)}
        checkpoint_file.write(self.path, self.run, arrays)
        self._last = time.monotonic()
