"""Commands for reproductions: list, run, check, show, gallery."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saddlescope._shared.errors import InputError, unknown
from saddlescope.cli.completion import complete_entry, complete_paper, complete_parameter, complete_size
from saddlescope.cli.options import AsJson
from saddlescope.cli.terminal import Faults, on_interrupt, print_json, print_table, print_text, progress, say, unwritten

if TYPE_CHECKING:
    from rich.text import Text

    from saddlescope.reproduction import Reproduction, Verdict

_SHOWN = 12  # claims after a run
_NAME = 40  # characters of their names
_COLORS = dict.fromkeys(("holds", "agrees", "seen"), "green") | {"fails": "red"}
_COLORS |= dict.fromkeys(("differs", "not seen", "undecided"), "yellow")

EntryName = Annotated[
    str,
    typer.Argument(metavar="ENTRY", help="A name from `saddlescope list`.", autocompletion=complete_entry),
]
Size = Annotated[
    str,
    typer.Option(
        help="quick (seconds), default (minutes), reduced (hours on the paper's data) or paper.",
        autocompletion=complete_size,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter; may be repeated.",
        autocompletion=complete_parameter,
    ),
]
OutFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of stored runs.")]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", envvar="SADDLESCOPE_DATA", help="Folder of data sets in their official formats."
    ),
]
EntryFile = Annotated[
    Path | None,
    typer.Option("--entry", metavar="FILE.py", help="Your Python file of entries; it is executed."),
]
RunsFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of stored runs: the one given to --out.")]


def list_entries(
    paper: Annotated[
        str | None,
        typer.Argument(
            metavar="[PAPER]",
            help="Only the entries of a paper: the first part of their names.",
            autocompletion=complete_paper,
        ),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD", help="Only entries with this word in name, title or source; may be repeated."),
    ] = None,
    entry_file: EntryFile = None,
    as_json: AsJson = False,
) -> int:
    """List the reproductions: one entry per figure or theorem."""
    from saddlescope.reproduction import catalogue

    load_own(entry_file)
    found = [{"name": name} | catalogue.entry_heading(name)._asdict() for name in catalogue.entry_names()]
    found = _matching(found, paper, search or [])
    if as_json:
        from collections import Counter

        listed = []
        from saddlescope.reproduction.entry import find_entry

        for one in found:
            name = one["name"]
            claims = {"claims": Counter(c.kind for c in find_entry(name).claims)}
            listed.append(one | claims | {"cpu_seconds": catalogue.entry_costs(name)})
        print_json(listed)
        return 0
    for citation in dict.fromkeys(entry["citation"] for entry in found):
        rows = []
        for one in (entry for entry in found if entry["citation"] == citation):
            costs = catalogue.entry_costs(one["name"])
            times = [_duration(costs[size]) if size in costs else "" for size in ("quick", "default")]
            rows.append((one["name"], one["title"], one["source"], *times))
        print_table(("entry", "title", "source", "quick", "default"), rows, title=citation or "Your entries")
    print_text("Times are CPU times as measured on one machine; an entry without one was not measured.")
    return 0


def run(
    entry: EntryName,
    size: Size = "default",
    settings: Settings = None,
    out: OutFolder = Path("results"),
    data: DataFolder = None,
    again: Annotated[bool, typer.Option("--again", help="Rerun although the result is stored.")] = False,
    entry_file: EntryFile = None,
    checked: Annotated[
        bool, typer.Option("--check", help="Exit with status 1 or 3 if a claim is outside its bounds or undecided.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Run an entry, judge its claims, and store data and verdicts. Rerun the command to resume an interrupted run."""
    from saddlescope.reproduction import entry as entries
    from saddlescope.reproduction import reproduce

    load_own(entry_file)
    found = entries.find_entry(entry)
    check_data(data)
    given = settings_of(settings or [])
    with progress(f"{entry} ({size})") as report:
        reproduction = reproduce(
            found, out=out, size=size, settings=given, data=data, again=again, report=report, say=say
        )
    if as_json:
        print_json(reproduction.records())
    else:
        _print_outcome(reproduction, out, entry_file)
    return _status([reproduction]) if checked else 0


def check(folder: RunsFolder, entry_file: EntryFile = None, as_json: AsJson = False) -> int:
    """Judge all stored runs again, from their data alone."""
    from saddlescope.reproduction import Reproduction, stored_files

    load_own(entry_file)
    stored, faults = [], Faults()
    for file in stored_files(folder):
        try:
            reproduction = Reproduction.open(file)
            for claim in reproduction.changed_claims():
                say(f"{file}: the bounds or words of claim {claim} changed after the run was stored.")
            stored.append(reproduction)
        except InputError as error:
            faults.add(str(error))
    if as_json:
        print_json([record for reproduction in stored for record in reproduction.records()])
    elif stored:
        _print_verdicts(stored)
    return faults.status or _status(stored)


