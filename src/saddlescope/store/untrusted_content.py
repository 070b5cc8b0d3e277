"""Limits of what a netCDF file from others may contain: anybody can seal a file, and a few bytes can fill the memory.

Compressed or shared content expands when it is read. The limits are multiples of the size of the file, which every file
that `write` makes keeps.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import h5py

SMALL = 2**26
"""Bytes of arrays and text that are allowed in a file of any size."""

DENSEST = 16
"""Largest ratio of further bytes to those of the file."""

_NUMBER = 8  # bytes of a number at least, since integers may be decoded to floats
_STRING = 64  # bytes of a string in memory besides its characters
_BLOCK = 2**24  # bytes of strings that are read at once
_MEMBERS = 2000  # variables of a file
_HEAP = b"GCOL\x01"  # begins a collection of strings
_ITEM = 16  # bytes before each object of a collection


class ForeignContentError(Exception):
    """The content of a file is not of the kind or size that runs have; the message completes "must"."""


def numbers_size(count: int, itemsize: int) -> int:
    """Return the bytes of an array in memory, by number of entries and stored size of each."""
    return count * max(itemsize, _NUMBER)


def require_bounded(file: "h5py.File", content: bytes) -> None:
    """Raise unless a file has no groups, links or objects, and its arrays and text fit the memory.

    Args:
        file: the opened file.
        content: all of its bytes.

    Raises:
        ForeignContentError: it has others.
    """
    import h5py

    names = list(file)
    if len(names) > _MEMBERS:
        raise ForeignContentError(f"have at most {_MEMBERS} variables; got {len(names)}")
    links = [type(file.get(name, getlink=True)) for name in names]
    arrays = [file[name] for name in names] if all(link is h5py.HardLink for link in links) else [None]
    left = SMALL + DENSEST * len(content)
    attributes: list[h5py.File | h5py.Dataset] = [file]
    longest = _longest_string(content)
    for array in arrays:
        if not isinstance(array, h5py.Dataset) or array.external or array.is_virtual:
            raise ForeignContentError("contain its arrays; got links or groups")
        for size in _sizes(array, longest):
            left = _take(left, size, content)
        attributes.append(array)
    for holder in attributes:
        for name in holder.attrs:
            stored = holder.attrs.get_id(name)
            many = stored.shape is not None and h5py.check_string_dtype(stored.dtype) is not None
            size = int(_count(stored.shape)) * (stored.dtype.itemsize + (_STRING + longest if many else 0))
            left = _take(left, size, content)


def _take(left: int, size: int, content: bytes) -> int:
    if size > left:
        raise ForeignContentError(
            f"have at most {DENSEST} times its size in arrays; got more than "
            f"{(SMALL + DENSEST * len(content)) / 2**20:.3g} MiB in a file of {len(content) / 2**20:.3g} MiB"
        )
    return left - size


def _sizes(array: Any, longest: int) -> Iterator[int]:
    """Yield the bytes of an array in memory; text is read block by block, since many entries may be one long string."""
    import h5py

    text = h5py.check_string_dtype(array.dtype)
    if text is None or text.length is not None:
        if array.dtype.hasobject:
            raise ForeignContentError("have arrays of numbers and text; got others")
        yield numbers_size(_count(array.shape), array.dtype.itemsize)
        return
    yield _count(array.shape) * _STRING
    if array.shape:
        longest = max(longest, len(array.fillvalue or b""), 1)
        for block in _blocks(array, (), max(1, _BLOCK // longest)):
            yield sum(map(len, block.ravel()))
    elif array.shape == ():
        yield len(array[()])


def _blocks(array: Any, index: tuple[int, ...], most: int) -> Iterator[Any]:
    """Yield the entries at an index in blocks of so many, or of a whole row if the rows are shorter."""
    length, *inner = array.shape[len(index) :]
    if inner and _count(tuple(inner)) > most:
        for k in range(length):
            yield from _blocks(array, (*index, k), most)
        return
    rows = max(1, most // max(1, _count(tuple(inner))))
    for start in range(0, length, rows):
        yield array[(*index, slice(start, start + rows))]


def _count(shape: tuple[int, ...] | None) -> int:
    count = 1 if shape is not None else 0
    for length in shape or ():
        count *= int(length)
    return count


def _longest_string(content: bytes) -> int:
    """Return the largest size of an object in the collections of strings of a file."""
    longest, place = 0, content.find(_HEAP)
    while place >= 0:
        end = min(len(content), place + int.from_bytes(content[place + 8 : place + 16], "little"))
        item = place + _ITEM
        while item + _ITEM <= end and int.from_bytes(content[item : item + 2], "little"):
            size = int.from_bytes(content[item + 8 : item + _ITEM], "little")
            longest = max(longest, min(size, len(content)))
            item += _ITEM + -(-size // 8) * 8
        place = content.find(_HEAP, place + 1)
    return longest
