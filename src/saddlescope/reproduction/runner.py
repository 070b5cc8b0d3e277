"""A reproduction: one stored run of an entry, with its verdicts and figures. Making one, and opening one."""

import dataclasses
import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError, MissingExtraError, StorageError
from saddlescope._shared.reprs import ReprMixin, Table
from saddlescope.plot.figure import Figure
from saddlescope.reproduction import entry as entries
from saddlescope.reproduction.claim import Verdict
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.formatting import record, summary, verdict_table

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Reproduction(ReprMixin):
    """One stored run of an entry.

    Attributes:
        file: where it is stored.
        entry: what it is a run of.
        provenance: where it comes from.
        run: the data.
    """

    file: Path
    entry: entries.Entry
    provenance: store.Provenance
    run: xr.Dataset

    def __repr__(self) -> str:
        return f"Reproduction({self.entry.name!r}, {self.provenance.label}: {self._verdicts_in_short()}; {self.file})"

    def _verdicts_in_short(self) -> str:
        try:
            return summary(verdict.outcome for verdict in self.verdicts)
        except InputError:
            return "stored by another version, its claims cannot be judged"

    def _table(self) -> Table:
        try:
            return verdict_table(self.verdicts)
        except InputError as error:
            return ("claims",), ((str(error),),)

    @classmethod
    def open(cls, file: str | os.PathLike[str]) -> "Reproduction":
        """Reads a stored run; nothing is run.

        Raises:
            InputError: the file is damaged or foreign, or its entry does not exist any more.
        """
        run = store.read(file)
        try:
            provenance = store.Provenance.of(run)
            entry = entries.find(provenance.entry)
        except InputError as error:
            raise InputError(f"{file}: {error}") from error
        return cls(Path(file), entry, provenance, run)

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The claims held against the stored data, now."""
        with self._reading("claims"):
            return self.entry.judge(self.run)

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """The entry's pictures of the stored data."""
        with self._reading("pictures"):
            return tuple(self.entry.figures(self.run))

    def records(self) -> list[dict[str, Any]]:
        """The verdicts as JSON values, each with the entry and the size."""
        where = {"entry": self.entry.name, "size": self.provenance.label}
        return [where | record(verdict) for verdict in self.verdicts]

    def changed_claims(self) -> tuple[str, ...]:
        """The names of claims whose bounds or words are not those the run was stored with.

        Bounds are written down before a run and stay; a change afterwards should be seen.

        Raises:
            InputError: the stored verdicts cannot be read.
        """
        try:
            stored = {told["claim"]: dict(told) for told in json.loads(self.run.attrs.get("verdicts", "[]"))}
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{self.file} must hold its verdicts as a list; got others. Run it with --again."
            ) from error
        fixed = ("says", "low", "high", "unit")
        now = self.records()
        return tuple(
            told["claim"] for told in now if any(told[f] != stored.get(told["claim"], told).get(f) for f in fixed)
        )

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except (IndexError, TypeError, ValueError) as error:
            raise InputError(
                f"{self.file} holds other data than the {what} of {self.entry.name} read ({type(error).__name__}:"
                f" {error}); saddlescope {self.provenance.versions.get('saddlescope', 'unknown')} stored it."
                " Run it with --again."
            ) from error
        except (KeyError, AttributeError) as error:
            # run.loss and run["loss"] tell an absent variable in different ways; other errors are ours
            if isinstance(error, AttributeError) and not str(error).startswith("'Dataset'"):
                raise
            raise InputError(
                f"{self.file} lacks {str(error).split()[-1]}, which the {what} of {self.entry.name} need: saddlescope"
                f" {self.provenance.versions.get('saddlescope', 'unknown')} stored it. Run it with --again."
            ) from error


