"""Archives of arrays, .npz: weights of mlx's examples, and of anyone's `numpy.savez`."""

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints.formats.tensor_file import TensorFile, clear_names, first_line

_DAMAGED = (OSError, ValueError, TypeError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error)


class _ArrayFile(TensorFile):
    """Opened archive; an array is read whole on request."""

    def __init__(self, file: Path, archive: Any) -> None:
        self._file, self._archive = file, archive

    def names(self) -> list[str]:
        return clear_names(self._file, list(self._archive.files))

    def describe(self, name: str) -> tuple[tuple[int, ...], bool]:
        with self._archive.zip.open(f"{name}.npy") as member:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, kind = read(member)
        stated, size = math.prod(shape) * kind.itemsize, self._archive.zip.getinfo(f"{name}.npy").file_size
        if stated > size:
            raise ValueError(f"{name} has {size} bytes for {stated}")
        return tuple(shape), kind.kind == "f"

    def read(self, name: str) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(self._archive[name]))


def is_numpy(file: Path) -> bool:
    """Return True for an archive of arrays."""
    if not zipfile.is_zipfile(file):
        return False
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False
    return bool(names) and all(name.endswith(".npy") for name in names)


@contextmanager
def open_numpy(file: Path) -> Iterator[TensorFile]:
    """Open an archive; arrays of objects, which would be pickles, are refused."""
    try:
        with zipfile.ZipFile(file) as archive:
            sizes = [(member.file_size, member.compress_size) for member in archive.infolist()]
        if any(large > 1000 * max(1, small) for large, small in sizes):
            raise ValueError("it is compressed a thousandfold")
        with np.load(file, allow_pickle=False) as arrays:
            yield _ArrayFile(file, arrays)
    except _DAMAGED as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{file} must be a complete archive of arrays; got one that cannot be read ({first_line(error)})."
        ) from error
