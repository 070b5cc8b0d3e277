"""Reproductions: run an entry, store the run, and judge it; open a stored run."""

import dataclasses
import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import BusyError, InputError, MissingExtraError, StorageError
from saddlescope._shared.json_text import parse_json
from saddlescope._shared.outside_causes import outside_cause
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin, Table
from saddlescope.figures.records import Figure
from saddlescope.reproduction import entry as entries
from saddlescope.reproduction.catalogue import own_file, toy_names
from saddlescope.reproduction.claim import Verdict
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.data_sets import data_in_words
from saddlescope.reproduction.formatting import record, summary, verdict_table
from saddlescope.reproduction.own_code import own_errors_named, saved_since
from saddlescope.reproduction.parameters import Parameter

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}


def why_unjudged(entry: entries.Entry, size: str, settings: Mapping[str, object]) -> str:
    """Return why a run's verdicts count for nothing, in a sentence; empty if they count."""
    if entry.name in toy_names():
        return "The bounds of a toy only guide the eye."
    if size == "quick":
        return "A quick run is a smoke test; the default size judges the claims."
    try:
        changed = entry.changed(size, settings)
    except InputError:  # a parameter of another version
        changed = dict(settings)
    if not changed:
        return ""
    words = ", ".join(f"{name}={text}" for name, text in changed.items())
    return f"The bounds were set for the {size} parameters, and this run has {words}."


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Reproduction(ReprMixin):
    """One stored run of an entry.

    Attributes:
        file: the stored file.
        entry: the entry.
        provenance: the provenance stored with it.
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
            judged = summary(self.verdicts)
        except InputError:
            return "stored by another version; its claims cannot be judged"
        return "not judged" if self.unjudged else judged

    def _table(self) -> Table:
        try:
            return verdict_table(self.verdicts)
        except InputError as error:
            return ("claims",), ((str(error),),)

    @classmethod
    def open(cls, file: str | os.PathLike[str]) -> "Reproduction":
        """Read a stored run; nothing is simulated.

        Raises:
            InputError: the file is damaged or foreign, or its entry no longer exists.
        """
        run = store.read(file)
        try:
            provenance = store.Provenance.of(run)
            entry = entries.find_entry(provenance.entry)
        except InputError as error:
            raise InputError(f"{file}: {error}") from error
        return cls(Path(file), entry, provenance, run)

    @property
    def unjudged(self) -> str:
        """Reason why the verdicts of this run count for nothing, in a sentence; empty if they count."""
        return why_unjudged(self.entry, self.provenance.size, self.provenance.settings)

    @property
    def scaling(self) -> str:
        """For a run of the reduced size, what it has in place of the paper's values; otherwise empty."""
        return self.entry.scaling(self.provenance.settings) if self.provenance.size == "reduced" else ""

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts of the current claims on the stored data."""
        with self._reading("claims"):
            return self.entry.judge(self.run)

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """Figures of the stored data."""
        with self._reading("pictures"):
            figures = tuple(self.entry.figures(self.run))
        if wrong := [figure for figure in figures if not isinstance(figure, Figure)]:
            raise InputError(f"{self.entry.name} must draw a list of Figure; got {wrong[0]!r}. Mend the entry.")
        return figures

    def records(self) -> list[dict[str, Any]]:
        """Return the verdicts as JSON values, each with the entry, the size, the data sets, and why it is unjudged."""
        where = {"entry": self.entry.name, "size": self.provenance.label}
        where |= {"scaling": self.scaling} if self.scaling else {}
        where |= {"data_sets": dict(self.provenance.data_sets)} if self.provenance.data_sets else {}
        where |= {"unjudged": self.unjudged} if self.unjudged else {}
        return [where | record(verdict) for verdict in self.verdicts]

    def changed_claims(self) -> tuple[str, ...]:
        """Return the names of claims whose bounds or words changed after the run was stored.

        Bounds are fixed before a run; a later change must be visible.

        Raises:
            InputError: the stored verdicts cannot be read.
        """
        try:
            stored = {one["claim"]: dict(one) for one in parse_json(self.run.attrs.get("verdicts", "[]"))}
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{self.file} must hold its verdicts as a list of records; got {self.run.attrs['verdicts']!r:.40}."
                " Rerun it with --again."
            ) from error
        fixed = ("statement", "quantity", "kind", "low", "high", "unit")
        now = self.records()
        return tuple(one["claim"] for one in now if any(one[f] != stored.get(one["claim"], one).get(f) for f in fixed))

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except (ArithmeticError, AttributeError, LookupError, SystemExit, TypeError, ValueError) as error:
            # run.loss and run["loss"] raise different errors for an absent variable
            of_run = isinstance(error, AttributeError) and str(error).startswith("'Dataset'")
            lacking = of_run or isinstance(error, KeyError)
            with own_errors_named(self.entry.name):
                if not lacking and (isinstance(error, AttributeError) or own_file(self.entry.name)):
                    raise
            fault = f"holds other data than the {what} of {self.entry.name} read ({type(error).__name__}: {error})"
            if lacking:
                fault = f"lacks {str(error).split()[-1]}, which the {what} of {self.entry.name} need"
            version = self.provenance.versions.get("saddlescope", "unknown")
            raise InputError(f"{self.file} {fault}: saddlescope {version} stored it. Rerun it with --again.") from error


def stored_files(folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Return the files of all runs stored below a folder.

    Raises:
        InputError: the folder does not exist or contains no run.
    """
    if files := store.find_runs(folder):
        return files
    raise InputError(f"There are no stored runs in {folder}; store one with: saddlescope run ENTRY --out {folder}")