def show(
    entry: EntryName, out: OutFolder = Path("results"), entry_file: EntryFile = None, as_json: AsJson = False
) -> int:
    """Show an entry: its parameters in each size, its claims with their bounds, and its stored runs."""
    from dataclasses import asdict

    from saddlescope.reproduction import Reproduction
    from saddlescope.reproduction import entry as entries
    from saddlescope.reproduction.claim import first_line
    from saddlescope.reproduction.data_sets import data_in_words
    from saddlescope.reproduction.formatting import finite, positions, summary
    from saddlescope.reproduction.parameters import Parameter, schema

    load_own(entry_file)
    found = entries.find_entry(entry)
    sizes = {size: asdict(found.configure(size)) for size in found.sizes}
    files = _runs_of(found.name, out)
    if as_json:
        print_json(
            {
                "name": found.name,
                "title": found.title,
                "source": found.source,
                "citation": found.citation,
                "parameters": schema(found.params),
                "sizes": sizes,
                "claims": [
                    {"claim": c.name, "statement": c.statement, "quantity": c.quantity, "kind": c.kind}
                    | {"source": c.source, "unit": c.unit, "low": finite(c.low), "high": finite(c.high)}
                    | {"requires": [first_line(required) for required in c.requires]}
                    for c in found.claims
                ],
                "limits": found.claims.limits,
                "stored": [str(file) for file in files],
            }
        )
        return 0
    print_text(
        "\n".join(part for part in (found.title, "; ".join(filter(None, (found.citation, found.source)))) if part)
    )
    rows, differing = [], [size for size in sizes if size != "default"]
    for name, record in found.parameters.items():
        values = {size: Parameter.text(sizes[size][name]) for size in sizes}
        others = ["" if values[size] == values["default"] else values[size] for size in differing]
        rows.append((name, values["default"], *others, record.words, record.requirement))
    print_table(("parameter", "default", *differing, "description", "allowed"), rows)
    print_table(*found._table())
    for required in dict.fromkeys(first_line(one) for claim in found.claims for one in claim.requires):
        print_text(f"Required: {required}.")
    if found.claims.limits:
        print_text(f"Limits: {found.claims.limits}")
    for file in files:
        try:
            stored = Reproduction.open(file)
            found_there = summary(stored.verdicts)
            if stored.unjudged:
                found_there = f"{positions(stored.verdicts)}; not judged. {stored.unjudged}"
            read = data_in_words(stored.provenance.data_sets)
            print_text(f"{file}: {found_there}" + (f"; data: {read}" if read else ""))
        except InputError as error:
            say(str(error))
    if not files:
        option = f" --entry {entry_file}" if entry_file else ""
        print_text(f"No run is stored in {out}; run it with: saddlescope run {found.name}{option}")
    return 0


def gallery(
    folder: RunsFolder,
    site: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the site; an earlier gallery is replaced.")
    ] = Path("gallery"),
    entry_file: EntryFile = None,
) -> int:
    """Build a static site of all stored runs and sweeps; it opens from the file system or a server.

    Exit status 2: a file cannot be shown; the site of all others is built.
    """
    from saddlescope.gallery import build

    load_own(entry_file)
    skipped = Faults()
    with on_interrupt(lambda: unwritten(site)), progress("gallery") as report:
        index = build(folder, site, report=report, on_error=lambda sentence: skipped.add(f"Skipped: {sentence}"))
    print_text(f"Open {index} in a browser.")
    return skipped.status


def _matching(entries: list[dict[str, str]], paper: str | None, words: Sequence[str]) -> list[dict[str, str]]:
    """Return the entries of a paper, or of all, that have every word in their name, title, source or citation.

    Raises:
        InputError: there is no such paper, or no such entry.
    """
    if paper is not None:
        papers = {entry["name"].partition("/")[0] for entry in entries}
        if paper not in papers:
            raise unknown("paper", paper, papers)
        entries = [entry for entry in entries if entry["name"].startswith(f"{paper}/")]
    found = [entry for entry in entries if all(word.lower() in " ".join(entry.values()).lower() for word in words)]
    if not found:
        named = " and ".join(map(repr, words))
        of = f" of {paper}" if paper else ""
        raise InputError(f"No entry{of} has {named} in its name, title or source. List all with: saddlescope list")
    return found


def load_own(entry_file: Path | None) -> None:
    """Add the entries of the file given to --entry, if any."""
    if entry_file is not None:
        from saddlescope.reproduction.catalogue import load_entries

        load_entries(entry_file)


