"""Files of NumPy arrays from others: sizes are checked before anything is read, and nothing is unpickled."""

import math
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

_SMALL = 2**27  # bytes of arrays that are allowed in a file of any size
_DENSEST = 64  # largest ratio of further bytes to those of the file


def read_npz(path: Path, names: Iterable[str] = ()) -> dict[str, np.ndarray]:
    """Return arrays of an .npz file by name.

    Args:
        path: the file.
        names: the arrays; by default all.

    Raises:
        OSError: the file cannot be opened.
        KeyError: an array is missing.
        ValueError: it is no complete .npz file, or an array holds objects or is too large for the file.
    """
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                wanted = list(names) or [one.removesuffix(".npy") for one in archive.namelist()]
                left = _SMALL + _DENSEST * path.stat().st_size
                for name in wanted:
                    left -= _size(archive, archive.getinfo(f"{name}.npy"))
                    if left < 0:
                        raise ValueError(f"its arrays expand to more than {_DENSEST} times its size")
            file.seek(0)
            with np.load(file, allow_pickle=False) as stored:
                return {name: stored[name] for name in wanted}
        except (KeyError, ValueError):
            raise
        except Exception as error:  # of zipfile, its decompressors and NumPy, of any type
            raise ValueError(str(error) or type(error).__name__) from error


def npz_names(path: Path) -> list[str]:
    """Return the names of the arrays in an .npz file.

    Raises:
        OSError: the file cannot be opened.
        ValueError: it is no .npz file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from error


def is_npy(path: Path) -> bool:
    """Return True for a file of one array."""
    with path.open("rb") as file:
        return file.read(6) == np.lib.format.MAGIC_PREFIX


def _size(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Return the bytes of an array, which must be those that its header announces.

    Raises:
        ValueError: they are not, or the array holds objects.
    """
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read_header:
            raise ValueError(f"{member.filename} has the unknown version {version}")
        shape, _, dtype = read_header[version](stream)
        before = stream.tell()
    if dtype.hasobject:
        raise ValueError(f"{member.filename} holds objects")
    if math.prod(shape) * dtype.itemsize != member.file_size - before:
        raise ValueError(f"{member.filename} announces an array of shape {shape} in {member.file_size} bytes")
    return member.file_size
