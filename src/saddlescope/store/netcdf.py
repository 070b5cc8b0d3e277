"""One netCDF file per run: write it atomically, read it, find all of them.

The files are netCDF4 (HDF5) and open in xarray, ncdump, MATLAB or R. The content is followed by its SHA-256, which is
compared before anything is interpreted: damage is an error and never a wrong number. Nothing is pickled.
"""

import hashlib
import os
import sys
import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import xarray as xr

from saddlescope._shared.atomic_files import write_atomically
from saddlescope._shared.errors import InputError, StorageError
from saddlescope._shared.output_paths import new_folder, other_than_file, reason
from saddlescope.store.untrusted_content import DENSEST, SMALL, ForeignContentError, numbers_size, require_bounded

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
        InputError: a variable or an attribute that a netCDF file cannot hold, or that `read` refuses.
        StorageError: the disk is full or the folder cannot be written; no partial file remains.
    """
    encoding = {
        name: {"zlib": True, "complevel": 4, "shuffle": True}
        for name, variable in dataset.variables.items()
        if variable.ndim and variable.size and variable.dtype.kind in "biuf"
    }
    content = _in_memory(dataset, encoding)  # a full disk is then an error of one write, outside HDF5
    sizes = (numbers_size(dataset[name].size, dataset[name].dtype.itemsize) for name in encoding)
    if sum(sizes) > SMALL + DENSEST * len(content):
        content = _in_memory(dataset, {})  # what expands by so much is not read
    return write_bytes(content + _seal(content), path)


def as_stored(dataset: xr.Dataset) -> xr.Dataset:
    """Return a run as `read` would return it once it is written."""
    return _load(_in_memory(dataset, {}))


def _in_memory(dataset: xr.Dataset, encoding: dict[Hashable, Any]) -> bytes:
    """Return the content of the netCDF file of a run.

    Raises:
        InputError: a variable or an attribute that it cannot hold.
    """
    for name, variable in dataset.variables.items():
        if variable.dtype.kind == "c":
            raise InputError(f"{name} must be real to be stored; got complex numbers. Store both parts by themselves.")
    content = BytesIO()
    try:
        with _unlocked():
            dataset.to_netcdf(content, engine="h5netcdf", encoding=encoding)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The data set cannot be stored as netCDF: {str(error).rstrip('.')}. Store real numbers and text, under"
            " names without /."
        ) from error
    return content.getvalue()


def _load(content: bytes) -> xr.Dataset:
    return xr.load_dataset(BytesIO(content), engine="h5netcdf", decode_times=False)


def write_bytes(content: bytes, path: str | os.PathLike[str]) -> Path:
    """Write a file atomically, such as a stored run from another machine.

    Raises:
        StorageError: the disk is full or the folder cannot be written; no partial file remains.
    """
    path = Path(path)
    try:
        with new_folder(path.parent):  # which a failure leaves no trace of
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
            raise InputError(f"{path} must be a stored run; got {kind}. Remove it.")
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
    _refuse_traps(path, content)
    try:
        return _load(content)
    except Exception as error:  # of h5netcdf or xarray: whatever they cannot read is no run
        raise InputError(f"{path} is no stored run ({type(error).__name__}: {error}); rerun the entry.") from error


def _refuse_traps(path: Path, content: bytes) -> None:
    """Raise InputError if a file has what no run has; the SHA-256 does not exclude it, since anybody can compute it.

    Raises:
        InputError: it has, or it is no HDF5 file.
    """
    import h5py

    try:
        with h5py.File(BytesIO(content), "r") as file:
            require_bounded(file, content)
    except ForeignContentError as error:
        raise InputError(f"{path} must {error}. Rerun the entry.") from error
    except Exception as error:  # of h5py, of any type
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