def check_data(data: Path | None) -> None:
    """Raise InputError unless the folder given to --data exists."""
    if data is not None and not data.is_dir():
        raise InputError(f"--data must be an existing folder; got '{data}'. Embedded data sets need no folder.")


def settings_of(given: Iterable[str]) -> dict[str, str]:
    """Return the parameters given to --set, name to text.

    Raises:
        InputError: one is malformed, or a parameter is given twice.
    """
    settings: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set must be NAME=VALUE, such as --set seed=1; got {text!r}.")
        if name.strip() in settings:
            raise InputError(f"--set gives {name.strip()} twice; give it once.")
        settings[name.strip()] = value.strip()
    return settings


def _runs_of(entry: str, out: Path) -> tuple[Path, ...]:
    from saddlescope import store

    return store.find_runs(out / entry) if (out / entry).is_dir() else ()


def gallery_command(out: Path, entry_file: Path | None) -> str:
    """Return the command that draws all results below a folder."""
    return f"saddlescope gallery {shlex.quote(str(out))}{_entry_option(entry_file)}"


def _entry_option(entry_file: Path | None) -> str:
    return f" --entry {shlex.quote(str(entry_file))}" if entry_file else ""


def _print_outcome(made: "Reproduction", out: Path, entry_file: Path | None) -> None:
    """Print what came of a run in at most 25 lines: the outcome, where the pictures are, and the worst claims."""
    from saddlescope.reproduction.formatting import positions, summary

    outcome = f"{summary(made.verdicts)}."
    if made.unjudged:
        outcome = f"{positions(made.verdicts)}; not judged. {made.unjudged}"
    print_text(f"{made.entry.name} ({made.provenance.label}): {outcome}")
    print_text(f"See the pictures: {gallery_command(out, entry_file)}")
    verdicts = sorted(made.verdicts, key=lambda v: (v.outcome.inside is not False, v.outcome.inside is True))
    rows = (_cells(verdict) | {"claim": verdict.claim[:_NAME]} for verdict in verdicts[:_SHOWN])
    columns = ["claim", "value", "bound"]
    columns = ["position", *columns] if made.unjudged else ["verdict", "kind", *columns]
    print_table(columns, ([cells[column] for column in columns] for cells in rows), folded=False)
    left = len(verdicts) - _SHOWN
    more = f"{left} more claims, and all" if left > 0 else "All"
    print_text(f"{more} statements: saddlescope check {shlex.quote(str(made.file.parent))}{_entry_option(entry_file)}")
    _print_setting(made)
    print_text(f"Stored in {made.file}.")


def _cells(verdict: "Verdict") -> "dict[str, str | Text]":
    """Return the cells of a verdict for the terminal, by their columns."""
    from rich.text import Text

    from saddlescope.reproduction.formatting import verdict_cells

    cells: dict[str, str | Text] = dict(verdict_cells(verdict))
    cells["statement"] = Text.assemble(verdict.statement, *([("\n" + verdict.remark, "dim")] if verdict.remark else []))
    cells["verdict"] = Text(str(cells["verdict"]), style=_COLORS.get(verdict.outcome, "dim"))
    return cells


def _print_verdicts(stored: "Sequence[Reproduction]") -> None:
    """Print all claims of stored runs with their statements."""
    from saddlescope.reproduction.formatting import VERDICT_COLUMNS, summary

    for made in stored:
        columns = (*VERDICT_COLUMNS[:-1], "position") if made.unjudged else VERDICT_COLUMNS
        rows = map(_cells, made.verdicts)
        title = f"{made.entry.name} ({made.provenance.label}): {made.entry.title}"
        print_table(columns, ([cells[column] for column in columns] for cells in rows), title=title)
        if made.unjudged:
            print_text(f"Not judged. {made.unjudged}")
        _print_setting(made)
    if judged := [made for made in stored if not made.unjudged]:
        print_text(f"Verdicts by kind of claim: {summary(v for one in judged for v in one.verdicts)}.")


def _print_setting(made: "Reproduction") -> None:
    """Print on which data a run rests, and what is scaled down in it."""
    from saddlescope.reproduction.data_sets import data_in_words

    if made.provenance.data_sets:
        print_text(f"Data: {data_in_words(made.provenance.data_sets)}.")
    if made.scaling:
        print_text(f"The paper's experiment, scaled down: {made.scaling}.")


def _status(stored: "Sequence[Reproduction]") -> int:
    """Return the exit status by the verdicts of the runs that are judged."""
    from saddlescope.reproduction.formatting import exit_status

    return exit_status(verdict.outcome for made in stored if not made.unjudged for verdict in made.verdicts)


def _duration(seconds: int) -> str:
    """Return CPU time in words: "9 s", "4 min" or "2 h"."""
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds} s"
