"""MNIST in its four official IDX files."""

import math
import struct
from pathlib import Path

import numpy as np

from saddlescope._shared.errors import InputError
from saddlescope.training.data.labelled_images import ImageData, assemble
from saddlescope.training.data.official_files import read_official

# MD5 of the unpacked official files, computed after verifying the publishers' own checksums (of the .gz).
_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


def read_mnist(folder: Path, verify: bool) -> ImageData:
    """Read 60,000 + 10,000 images of 1 x 28 x 28."""

    def read(stem: str, dimensions: int) -> np.ndarray:
        path, content = read_official(folder / "mnist", stem, _MD5[stem] if verify else None)
        return _idx(path, content, dimensions=dimensions)

    def part(prefix: str) -> tuple[np.ndarray, np.ndarray]:
        return read(f"{prefix}-images-idx3-ubyte", 3)[:, None], read(f"{prefix}-labels-idx1-ubyte", 1)

    return assemble("mnist", part("train"), part("t10k"))


def _idx(path: Path, content: bytes, *, dimensions: int) -> np.ndarray:
    """Parse an IDX file of bytes: two zeros, the type 8, the number of dimensions, big-endian sizes, then the bytes."""
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes((0, 0, 8, dimensions)):
        raise InputError(
            f"{path} must be an IDX file with magic number {2048 + dimensions}; got {content[:4].hex() or 'nothing'}. "
            "Fetch the official file again."
        )
    sizes = struct.unpack_from(f">{dimensions}I", content, 4)
    if len(content) - header != math.prod(sizes):
        raise InputError(
            f"{path} must have {math.prod(sizes)} bytes after its header; got {len(content) - header}. "
            "Fetch the official file again."
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(sizes)
