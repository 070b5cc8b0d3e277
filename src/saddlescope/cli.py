"""The command line: parses, calls, prints.

Exit status: 0 when every claim is reproduced, 1 when one is refuted, 3 when none is refuted but one is undecided,
2 when the input cannot be used (one sentence on stderr), 130 when interrupted, 70 for a defect of saddlescope itself.
"""

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saddlescope.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from saddlescope.papers import Reproduction, Verdict

_HELP = "In which stages does a neural network learn? Predictions, simulations and measurements, held together."
_STATUS = (
    "Exit status: 0 all claims reproduced, 1 one refuted, 3 none refuted but one undecided, 2 input that cannot be"
    " used, 130 interrupted, 70 a defect of saddlescope."
)
_COLORS = {"reproduced": "green", "refuted": "red", "undecided": "yellow"}

app = typer.Typer(
    help=_HELP, epilog=_STATUS, add_completion=False, context_settings={"help_option_names": ["-h", "--help"]}
)

EntryName = Annotated[str, typer.Argument(metavar="ENTRY", help="A name from `saddlescope list`.")]
OutFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of stored runs.")]
RunsFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of stored runs: what was given to --out.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    if version:
        from saddlescope import __version__

        typer.echo(f"saddlescope {__version__}")
        raise typer.Exit


@app.command("list")
def list_entries(as_json: AsJson = False) -> int:
    """List the reproductions: one entry a figure or theorem."""
    from saddlescope.papers import entry as entries

    found = [entries.find(name) for name in entries.names()]
    if as_json:
        keys = ("name", "title", "source", "paper")
        _print_json([{key: getattr(e, key) for key in keys} | {"claims": len(e.claims)} for e in found])
        return 0
    for paper in dict.fromkeys(entry.paper for entry in found):
        rows = [(e.name, e.title, e.source, f"{len(e.claims)}") for e in found if e.paper == paper]
        _print_table(("entry", "title", "source", "claims"), rows, title=paper)
    return 0


@app.command()
def run(
    entry: EntryName,
    size: Annotated[
        str, typer.Option(help="quick (seconds), default (minutes) or paper (the paper's own).")
    ] = "default",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a parameter; may be repeated.")
    ] = None,
    out: OutFolder = Path("results"),
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", envvar="SADDLESCOPE_DATA", help="Folder of data sets in their official formats."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Run although the result is stored already.")] = False,
    as_json: AsJson = False,
) -> int:
    """Run an entry, judge its claims, and store data and verdicts. An interrupted run goes on where it was."""
    from saddlescope.papers import entry as entries
    from saddlescope.papers import reproduce
    from saddlescope.papers.wording import exit_status

    found = entries.find(entry)
    if data is not None and not data.is_dir():
        raise InputError(f"--data must be an existing folder; got '{data}'. Without one, the embedded data are used.")
    with _progress(f"{entry} ({size})") as (report, say):
        made = reproduce(
            found,
            out=out,
            size=size,
            settings=_settings(settings or []),
            data=data,
            again=again,
            report=report,
            say=say,
        )
    if as_json:
        _print_json(made.records())
    else:
        _print_verdicts([made])
        typer.echo(f"Stored in {made.file}.")
    return exit_status(verdict.outcome for verdict in made.verdicts)


@app.command()
def check(folder: RunsFolder, as_json: AsJson = False) -> int:
    """Judge all stored runs again, from their data alone."""
    from saddlescope.papers import Reproduction, stored_files
    from saddlescope.papers.wording import exit_status

    stored, unusable = [], False
    for file in stored_files(folder):
        try:
            reproduction = Reproduction.open(file)
            for claim in reproduction.changed_claims():
                _say(f"{file}: the bounds or words of claim {claim} changed after the run was stored.")
            stored.append(reproduction)
        except InputError as error:
            _say(str(error))
            unusable = True
    if as_json:
        _print_json([told for reproduction in stored for told in reproduction.records()])
    elif stored:
        _print_verdicts(stored)
    return 2 if unusable else exit_status(verdict.outcome for r in stored for verdict in r.verdicts)


@app.command()
def show(entry: EntryName, out: OutFolder = Path("results"), as_json: AsJson = False) -> int:
    """Show an entry: its parameters in three sizes, its claims with their bounds, and where runs of it are stored."""
    from dataclasses import asdict

    from saddlescope.papers import SIZES, Reproduction, field_comments
    from saddlescope.papers import entry as entries
    from saddlescope.papers.wording import bounds, finite, summary

    found = entries.find(entry)
    sizes = {size: asdict(found.params(size)) for size in SIZES}
    comments = field_comments(found.params_type)
    files = _runs_of(found.name, out)
    if as_json:
        _print_json(
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
    _print_table(("parameter", *SIZES, "meaning"), rows)
    claims = [(c.name, c.says, bounds(c.low, c.high, c.unit), c.source) for c in found.claims]
    _print_table(("claim", "says", "holds when", "source"), claims)
    for file in files:
        typer.echo(f"{file}: {summary(verdict.outcome for verdict in Reproduction.open(file).verdicts)}")
    if not files:
        typer.echo(f"No run of it is stored in {out}: saddlescope run {found.name}")
    return 0


@app.command()
def gallery(
    folder: RunsFolder,
    site: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the site; an earlier gallery is replaced.")
    ] = Path("gallery"),
) -> int:
    """Build a static site of all stored runs; it works from the file system and from a server."""
    from saddlescope.gallery import build

    index = build(folder, site)
    typer.echo(f"Open {index} in a browser.")
    return 0


