"""Append-only file of records, such as those of a training run: written while it runs, safe to kill, open to readers.

One line of JSON per record, and a checksum. The first line has the variables that no record changes:

    {"format": "saddlescope records 2", "along": "step", "coordinates": ["layer"], "variables": {...}} 0123abcd
    {"step": 1, "variables": {"stable_rank": {"dims": ["layer"], "dtype": "float64", "data": "..."}}} 4567cdef

Numbers are base64 of their little-endian bytes, so exact. The checksum is the CRC-32 of the JSON; files of format 1
have none. A line that a killed writer left unfinished is no record.
"""

import base64
import binascii
import json
import math
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.atomic_files import write_atomically
from saddlescope._shared.errors import InputError, StorageError
from saddlescope._shared.output_paths import new_folder, other_than_file, output_file, reason

_FORMAT = "saddlescope records 2"
_WITHOUT_CHECKSUMS = "saddlescope records 1"
_DTYPES = ("float64", "float32", "int64", "int32", "bool")


class RecordLog:
    """File of records along the dimension `step` of a data set, with a coordinate of whole numbers.

    Args:
        path: the file.
    """

    along = "step"
    begins = b'{"format":"saddlescope records'  # first bytes of such a file

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def write(self, records: xr.Dataset) -> None:
        """Replace the file by one with these records, atomically; its folder is created.

        Raises:
            StorageError: the disk is full, the folder cannot be written, or the path is no regular file.
        """
        lines = [self._first_line(records), *self._lines(records)]
        try:
            with new_folder(self.path.parent):
                write_atomically(self.path, b"".join(lines))
        except OSError as error:
            raise self._not_written(error) from error

    def append(self, records: xr.Dataset) -> None:
        """Append records to the file that `write` made.

        Raises:
            StorageError: the file is gone or no regular file, or the disk is full.
        """
        try:
            with output_file(self.path).open("r+b") as file:
                file.seek(0, os.SEEK_END)
                file.write(b"".join(self._lines(records)))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._not_written(error) from error

    def _first_line(self, records: xr.Dataset) -> bytes:
        fixed = {name: variable for name, variable in records.variables.items() if self.along not in variable.dims}
        coordinates = [str(name) for name in records.coords if name in fixed]
        return _line(
            {"format": _FORMAT, "along": self.along, "coordinates": coordinates, "attributes": _texts(records.attrs)}
            | {"attributes_of": {str(name): _texts(array.attrs) for name, array in records.variables.items()}}
            | {"variables": _encoded(fixed.items())}
        )

    def _lines(self, records: xr.Dataset) -> list[bytes]:
        moving = {name: array for name, array in records.data_vars.items() if self.along in array.dims}

        def line(k: int, number: int) -> bytes:
            at = ((name, array.isel({self.along: k}).variable) for name, array in moving.items())
            return _line({self.along: number, "variables": _encoded(at)})

        return [line(k, int(number)) for k, number in enumerate(records[self.along].values)]

    def _not_written(self, error: OSError) -> StorageError:
        return StorageError(f"Cannot write {self.path}: {reason(error)}. Give another file, or free some space.")


def read_log(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read all finished records of a log; a record of the same number as an earlier one takes its place.

    Returns:
        The data set, with the records in the order of their numbers.

    Raises:
        InputError: the file is absent, no log of records, or damaged before its last line.
    """
    path = Path(path)
    try:
        if (kind := other_than_file(path)) is not None:
            raise InputError(f"{path} must be a file of records; got {kind}.")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"Cannot read {path}: {reason(error)}. Give the file of a tracker: RankTracker(model, file=...)."
        ) from error
    *lines, unfinished = content.split(b"\n")
    try:
        if lines[0].endswith(b"}") and json.loads(lines[0])["format"] == _WITHOUT_CHECKSUMS:
            first, *records = map(json.loads, lines)
        else:
            first, *records = map(_checked, lines)
            if first["format"] != _FORMAT or _is_whole(unfinished[:-1]):  # whole but for its end, which is damaged
                raise ValueError("format")
        return _assembled(first, records)
    except (LookupError, TypeError, ValueError, RecursionError, OverflowError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged, or no file of records (RankTracker(file=...) writes one). Give another file."
        ) from error


def _assembled(first: dict[str, Any], records: list[dict[str, Any]]) -> xr.Dataset:
    along = str(first["along"])
    by_number = dict(sorted(((int(one[along]), one["variables"]) for one in records), key=lambda one: one[0]))
    ds = xr.Dataset({name: _decoded(one) for name, one in first["variables"].items()})
    ds = ds.set_coords([str(name) for name in first["coordinates"]])
    ds = ds.assign_coords({along: (along, np.array(list(by_number), np.int64))})
    for name in next(iter(by_number.values()), {}):
        each = [_decoded(variables[name]) for variables in by_number.values()]
        ds[name] = ((along, *each[0].dims), np.stack([one.values for one in each]))
    for name, attributes in first["attributes_of"].items():
        if name in ds.variables:
            ds[name].attrs = _texts(attributes)
    return ds.assign_attrs(_texts(first["attributes"]))


def _texts(attributes: Mapping[Any, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in attributes.items()}


def _line(content: dict[str, Any]) -> bytes:
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":")).encode()
    return text + b" %08x\n" % zlib.crc32(text)


def _checked(line: bytes) -> dict[str, Any]:
    """Return the content of a line, or raise ValueError if it does not have its checksum."""
    if not _is_whole(line):
        raise ValueError("checksum")
    return json.loads(line[:-9])


def _is_whole(line: bytes) -> bool:
    return line[-9:] == b" %08x" % zlib.crc32(line[:-9])


def _encoded(variables: Iterable[tuple[Any, xr.Variable]]) -> dict[str, Any]:
    return {str(name): _encoded_variable(variable) for name, variable in variables}


def _encoded_variable(variable: xr.Variable) -> dict[str, Any]:
    values = np.asarray(variable.values)
    common = {"dims": list(variable.dims), "shape": list(values.shape)}
    if values.dtype.kind in "UOT":
        return common | {"dtype": "text", "data": [str(value) for value in values.ravel()]}
    if values.dtype.name not in _DTYPES:
        raise InputError(f"records must have arrays of text or of {', '.join(_DTYPES)}; got {values.dtype}.")
    data = base64.b64encode(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes())
    return common | {"dtype": values.dtype.name, "data": data.decode()}


def _decoded(one: dict[str, Any]) -> xr.Variable:
    dims, shape = [str(name) for name in one["dims"]], [int(size) for size in one["shape"]]
    if one["dtype"] == "text":
        return xr.Variable(dims, np.array([str(text) for text in one["data"]]).reshape(shape))
    if one["dtype"] not in _DTYPES:
        raise ValueError(one["dtype"])
    dtype = np.dtype(one["dtype"]).newbyteorder("<")
    try:
        data = base64.b64decode(one["data"], validate=True)
    except binascii.Error as error:
        raise ValueError("data") from error
    if len(data) != math.prod(shape) * dtype.itemsize or min(shape, default=0) < 0:
        raise ValueError("shape")
    return xr.Variable(dims, np.frombuffer(data, dtype).reshape(shape).astype(one["dtype"]))
