"""One netCDF file per run: write it atomically, read it, find all of them.

The files are netCDF4 (HDF5) and open in xarray, ncdump, MATLAB or R. The content is followed by its SHA-256, which is
compared before anything is interpreted: damage is an error and never a wrong number. Nothing is pickled.
"""

import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.arguments import shown
from saddlescope._shared.atomic_files import write_atomically
from saddlescope._shared.errors import InputError, StorageError
from saddlescope._shared.output_paths import new_folder, other_than_file, output_file, reason
from saddlescope.store.untrusted_content import ForeignContentError, require_bounded

COPIES = ".saddlescope-gallery"
"""Name of the file that marks a folder of copies of runs, as a gallery has; `find_runs` skips the folder."""

SWEEPS = ".saddlescope-sweeps"
"""Name of the file that marks a folder of sweeps, whose runs are shown together; `find_runs` skips the folder."""

PARTS = ".saddlescope-parts"
"""Name of the file that marks a folder of parts that runs share; `find_runs` skips the folder."""

_one_writer = threading.Lock()

_SEAL = b"\nsaddlescope run 1, sha256 "


def write(dataset: xr.Dataset, path: str | os.PathLike[str]) -> Path:
    """Write a run atomically: readers see the old file or the new one, even if the process is killed.

    Args:
        dataset: variables of numbers or text over labelled dimensions; attributes are numbers or text.
        path: the file, usually with the suffix `.nc`; an existing one is replaced, an absent folder is created.

    Returns:
        The path.

    Raises:
        InputError: no data set, or one with a variable or an attribute that a netCDF file cannot hold, or that `read`
            would return as another one, such as dates, or numbers with an attribute `scale_factor`.
        StorageError: the disk is full or the folder cannot be written; no partial file remains.
    """
    content, _ = _stored(dataset)  # a full disk is then an error of one write, outside HDF5
    return write_bytes(content + _seal(content), path)


def as_stored(dataset: xr.Dataset) -> xr.Dataset:
    """Return a run as `read` would return it once it is written.

    Raises:
        InputError: as by `write`.
    """
    _, stored = _stored(dataset)
    return stored


def _stored(dataset: xr.Dataset) -> tuple[bytes, xr.Dataset]:
    """Return the content of the netCDF file of a run, and the run that is read back from it.

    Raises:
        InputError: it is not the same run.
    """
    if not isinstance(dataset, xr.Dataset):
        raise InputError(f"dataset must be an xarray Dataset to be stored; got {shown(dataset)}.")
    content = _in_memory(dataset, {"zlib": True, "complevel": 4, "shuffle": True})
    try:
        stored = _load(content)
    except ForeignContentError:  # zeros and padded text expand by more than is read
        content = _in_memory(dataset, {})
        try:
            stored = _load(content)
        except ForeignContentError as error:
            raise InputError(f"The data set cannot be stored as netCDF: it must {error}.") from error
    if changed := _changed(dataset, stored):
        raise InputError(
            f"The data set cannot be stored as netCDF: {changed} would be read back as another one. Store real numbers"
            " and text, dates among them, and rename attributes that readers of netCDF interpret, such as scale_factor."
        )
    return content, stored


def _in_memory(dataset: xr.Dataset, compression: dict[str, Any]) -> bytes:
    """Return the content of the netCDF file of a run; text has a fixed length.

    Raises:
        InputError: a variable or an attribute that it cannot hold.
    """
    plain = dataset.drop_encoding()  # that of another file may round numbers
    empty = {name: v.astype(str) for name, v in plain.variables.items() if v.dtype == object and not v.size}
    plain = plain.assign_coords({name: v for name, v in empty.items() if name in plain.coords})
    plain = plain.assign({name: v for name, v in empty.items() if name not in plain.coords})
    for name, variable in plain.variables.items():
        if variable.dtype.kind == "c":
            raise InputError(f"{name} must be real to be stored; got complex numbers. Store both parts by themselves.")
        if variable.dtype.kind in "OU":
            variable.encoding |= {"dtype": "S1", "char_dim_name": f"characters of {name}"}
        if variable.ndim and variable.size and variable.dtype.kind in "biufOU":
            variable.encoding |= compression
    content = BytesIO()
    try:
        with _unlocked():
            plain.to_netcdf(content, engine="h5netcdf")
    except MemoryError:
        raise
    except Exception as error:  # of xarray or h5netcdf, of many types
        raise InputError(
            f"The data set cannot be stored as netCDF: {str(error).rstrip('.')}. Store real numbers and text, under"
            " names without /."
        ) from error
    return content.getvalue()


