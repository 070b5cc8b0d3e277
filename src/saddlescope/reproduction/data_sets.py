"""Data sets that the runs of an entry read: by name and checksum they are part of the identity of a run."""

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin


@runtime_checkable
class Digested(Protocol):
    """Data with a checksum of their whole content."""

    def digest(self) -> str:
        """Return the SHA-256 of the content, in hexadecimal digits."""
        ...


Reader = Callable[[str, Path | None, Report], Digested]
"""Function that reads the data set of a name from the folder of data sets, None if none was given, and reports."""


@dataclass(frozen=True, repr=False)
class DataSets(ReprMixin):
    """Data sets of an entry.

    Attributes:
        read: reads one; it raises InputError if the files are absent, and never returns another data set.
        parameters: names of the parameters that name a data set each.
        names: data sets that every run reads.
    """

    read: Reader
    parameters: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def checksums(
        self,
        params: Any,
        folder: Path | None,
        *,
        known: MutableMapping[str, str] | None = None,
        report: Report = silent,
    ) -> dict[str, str]:
        """Return the checksum of each data set that a run with these parameters reads, by name.

        Args:
            params: of the run.
            folder: of data sets, if one was given.
            known: checksums of data sets that were read before from the same folder; those read now are added.
            report: called with the finished fraction and a note while data are read.

        Raises:
            InputError: a data set is absent or damaged.
        """
        known = {} if known is None else known
        names = dict.fromkeys([*self.names, *(getattr(params, name) for name in self.parameters)])
        for name in names:
            if name not in known:
                known[name] = self.read(name, folder, report).digest()
        return {name: known[name] for name in names}


def data_in_words(data_sets: Mapping[str, str]) -> str:
    """Return names and checksums for display: "mnist (SHA-256 0123456789ab...)"."""
    return ", ".join(f"{name} (SHA-256 {checksum[:12]}...)" for name, checksum in data_sets.items())
