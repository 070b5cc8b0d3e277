"""One netCDF file a run: write it whole or not at all, read it, find all of them.

The files are netCDF4 (HDF5) and open in xarray, ncdump, MATLAB or R. Behind the content stands its SHA-256, which is
compared before anything is interpreted: damage is an error and never a wrong number. Nothing is pickled.
"""

import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from tempfile import NamedTemporaryFile

import xarray as xr

from saddlescope._shared.errors import InputError, StorageError

COPIES = ".saddlescope-gallery"
"""A folder with a file of this name holds copies of runs, for readers of a page; `find` passes it by."""

SWEEPS = ".saddlescope-sweeps"
"""A folder with a file of this name holds sweeps, whose many runs are shown together; `find` passes it by."""

_one_writer = threading.Lock()
_DENSEST, _ROOM = 1100, 2**26  # no deflated array is smaller by more, and small ones may be: bytes to bytes, and bytes

_SEAL = b"\nsaddlescope run 1, sha256 "


def write(dataset: xr.Dataset, path: str | os.PathLike[str]) -> Path:
    """Writes a run whole or not at all: readers see the old file or the new one, even if this is killed.

    Args:
        dataset: variables of numbers or text over labelled dimensions; attributes are numbers or text.
        path: the file, usually with the suffix `.nc`; an existing one is replaced, an absent folder is made.

    Returns:
        The path.

    Raises:
        StorageError: the disk is full or the folder cannot be written; nothing is left behind.
    """
    encoding = {
        name: {"zlib": True, "complevel": 4, "shuffle": True}
        for name, variable in dataset.variables.items()
        if variable.ndim and variable.size and variable.dtype.kind in "biuf"
    }
    # Built in memory: a full disk is then one plain error of one plain write, and HDF5 never meets it.
    content = BytesIO()
    with _unlocked():
        dataset.to_netcdf(content, engine="h5netcdf", encoding=encoding)
    return write_bytes(content.getvalue() + _seal(content.getbuffer()), path)


def write_bytes(content: bytes, path: str | os.PathLike[str]) -> Path:
    """Writes a file whole or not at all, such as a stored run that came from another machine.

    Raises:
        StorageError: the disk is full or the folder cannot be written; nothing is left behind.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, content)
    except OSError as error:
        raise StorageError(f"Cannot write {path}: {_reason(error)}. Give another folder, or make room.") from error
    return path


@contextmanager
def _unlocked() -> Iterator[None]:
    """At a worker of Dask, xarray would ask the scheduler for a lock on the file, which here is memory of our own."""
    if "dask" not in sys.modules:
        yield
        return
    import dask.config

    with _one_writer, dask.config.set(scheduler="synchronous"):  # the setting holds for all threads
        yield


def _replace(path: Path, content: bytes) -> None:
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False) as file:
        temporary = Path(file.name)
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            temporary.chmod(0o666 & ~_umask())  # temporary files are private; results need not be
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    _sync_folder(path.parent)


def read(path: str | os.PathLike[str]) -> xr.Dataset:
    """A stored run, loaded into memory.

    Raises:
        InputError: there is no such file, it is damaged, or it is not a run of saddlescope.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no stored run {path}.")
    try:
        stored = path.read_bytes()
    except OSError as error:
        raise InputError(f"Cannot read {path}: {_reason(error)}.") from error
    content, seal = stored[: -len(_seal(b""))], stored[-len(_seal(b"")) :]
    if seal != _seal(content):
        raise InputError(
            f"{path} is damaged, or was not stored by this version of saddlescope: delete it and run the entry again."
        )
    _refuse_traps(path, content)
    try:
        return xr.load_dataset(BytesIO(content), engine="h5netcdf", decode_times=False)
    except Exception as error:  # of h5netcdf or xarray, whatever it is: what they cannot read is no run
        raise InputError(f"{path} is no stored run ({type(error).__name__}: {error}); run the entry again.") from error


def _refuse_traps(path: Path, content: bytes) -> None:
    """Refuses what no run has, since anybody can seal a file: ways out of it, and arrays that would fill the memory.

    Raises:
        InputError: it has, or it is no HDF5 file.
    """
    import h5py

    try:
        with h5py.File(BytesIO(content), "r") as file:
            links = [type(file.get(name, getlink=True)) for name in file]
            arrays = [file[name] for name in file] if all(link is h5py.HardLink for link in links) else []
            inside = len(arrays) == len(links)
            size = 0
            for array in arrays:
                if not isinstance(array, h5py.Dataset) or array.external or array.is_virtual:
                    inside = False
                else:
                    size += array.nbytes
    except Exception as error:  # of h5py, whatever it is
        raise InputError(f"{path} is no stored run ({type(error).__name__}: {error}); run the entry again.") from error
    if not inside:
        raise InputError(f"{path} must hold its arrays itself; got links or groups. Run the entry again.")
    if size > _ROOM + _DENSEST * len(content):
        raise InputError(
            f"{path} must hold at most {_DENSEST} times what it takes on the disk; got {size / 2**30:.3g} GiB of arrays"
            f" in {len(content) / 2**20:.3g} MiB. Run the entry again."
        )


def find(folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """All stored runs below a folder, in the order of their names.

    Hidden files, the scratch folders of unfinished runs, sweeps and galleries are passed by.

    Raises:
        InputError: there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}; name the one that was given to --out.")
    found = []
    for here, folders, files in os.walk(folder):
        if COPIES in files or SWEEPS in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".") and not name.endswith(".partial")]
        found += [Path(here, name) for name in files if name.endswith(".nc") and not name.startswith(".")]
    return tuple(sorted(found))


def _seal(content: bytes | memoryview) -> bytes:
    """What follows the content of a stored run: HDF5 ignores it, and it tells whether the content is whole."""
    return _SEAL + hashlib.sha256(content).hexdigest().encode() + b"\n"


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text.splitlines()[0].rstrip(".")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Makes the rename itself survive a power cut, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
