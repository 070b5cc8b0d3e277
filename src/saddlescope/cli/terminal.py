"""What the commands print with: sentences on stderr, tables and JSON on stdout, and the progress of a run."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console


def say(sentence: str) -> None:
    """Prints a sentence on stderr."""
    typer.echo(sentence, err=True)


def print_json(value: object) -> None:
    """Prints a value as strict JSON."""
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Prints rows under the names of their columns; cells are shown as they stand, without markup."""
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


@contextmanager
def progress(title: str) -> Iterator[tuple[Callable[[float, str], None], Callable[[str], None]]]:
    """How a run reports: a bar on a terminal, else a plain line at every tenth. All of it on stderr."""
    if not sys.stderr.isatty():
        yield _report_lines(title), say
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
            say(f"{title}: {fraction:4.0%}  {note}")

    return report


def _console(stderr: bool = False) -> "Console":
    from rich.console import Console

    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=140)