def reproduce(
    entry: entries.Entry | str,
    *,
    out: str | os.PathLike[str] = "results",
    size: str = "default",
    settings: Mapping[str, object] | None = None,
    data: str | os.PathLike[str] | None = None,
    again: bool = False,
    report: Report = silent,
    say: Callable[[str], None] = lambda sentence: None,
) -> Reproduction:
    """Run an entry, judge it, and store both; a stored run is judged again, not simulated again.

    A run that is killed, at any moment, leaves no result; call this again to resume it.

    Args:
        entry: the entry to run, or its name.
        out: the output folder; the result is `OUT/<paper>/<entry>/<size>.nc`, or named by a digest if parameters were
            set by hand.
        size: of the parameters: quick, default, reduced (if the entry has it) or paper.
        settings: parameters set by hand: their values, or text as typed after `--set`.
        data: folder with data sets in their official formats, if any. Data sets are part of what identifies a run, by
            name and checksum: a run on other data is another run, and none is replaced by another unasked.
        again: run although a result is stored; it is replaced at the end.
        report: called with the finished fraction and a note while the entry runs.
        say: called with a sentence about a stored result or an interrupted run that it found.

    Returns:
        The stored run.

    Raises:
        InputError: parameters, output folder or data cannot be used, or another process is working on the same run.
        KeyboardInterrupt: with a sentence that says what is kept.
    """
    entry = entries.find_entry(entry) if isinstance(entry, str) else entry
    typed = {name: Parameter.text(value) for name, value in (settings or {}).items()}
    params = entry.configure(size, typed)
    if params == entry.configure(size):
        typed = {}
    values, data = json_values(params), None if data is None else Path(data)
    data_sets = entry.checksums(params, data, report=report)
    folder = store.RunFolder(Path(out), entry.name, identity(values, data_sets), "" if typed else size)
    if folder.file.exists() and not again:
        stored = Reproduction.open(folder.file)
        if stored.provenance.params == values and stored.provenance.data_sets == data_sets:
            _repair(stored, folder)
            since = saved_since(entry.name, [folder.file])
            say(f"{folder.file} is stored already{since}: judging it again. Pass --again to rerun it.")
            return stored
        if stored.provenance.params == values:
            read = data_in_words(stored.provenance.data_sets) or "data without a checksum"
            say(f"{folder.file} was made from {read}, not from {data_in_words(data_sets)}: rerunning.")
        else:
            say(f"{folder.file} holds other parameters (its version's {size}): rerunning.")
    with folder.lock() as scratch:
        if again:
            folder.restart()
        if parts := [*scratch.glob("[!.]*")]:
            since = saved_since(entry.name, parts)
            cure = ": pass --again to start over" if since else ""
            say(f"Resuming the interrupted run in {scratch}{since}{cure}.")
        context = RunContext(scratch, report, data, Path(out) / "parts", again, data_sets)
        try:
            run = stamped_run(entry, params, context, size, typed)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"Interrupted; finished parts, if any, are kept below {folder.out}. Rerun the same command to resume: "
                "it repeats only the part in progress, from its last checkpoint if it has one."
            ) from None
        stored = _stored(run, entry, size, folder)
        folder.clear()
        context.report(1.0, "done")
    return stored