def stored_files(folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """The files of all runs stored below a folder.

    Raises:
        InputError: there is no such folder, or no run in it.
    """
    if files := store.find(folder):
        return files
    raise InputError(f"There are no stored runs in {folder}; make one with: saddlescope run ENTRY --out {folder}")


def reproduce(
    entry: entries.Entry,
    *,
    out: str | os.PathLike[str],
    size: str = "default",
    settings: Mapping[str, str] | None = None,
    data: Path | None = None,
    again: bool = False,
    report: Callable[[float, str], None] = lambda fraction, note: None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Reproduction:
    """Runs an entry, judges it, and stores both; a run that is stored already is judged again, not run again.

    A run that is killed, at any moment, leaves no result and goes on where it was when it is called again.

    Args:
        entry: what to run.
        out: the output folder; the result lies in `OUT/<paper>/<entry>/<size>.nc`, or under a digest when
            parameters were set by hand.
        size: of the parameters: quick, default or paper.
        settings: parameters set by hand on top of it, as for `Entry.params`.
        data: folder with data sets in their official formats, if there is one.
        again: run although a result is stored; it is replaced at the end.
        report: called with the finished fraction and a note while the entry runs.
        say: called with a sentence on what is found: a stored result, the leftover of an interrupted run.

    Returns:
        The stored run.

    Raises:
        InputError: parameters, output folder or data cannot be used, or another process is at the same run.
    """
    settings = dict(settings or {})
    params = entry.params(size, settings)
    if params == entry.params(size):
        settings = {}
    values = json_values(params)
    place = store.RunFolder(Path(out), entry.name, values, "" if settings else size)
    if place.file.exists() and not again:
        stored = Reproduction.open(place.file)
        if stored.provenance.params == values:
            say(f"{place.file} is stored already: judging it again. --again runs it anew.")
            return stored
        say(f"{place.file} holds other parameters (its version's {size}): running anew.")
    with place.lock() as scratch:
        if any(scratch.iterdir()):
            say(f"Going on with what an interrupted run left in {scratch}.")
        run = stamped_run(entry, params, RunContext(scratch, report, data), size, settings)
        store.write(run, place.file)
        made = Reproduction.open(place.file)  # judged as stored, so that `check` says the same
        vars(made)["verdicts"] = entry.judge(made.run)  # what breaks a claim now is a defect, and no fault of a file
        store.write(run.assign_attrs(verdicts=json.dumps(made.records(), ensure_ascii=False)), place.file)
        place.clear()
    return made


def json_values(params: Any) -> dict[str, Any]:
    """Parameters as JSON values, as they are stored and hashed."""
    return json.loads(json.dumps(dataclasses.asdict(params)))


def stamped_run(
    entry: entries.Entry, params: Any, context: RunContext, size: str, settings: Mapping[str, str]
) -> xr.Dataset:
    """Runs an entry, going on with what an interrupted run left in the scratch folder; the run has its provenance.

    Raises:
        InputError: the entry cannot be run so.
        MissingExtraError: it needs an extra that is not installed.
        StorageError: the disk is full, or cannot be written.
    """
    resumed = any(context.scratch.iterdir())
    stop = store.stopwatch()
    with _disk_named(context.scratch.parent), _extra_named(entry):
        run = entry.run(params, context)
    return stamp(run, entry, params, size, settings, resumed, stop())


def stamp(
    run: xr.Dataset,
    entry: entries.Entry,
    params: Any,
    size: str,
    settings: Mapping[str, str],
    resumed: bool,
    measured: Mapping[str, Any],
) -> xr.Dataset:
    """The run with its provenance: what it is a run of, and what the stopwatch `measured` of it."""
    values = json_values(params)
    made = store.Provenance(entry=entry.name, size=size, settings=settings, params=values, resumed=resumed, **measured)
    return made.stamp(run)


@contextmanager
def _extra_named(entry: entries.Entry) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        if (missing := MissingExtraError.of(entry.name, error)) is None:
            raise
        raise missing from error


@contextmanager
def _disk_named(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK:
            raise
        raise StorageError(
            f"The run stopped while it wrote in {out}: {error.strerror}."
            " Make room; the same command goes on where it was."
        ) from error
