"""Limits of what a netCDF file from others may contain: anybody can seal a file, and a few bytes can fill the memory.

Compressed or shared content expands when it is read. The limits are multiples of the size of the file, which every file
that `write` makes keeps. It writes strings of fixed length; those of variable length, as in attributes and in files of
earlier versions, are read one by one, since many of them may be one long string.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import h5py

SMALL = 2**26
"""Bytes of arrays and text that are allowed in a file of any size."""

DENSEST = 16
"""Largest ratio of further bytes to those of the file."""

_NUMBER = 8  # bytes of a number at least, since integers may be decoded to floats
_STRING = 64  # bytes of a string in memory besides its characters
_VARIABLE = 1024  # the same of a string of variable length, which takes its time as well
_SCALES = ("DIMENSION_LIST", "REFERENCE_LIST")  # netCDF4: from a variable to its dimensions, and back
_MEMBERS = 2000  # variables of a file


class ForeignContentError(Exception):
    """The content of a file is not of the kind or size that runs have; the message completes "must"."""


def require_bounded(file: "h5py.File", size: int) -> None:
    """Raise unless a file has no groups, links or objects, and its arrays and text fit the memory.

    Args:
        file: the opened file.
        size: its bytes.

    Raises:
        ForeignContentError: it has others.
    """
    import h5py

    names = list(file)
    if len(names) > _MEMBERS:
        raise ForeignContentError(f"have at most {_MEMBERS} variables; got {len(names)}")
    left = _Left(size)
    for name in file.attrs:
        _take_attribute(file.attrs, name, left)
    within = all(isinstance(file.get(name, getlink=True), h5py.HardLink) for name in names)
    for array in (file[name] if within else None for name in names):
        if not isinstance(array, h5py.Dataset) or array.external or array.is_virtual:
            raise ForeignContentError("contain its arrays; got links or groups")
        _take_array(array, left)
        for name in array.attrs:
            _take_attribute(array.attrs, name, left)


class _Left:
    """Bytes that the rest of a file may take in memory."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._bytes = SMALL + DENSEST * size

    def take(self, count: int) -> None:
        self._bytes -= count
        if self._bytes < 0:
            raise ForeignContentError(
                f"have at most {DENSEST} times its size in arrays; got more than "
                f"{(SMALL + DENSEST * self.size) / 2**20:.3g} MiB in a file of {self.size / 2**20:.3g} MiB"
            )


def _take_array(array: Any, left: _Left) -> None:
    import h5py

    text = h5py.check_string_dtype(array.dtype)
    if text is None and array.dtype.hasobject:
        raise ForeignContentError("have arrays of numbers and text; got others")
    count = _count(array.shape)
    if text is None:
        left.take(count * max(array.dtype.itemsize, _NUMBER))
    elif text.length is not None:  # characters, of which the last axis is a string
        left.take(count * text.length + count // max(1, *array.shape[-1:]) * _STRING)
    else:
        left.take(count * _VARIABLE)
        for index in np.ndindex(array.shape or ()):
            left.take(len(array[index]))


def _take_attribute(attributes: Any, name: str, left: _Left) -> None:
    import h5py

    stored = attributes.get_id(name)
    count = _count(stored.shape)
    left.take(count * stored.dtype.itemsize)
    text = h5py.check_string_dtype(stored.dtype)
    if text is None and stored.dtype.hasobject and name not in _SCALES:
        raise ForeignContentError("have attributes of numbers and text; got others")
    if text is not None and text.length is None and count:
        left.take(count * _STRING + (len(attributes[name]) if stored.shape == () else count * left.size))


def _count(shape: tuple[int, ...] | None) -> int:
    return 0 if shape is None else math.prod(map(int, shape))  # of Python's integers, which do not overflow