def _load(content: bytes) -> xr.Dataset:
    """Return the run in the content of a file.

    Raises:
        ForeignContentError: it has what no run has; the SHA-256 does not exclude it, since anybody can compute it.
    """
    import h5py

    with h5py.File(BytesIO(content), "r") as file:
        require_bounded(file, len(content))
    try:
        return xr.load_dataset(BytesIO(content), engine="h5netcdf", decode_times=False)
    except (TypeError, ValueError, AttributeError) as error:
        raise ForeignContentError(
            f"have content that readers of netCDF can interpret, numbers as scale_factor and the like ({error})"
        ) from error


def _changed(run: xr.Dataset, stored: xr.Dataset) -> str:
    """Return the first part of a run that is another one in the stored run; empty if there is none."""
    if strange := set(run.variables) ^ set(stored.variables) or set(run.coords) ^ set(stored.coords):
        return f"the variable {next(iter(strange))}"
    for name, variable in run.variables.items():
        if variable.dims != stored.variables[name].dims or not _same(variable.values, stored.variables[name].values):
            return f"the variable {name}"
    holders = {"": (run.attrs, stored.attrs)}
    holders |= {f" of {name}": (run.variables[name].attrs, stored.variables[name].attrs) for name in run.variables}
    for of, (given, read_back) in holders.items():
        for name in {**given, **read_back}:
            if name not in given or name not in read_back or not _same(given[name], read_back[name]):
                return f"the attribute {name}{of}"
    return ""


def _same(given: Any, read_back: Any) -> bool:
    """Return True if two arrays or attributes have the same type, shape and values; all text is of one type."""
    one, other = np.asarray(given), np.asarray(read_back)
    if one.dtype.kind in "OUT" and other.dtype.kind in "OUT":
        return one.shape == other.shape and all(map(_same_text, one.flat, other.flat))
    same_type = one.dtype.newbyteorder("=") == other.dtype.newbyteorder("=")
    return same_type and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _same_text(given: Any, read_back: Any) -> bool:
    return isinstance(given, str) and given == read_back  # pandas' NA is no text


def write_bytes(content: bytes, path: str | os.PathLike[str]) -> Path:
    """Write a file atomically, such as a stored run from another machine.

    Raises:
        StorageError: the disk is full or the folder cannot be written; no partial file remains.
    """
    path = Path(path)
    try:
        with new_folder(output_file(path).parent):  # which a failure leaves no trace of
            write_atomically(path, content)
    except OSError as error:
        raise StorageError(f"Cannot write {path}: {reason(error)}. Give another folder, or free some space.") from error
    return path


@contextmanager
def _unlocked() -> Iterator[None]:
    """Keep xarray at a Dask worker from asking the scheduler for a lock on the file, which is in memory."""
    if "dask" not in sys.modules:
        yield
        return
    import dask.config

    with _one_writer, dask.config.set(scheduler="synchronous"):  # the setting holds for all threads
        yield


def read(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read a stored run into memory.

    Raises:
        InputError: the file is absent, damaged, or not a run of saddlescope.
    """
    path = Path(path)
    try:
        if (kind := other_than_file(path)) is not None:  # reading a pipe would wait for its writer
            raise InputError(f"{path} must be a stored run; got {kind}. Pass a file, or move it elsewhere.")
        if not path.exists():
            raise InputError(f"There is no stored run {path}.")
        stored = path.read_bytes()
    except OSError as error:
        raise InputError(f"Cannot read {path}: {reason(error)}.") from error
    content, seal = stored[: -len(_seal(b""))], stored[-len(_seal(b"")) :]
    if seal != _seal(content):
        raise InputError(
            f"{path} is damaged, or no run of this version of saddlescope. Rerun its entry with --again, or move"
            " the file elsewhere."
        )
    try:
        return _load(content)
    except ForeignContentError as error:
        raise InputError(f"{path} must {error}. Rerun the entry.") from error
    except Exception as error:  # of h5py, h5netcdf or xarray: whatever they cannot read is no run
        raise InputError(f"{path} is no stored run ({type(error).__name__}: {error}); rerun the entry.") from error


def find_runs(folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Return all stored runs below a folder, in the order of their names.

    Hidden files, scratch folders of unfinished runs, shared parts, sweeps and galleries are skipped.

    Raises:
        InputError: the folder does not exist.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}; name the one that was given to --out.")
    found = []
    for here, folders, files in os.walk(folder):
        if {COPIES, SWEEPS, PARTS} & set(files):
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".") and not name.endswith(".partial")]
        found += [Path(here, name) for name in files if name.endswith(".nc") and not name.startswith(".")]
    return tuple(sorted(found))


def _seal(content: bytes | memoryview) -> bytes:
    """Return the checksum that follows the content of a stored run; HDF5 ignores it."""
    return _SEAL + hashlib.sha256(content).hexdigest().encode() + b"\n"