@app.command()
def attention(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.npz", help="Arrays X (n, L, d), z (n, d), y (n,) of 1 and -1, and v (d,).")
    ],
    loss: Annotated[str, typer.Option(help="exponential or logistic.")] = "exponential",
    log_until: Annotated[float, typer.Option(metavar="LN_T", help="ln t at the end of the flows.")] = 1e6,
    scale: Annotated[float, typer.Option(help="Size of the start, as the margins of K and Q.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Of the initial keys and queries.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.nc", help="Store the flows over time in this file.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Which norm does gradient flow on softmax attention minimise on these token data?"""
    from saddlescope.studies import implicit_bias

    with _progress(str(file)) as (report, _):
        found = implicit_bias(file, loss=loss, log_until=log_until, scale=scale, seed=seed, report=report)
    if as_json:
        _print_json(found.record())
    else:
        typer.echo(f"{found.data!r}\n{found.assumptions!r}\n")
        _print_table(*found.problems(), title="Support vector machines")
        _print_table(*found.outcomes(), title=f"Gradient flows to ln t = {log_until:g}")
    if out is not None:
        from saddlescope import store

        stored = store.write(found.dataset, out)
        if not as_json:
            typer.echo(f"Stored in {stored}.")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `saddlescope`.

    Args:
        arguments: the words after the command's name; those of the process when they are not given.

    Returns:
        The exit status.
    """
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        command = typer.main.get_command(app)
        with command.make_context("saddlescope", words) as context:  # its `main` would catch interrupts before us
            status = command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as leaving:
        return leaving.exit_code
    except InputError as error:
        _say(str(error))
        return 2
    except typer.TyperException as error:
        _say(_usage(error))
        return 2
    except (KeyboardInterrupt, typer.Abort):
        _say("Interrupted; the same command goes on where it was.")
        return 130
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        sys.stdout = None  # type: ignore[assignment]
        return 141
    except Exception:
        traceback.print_exc()
        _say("This is a defect of saddlescope; nothing stored is lost. Please report the lines above.")
        return 70
    return status if isinstance(status, int) else 0


def _usage(error: Exception) -> str:
    """A usage error as one sentence with the nearest names and the place to read on."""
    told = str(getattr(error, "format_message", error.__str__)()).strip()
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "saddlescope"
    return f"{told}{'' if told.endswith(('.', '?', ')')) else '.'} Try: {path} --help"


def _settings(given: Iterable[str]) -> dict[str, str]:
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

    return store.find(out / entry) if (out / entry).is_dir() else ()


@contextmanager
def _progress(title: str) -> Iterator[tuple[Callable[[float, str], None], Callable[[str], None]]]:
    """How a run reports: a bar on a terminal, else a plain line at every tenth. All of it on stderr."""
    if not sys.stderr.isatty():
        yield _report_lines(title), _say
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False, style="dim"),
    )
    with Progress(*columns, console=_console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0, note="")
        yield (
            lambda fraction, note: bar.update(task, completed=fraction, note=note),
            lambda sentence: bar.console.print(sentence, markup=False, highlight=False),
        )


def _report_lines(title: str) -> Callable[[float, str], None]:
    told = -1

    def report(fraction: float, note: str) -> None:
        nonlocal told
        tenth = int(10 * fraction + 1e-9)
        if tenth > told:
            told = tenth
            _say(f"{title}: {fraction:4.0%}  {note}")

    return report


def _print_verdicts(stored: "Sequence[Reproduction]") -> None:
    from rich.text import Text

    from saddlescope.papers.wording import SYMBOLS, bounds, measured, summary

    for reproduction in stored:
        rows = []
        for v in reproduction.verdicts:
            told = Text.assemble(v.says, *([("\n" + v.remark, "dim")] if v.remark else []))
            verdict = Text(f"{SYMBOLS[v.outcome]} {v.outcome}", style=_COLORS[v.outcome])
            rows.append(
                (v.claim, told, measured(v.value, v.uncertainty, v.unit), bounds(v.low, v.high, v.unit), verdict)
            )
        title = f"{reproduction.entry.name} ({reproduction.provenance.label}): {reproduction.entry.title}"
        _print_table(("claim", "says", "measured", "holds when", "verdict"), rows, title=title)
    verdicts: list[Verdict] = [v for reproduction in stored for v in reproduction.verdicts]
    typer.echo(f"{len(verdicts)} claims: {summary(v.outcome for v in verdicts)}.")


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, title=Text(title) if title else None, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    console = _console()
    with console.capture() as drawn:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def _console(stderr: bool = False) -> "Console":
    from rich.console import Console

    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=140)


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> str:
    """A parameter as it is typed after --set."""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _say(sentence: str) -> None:
    typer.echo(sentence, err=True)


if __name__ == "__main__":
    sys.exit(main())
