"""Commands for reproductions: list, run, check, show, gallery."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import show_progress
from saddlescope.cli.completion import complete_entry, complete_parameter, complete_size
from saddlescope.cli.options import AsJson
from saddlescope.cli.terminal import print_json, print_table, say

if TYPE_CHECKING:
    from saddlescope.reproduction import Reproduction, Verdict

_COLORS = {"reproduced": "green", "refuted": "red", "undecided": "yellow"}

EntryName = Annotated[
    str,
    typer.Argument(metavar="ENTRY", help="A name from `saddlescope list`.", autocompletion=complete_entry),
]
Size = Annotated[
    str,
    typer.Option(help="quick (seconds), default (minutes) or paper (the paper's own).", autocompletion=complete_size),
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
RunsFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of stored runs: the one given to --out.")]


def list_entries(as_json: AsJson = False) -> int:
    """List the reproductions: one entry per figure or theorem."""
    from saddlescope.reproduction import catalogue

    found = [{"name": name} | catalogue.entry_heading(name)._asdict() for name in catalogue.entry_names()]
    if as_json:
        print_json(found)
        return 0
    for paper in dict.fromkeys(entry["paper"] for entry in found):
        rows = [(entry["name"], entry["title"], entry["source"]) for entry in found if entry["paper"] == paper]
        print_table(("entry", "title", "source"), rows, title=paper)
    return 0


def run(
    entry: EntryName,
    size: Size = "default",
    settings: Settings = None,
    out: OutFolder = Path("results"),
    data: DataFolder = None,
    again: Annotated[bool, typer.Option("--again", help="Rerun although the result is stored.")] = False,
    as_json: AsJson = False,
) -> int:
    """Run an entry, judge its claims, and store data and verdicts. Rerun the command to resume an interrupted run."""
    from saddlescope.reproduction import entry as entries
    from saddlescope.reproduction import reproduce
    from saddlescope.reproduction.formatting import exit_status

    found = entries.find_entry(entry)
    check_data(data)
    with show_progress(f"{entry} ({size})") as report:
        reproduction = reproduce(
            found,
            out=out,
            size=size,
            settings=settings_of(settings or []),
            data=data,
            again=again,
            report=report,
            say=say,
        )
    if as_json:
        print_json(reproduction.records())
    else:
        _print_verdicts([reproduction])
        typer.echo(f"Stored in {reproduction.file}.")
    return exit_status(verdict.outcome for verdict in reproduction.verdicts)


def check(folder: RunsFolder, as_json: AsJson = False) -> int:
    """Judge all stored runs again, from their data alone."""
    from saddlescope.reproduction import Reproduction, stored_files
    from saddlescope.reproduction.formatting import exit_status

    stored, unusable = [], False
    for file in stored_files(folder):
        try:
            reproduction = Reproduction.open(file)
            for claim in reproduction.changed_claims():
                say(f"{file}: the bounds or words of claim {claim} changed after the run was stored.")
            stored.append(reproduction)
        except InputError as error:
            say(str(error))
            unusable = True
    if as_json:
        print_json([record for reproduction in stored for record in reproduction.records()])
    elif stored:
        _print_verdicts(stored)
    return 2 if unusable else exit_status(verdict.outcome for r in stored for verdict in r.verdicts)


def show(entry: EntryName, out: OutFolder = Path("results"), as_json: AsJson = False) -> int:
    """Show an entry: its parameters in three sizes, its claims with their bounds, and its stored runs."""
    from dataclasses import asdict

    from saddlescope.reproduction import SIZES, Reproduction, field_comments
    from saddlescope.reproduction import entry as entries
    from saddlescope.reproduction.formatting import bounds, finite, summary

    found = entries.find_entry(entry)
    sizes = {size: asdict(found.params(size)) for size in SIZES}
    comments = field_comments(found.params_type)
    files = _runs_of(found.name, out)
    if as_json:
        print_json(
            {
                "name": found.name,
                "title": found.title,
                "source": found.source,
                "paper": found.paper,
                "parameters": {
                    name: {"comment": comments[name]} | {size: sizes[size][name] for size in SIZES} for name in comments
                },
                "claims": [
                    {"claim": c.name, "says": c.says, "source": c.source, "unit": c.unit}
                    | {"low": finite(c.low), "high": finite(c.high)}
                    for c in found.claims
                ],
                "stored": [str(file) for file in files],
            }
        )
        return 0
    typer.echo(f"{found.title}\n{found.paper}; {found.source}\n")
    rows = [(name, *(_plain(sizes[size][name]) for size in SIZES), comments[name]) for name in comments]
    print_table(("parameter", *SIZES, "meaning"), rows)
    claims = [(c.name, c.says, bounds(c.low, c.high, c.unit), c.source) for c in found.claims]
    print_table(("claim", "says", "holds when", "source"), claims)
    for file in files:
        typer.echo(f"{file}: {summary(verdict.outcome for verdict in Reproduction.open(file).verdicts)}")
    if not files:
        typer.echo(f"No run is stored in {out}; run it with: saddlescope run {found.name}")
    return 0


def gallery(
    folder: RunsFolder,
    site: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the site; an earlier gallery is replaced.")
    ] = Path("gallery"),
) -> int:
    """Build a static site of all stored runs and sweeps; it opens from the file system or a server."""
    from saddlescope.gallery import build

    index = build(folder, site)
    typer.echo(f"Open {index} in a browser.")
    return 0


def check_data(data: Path | None) -> None:
    """Raise InputError unless the folder given to --data exists."""
    if data is not None and not data.is_dir():
        raise InputError(
            f"--data must be an existing folder; got '{data}'. Without --data, the embedded data are used."
        )


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


def _print_verdicts(stored: "Sequence[Reproduction]") -> None:
    from rich.text import Text

    from saddlescope.reproduction.formatting import SYMBOLS, bounds, measured, summary

    for reproduction in stored:
        rows = []
        for v in reproduction.verdicts:
            statement = Text.assemble(v.says, *([("\n" + v.remark, "dim")] if v.remark else []))
            verdict = Text(f"{SYMBOLS[v.outcome]} {v.outcome}", style=_COLORS[v.outcome])
            rows.append(
                (v.claim, statement, measured(v.value, v.uncertainty, v.unit), bounds(v.low, v.high, v.unit), verdict)
            )
        title = f"{reproduction.entry.name} ({reproduction.provenance.label}): {reproduction.entry.title}"
        print_table(("claim", "says", "measured", "holds when", "verdict"), rows, title=title)
    verdicts: list[Verdict] = [v for reproduction in stored for v in reproduction.verdicts]
    typer.echo(f"{len(verdicts)} claims: {summary(v.outcome for v in verdicts)}.")


def _plain(value: Any) -> str:
    """Return a parameter as typed after --set."""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