def store_run(entry: entries.Entry, run: xr.Dataset, *, out: str | os.PathLike[str]) -> Reproduction:
    """Judge and store a run that `stamped_run` made, in the file that `reproduce` would write; it replaces another one.

    Raises:
        InputError: the folder cannot be written, or another process is working on the same run.
    """
    made = store.Provenance.of(run)
    names = identity(made.params, made.data_sets)
    folder = store.RunFolder(Path(out), entry.name, names, "" if made.settings else made.size)
    with folder.lock():
        return _stored(run, entry, made.size, folder)


def _stored(run: xr.Dataset, entry: entries.Entry, size: str, folder: "store.RunFolder") -> Reproduction:
    """Judge a run as stored, so that `check` agrees, and write it once, with the verdicts."""
    reproduction = Reproduction(folder.file, entry, store.Provenance.of(run), store.as_stored(run))
    with own_errors_named(entry.name):
        vars(reproduction)["verdicts"] = entry.judge(reproduction.run)  # an error of a claim here is a defect
    store.write(_with_verdicts(run, reproduction), folder.file)
    stored = dataclasses.replace(reproduction, run=_with_verdicts(reproduction.run, reproduction))
    vars(stored)["verdicts"] = reproduction.verdicts
    return stored


def _with_verdicts(run: xr.Dataset, judged: Reproduction) -> xr.Dataset:
    return run.assign_attrs(verdicts=json.dumps(judged.records(), ensure_ascii=False))


def _repair(stored: Reproduction, folder: "store.RunFolder") -> None:
    """Add verdicts that are missing, and remove what a process killed at its end left, unless another is at the run."""
    if "verdicts" not in stored.run.attrs:
        with suppress(BusyError, StorageError), folder.lock():
            store.write(_with_verdicts(stored.run, stored), folder.file)
    folder.tidy()


def json_values(params: Any) -> dict[str, Any]:
    """Return parameters as JSON values, as they are stored and hashed."""
    return json.loads(json.dumps(dataclasses.asdict(params)))


def identity(values: Mapping[str, Any], data_sets: Mapping[str, str]) -> dict[str, Any]:
    """Return all that identifies a run of an entry: its parameters, and its data sets if it reads any."""
    return {**values, "data sets": dict(data_sets)} if data_sets else dict(values)


def stamped_run(
    entry: entries.Entry, params: Any, context: RunContext, size: str, settings: Mapping[str, str]
) -> xr.Dataset:
    """Run an entry, resuming from its scratch folder, and return the run with its provenance.

    Raises:
        InputError: the entry cannot be run with these parameters, or the memory does not suffice.
        MissingExtraError: it needs an extra that is not installed.
        StorageError: the disk is full, or cannot be written.
    """
    resumed = any(context.scratch.iterdir())
    stop = store.stopwatch()
    with _errors_named(entry.name, context.scratch.parent):
        run = entry.run(params, context)
    if not isinstance(run, xr.Dataset):
        raise InputError(f"The run of {entry.name} must return an xarray.Dataset; got {run!r:.80}. Mend the entry.")
    made = {"entry": entry.name, "size": size, "settings": settings, "params": json_values(params), "resumed": resumed}
    return store.Provenance(**made, data_sets=context.data_sets, **stop()).stamp(run)


@contextmanager
def _errors_named(entry: str, out: Path) -> Iterator[None]:
    """Turn errors that are no defect of saddlescope into a sentence each."""
    with own_errors_named(entry), MissingExtraError.named(entry, "papers"):
        try:
            yield
        except OSError as error:
            if error.errno not in _DISK:
                raise
            raise StorageError(
                f"The run stopped while it wrote in {out}: {error.strerror}."
                " Free some space, then rerun the same command to resume."
            ) from error
        except (AssertionError, MemoryError, OverflowError, RuntimeError, ValueError) as error:
            if (sentence := outside_cause(error)) is None:
                raise
            raise sentence from error
