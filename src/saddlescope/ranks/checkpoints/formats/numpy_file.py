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
from saddlescope.ranks.checkpoints.formats.tensor_file import TensorFile, reported

_DAMAGED = (OSError, ValueError, TypeError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error)


def as_tensor(name: str, array: Any) -> Tensor:
    """Return an array of NumPy, JAX or PyTorch as a tensor on the host, in its own type.

    Raises:
        InputError: a type that PyTorch does not have, such as strings, or a tensor that is sparse or without numbers.
    """
    if isinstance(array, Tensor):
        if array.is_meta or array.layout != torch.strided:
            kind = "one on the meta device" if array.is_meta else str(array.layout).removeprefix("torch.")
            raise InputError(f"{name} must be a dense tensor with numbers; got {kind}.")
        return array.detach().cpu()
    found = np.array(array)  # a copy: arrays of JAX are read-only
    kind = getattr(torch, found.dtype.name, None)
    if not isinstance(kind, torch.dtype):
        raise InputError(f"{name} must be an array of numbers; got {found.dtype.name}.")
    if not found.dtype.isnative:
        found = found.astype(found.dtype.newbyteorder("="))
    if found.dtype.isbuiltin == 1:
        return torch.from_numpy(found)
    return torch.from_numpy(found.view(f"u{found.dtype.itemsize}")).view(kind)  # such as bfloat16 of ml_dtypes


def is_numpy(file: Path) -> bool:
    """Return True for an archive of arrays, complete or not."""
    if file.suffix == ".npz" or not zipfile.is_zipfile(file):
        return file.suffix == ".npz"
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False
    return bool(names) and all(name.endswith(".npy") for name in names)


@contextmanager
def open_numpy(file: Path) -> Iterator[TensorFile]:
    """Open an archive; arrays of objects, which would be pickles, are refused. An array is read whole on request."""
    sentence = f"{file} must be a complete archive of arrays; got one that cannot be read"
    with reported(sentence, kinds=_DAMAGED):
        with zipfile.ZipFile(file) as archive:
            sizes = [(member.file_size, member.compress_size) for member in archive.infolist()]
        if any(large > 1000 * max(1, small) for large, small in sizes):
            raise ValueError("it is compressed a thousandfold")
        with np.load(file, allow_pickle=False) as arrays:

            def describe(name: str) -> tuple[tuple[int, ...], str]:
                with arrays.zip.open(f"{name}.npy") as member:
                    first = np.lib.format.read_magic(member) == (1, 0)
                    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
                    shape, _, kind = read(member)
                stated, size = math.prod(shape) * kind.itemsize, arrays.zip.getinfo(f"{name}.npy").file_size
                if stated > size:
                    raise ValueError(f"{name} has {size} bytes for {stated}")
                return tuple(shape), kind.name

            yield TensorFile(list(arrays.files), describe, lambda name: as_tensor(name, arrays[name]))
