"""Output of the commands: sentences and progress on stderr, tables and JSON on stdout; control characters escaped."""

import errno
import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from saddlescope._shared.errors import StorageError
from saddlescope._shared.progress import Report, show_progress
from saddlescope._shared.visible_text import visible, visible_json

if TYPE_CHECKING:
    from rich.console import Console

_SILENCE = 0.4  # seconds after which a command that has printed nothing says that it is at work

_pending: list[threading.Timer] = []


def say(sentence: str) -> None:
    """Print a sentence on stderr; a full disk behind it ends no command."""
    settle()
    try:
        typer.echo(visible(sentence), err=True)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise


class Faults(list[str]):
    """Sentences about what a command could not do, each printed as it comes."""

    def add(self, sentence: str) -> None:
        """Print a sentence and keep it."""
        self.append(sentence)
        say(sentence)

    @property
    def status(self) -> int:
        """Exit status of the command."""
        return 2 if self else 0


def print_text(text: str) -> None:
    """Print text on stdout.

    Raises:
        StorageError: it cannot be written.
    """
    _print(visible(text))


def _print(text: str) -> None:
    settle()
    with written():
        typer.echo(text)


@contextmanager
def written() -> Iterator[None]:
    """Report a standard output that cannot be written as a `StorageError`."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(
            f"Cannot write to the standard output: {error.strerror}. What the command stored is kept."
        ) from error


def announce(title: str) -> None:
    """Print a note after a moment unless the command prints or ends before: imports take seconds."""
    timer = threading.Timer(_SILENCE, _note, [title])
    timer.daemon = True
    _pending.append(timer)
    timer.start()


def _note(title: str) -> None:
    with suppress(OSError, ValueError):
        typer.echo(visible(f"{title}: preparing"), err=True)


def settle() -> None:
    """Withdraw the note of `announce`."""
    while _pending:
        _pending.pop().cancel()


@contextmanager
def progress(title: str) -> Iterator[Report]:
    """Show the progress of a long call as `show_progress` does; the first report withdraws the note of `announce`."""
    if sys.stderr.isatty():
        settle()  # the bar shows at once
    with show_progress(title) as report:

        def reported(fraction: float, note: str) -> None:
            settle()
            report(fraction, note)

        yield reported


@contextmanager
def on_interrupt(sentence: Callable[[], str]) -> Iterator[None]:
    """Give an interrupt a sentence that says what is kept, and what the same command does again."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise (interrupt if interrupt.args else KeyboardInterrupt(sentence())) from None


def unwritten(path: Path | None) -> str:
    """Return the sentence after an interrupt of a command that writes one result at its end, or none."""
    if path is None:
        return "Interrupted; nothing was written. The same command starts from the beginning."
    state = "is unchanged" if path.exists() else "was not written"
    return f"Interrupted; {path} {state}. The same command starts from the beginning."


def print_json(value: object) -> None:
    """Print a value as strict JSON."""
    print_text(visible_json(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", *, folded: bool = True
) -> None:
    """Print rows under the names of their columns, verbatim, without markup; long cells are folded, or cut off."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    def cell_of(value: object) -> Text:
        text = value if isinstance(value, Text) else Text(str(value))
        return text if visible(text.plain) == text.plain else Text(visible(text.plain))

    table = Table(box=SIMPLE_HEAD, title=cell_of(title) if title else None, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold" if folded else "ellipsis", no_wrap=not folded)
    for row in rows:
        table.add_row(*map(cell_of, row))
    console = _console()
    with written(), console.capture() as drawn:
        console.print(table)
    _print("\n".join(line.rstrip() for line in drawn.get().splitlines()))  # with styles in a terminal


def _console() -> "Console":
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=140)
