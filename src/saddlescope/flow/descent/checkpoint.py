"""State of a recorded run, and the checkpoint from which a killed run resumes: arrays in a file, written atomically."""

import dataclasses
import hashlib
import io
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from saddlescope._shared.atomic_files import write_atomically
from saddlescope._shared.device_arrays import on_device
from saddlescope._shared.errors import InputError
from saddlescope._shared.npz_files import read_npz
from saddlescope._shared.output_paths import require_writable_file

_RUN = "run"  # name of the fingerprint in the file


@dataclass
class RunState:
    """Progress of a run: `seen` of its records are complete, and its place is that after `step` steps."""

    step: int
    seen: int
    place: PyTree
    records: list[np.ndarray]
    structure: Any  # of a record

    def observed(self, axis: int = 0) -> PyTree:
        """Return the records, as what was recorded, with the records along an axis."""
        return jax.tree.unflatten(self.structure, [np.moveaxis(record, 0, axis) for record in self.records])


@dataclass
class Checkpoint:
    """Checkpoint of a run, with its fingerprint."""

    path: Path
    run: str
    _last: float = field(default_factory=time.monotonic, init=False)

    @classmethod
    def of(cls, path: Path, *parts: object) -> "Checkpoint":
        """Return the checkpoint of the run that these parts identify."""
        return cls(path, _fingerprint(*parts))

    def resume(self, start: RunState) -> RunState:
        """Return the state in the checkpoint, or the start if there is none.

        Raises:
            InputError: the checkpoint is damaged, or of another run, or cannot be written.
        """
        stored = self.read()
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
        steps = int(stored["step"]), int(stored["seen"])
        return RunState(*steps, jax.tree.unflatten(structure, place), records, start.structure)

    def keep(self, progress: RunState, *, every: float = 0.0) -> None:
        """Write the progress, unless that was done within so many seconds."""
        if time.monotonic() - self._last < every:
            return
        arrays = {"step": np.array(progress.step), "seen": np.array(progress.seen)}
        arrays |= {f"place{n}": np.asarray(leaf) for n, leaf in enumerate(jax.tree.leaves(progress.place))}
        self.write(arrays | {f"record{n}": record for n, record in enumerate(progress.records)})
        self._last = time.monotonic()

    def write(self, arrays: dict[str, np.ndarray]) -> None:
        """Write arrays atomically: a kill leaves the old file or the new one.

        Raises:
            InputError: the file cannot be written; an earlier one stays.
        """
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **(arrays | {_RUN: np.array(self.run)}))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, content.getbuffer())
        except OSError as error:
            raise InputError(
                f"checkpoint must be a file that can be written; got {str(self.path)!r} ({error.strerror or error}). "
                "Make room or choose another folder; an earlier checkpoint there is untouched."
            ) from error

    def read(self) -> dict[str, np.ndarray] | None:
        """Return the arrays that this run has written, or None if there is no file yet, which can then be written.

        Raises:
            InputError: the file is damaged, or of another run, or cannot be written.
        """
        require_writable_file(self.path)
        if not self.path.exists():
            return None
        try:
            arrays = read_npz(self.path)
            found = str(arrays.pop(_RUN))
        except (OSError, ValueError, KeyError) as error:
            raise InputError(
                f"checkpoint must be a complete checkpoint of saddlescope; got {str(self.path)!r}, which is damaged or "
                "another kind of file. Delete it to start this run again, or name another file."
            ) from error
        if found != self.run:
            raise InputError(
                f"checkpoint must be of the same run; got {str(self.path)!r}, of one with another loss, start, seed, "
                "learning rate, batch, number of steps or recorded steps. Name another file, or delete it."
            )
        return arrays


def _fingerprint(*parts: object) -> str:
    """Return a hash of arrays (bytes, shapes, types), of dataclasses by their fields, and of all else by its `repr`."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray | np.generic | jax.Array):
            array = np.ascontiguousarray(part)
            digest.update(repr((array.shape, str(array.dtype))).encode())
            digest.update(array.data)
        elif dataclasses.is_dataclass(part) and not isinstance(part, type):  # their repr is short
            fields = (getattr(part, field.name) for field in dataclasses.fields(part))
            digest.update(_fingerprint(type(part).__qualname__, *fields).encode())
        else:
            digest.update(repr(part).encode() + b"\0")
    return digest.hexdigest()
