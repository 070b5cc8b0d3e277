"""Records of a tracker in a file that grows with them, for `saddlescope watch` and for after the run."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.output_paths import require_writable_file
from saddlescope.store import RecordLog, read_log


class RankFile:
    """File with all records of one run; see `saddlescope.store.RecordLog`.

    A file of another run is renamed and stays. One of the same run, which has the same initial spectra, is replaced: a
    resumed run writes the records of its checkpoint and goes on. A failed write is a warning and does not end training.

    Raises:
        StorageError: it is no regular file or has other content, or its folder cannot be written.
    """

    def __init__(self, path: Path) -> None:
        require_writable_file(path, begins=RecordLog.begins)
        self.path = path
        self._log = RecordLog(path)
        self._written: tuple[int, ...] = ()
        self._failed = False

    def update(self, steps: Sequence[int], records_since: Callable[[int], xr.Dataset]) -> None:
        """Write the records that are not in the file.

        Args:
            steps: of all records.
            records_since: function from an index to the data set of the records from there on.
        """
        if self._failed:
            return
        present, written = tuple(steps), self._written
        try:
            if written and present[: len(written)] == written:
                if len(present) > len(written):
                    self._log.append(records_since(len(written)))
            else:
                everything = records_since(0)
                if not written:
                    self._keep_other_run(everything)
                self._log.write(everything)
            self._written = present
        except (InputError, OSError) as error:  # StorageError is an InputError
            self._failed = True
            warnings.warn(f"{error} The tracker goes on without the file.", stacklevel=5)

    def _keep_other_run(self, ours: xr.Dataset) -> None:
        if not self.path.exists():
            return
        with suppress(InputError):  # what is no file of records is kept, too
            if _same_start(read_log(self.path), ours):
                return
        free = (self.path.with_name(f"{self.path.stem}-{k}{self.path.suffix}") for k in range(1, 10**6))
        kept = self.path.rename(next(path for path in free if not path.exists()))
        warnings.warn(f"{self.path} was of another run; it is now {kept}.", stacklevel=6)


def _same_start(one: xr.Dataset, other: xr.Dataset) -> bool:
    names = [str(name) for name in other.data_vars if str(name).endswith("initial_spectrum")]
    return all(name in one and np.array_equal(one[name].values, other[name].values, equal_nan=True) for name in names)
