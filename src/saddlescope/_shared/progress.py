"""Progress of long calls: a bar in a notebook or on a terminal, elsewhere a plain line at every tenth."""

import errno
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from saddlescope._shared.visible_text import visible

Report = Callable[[float, str], None]
"""Progress callback of every long call: receives the finished fraction, from 0 to 1, and a short note."""


def silent(fraction: float, note: str) -> None:
    """Report nothing: the default of `report`."""


_OFTEN = 0.1  # seconds between two messages to a notebook
_NO_BAR = "A bar instead of lines needs ipywidgets: pip install ipywidgets\n"


@contextmanager
def show_progress(title: str = "") -> Iterator[Report]:
    """Show the progress of a long call; pass the yielded callback as its `report`.

    In a notebook this is a bar of ipywidgets where they are installed, on a terminal a bar of Rich that disappears at
    the end, and otherwise a line on stderr at every tenth. Output printed meanwhile appears above the bar.

    Args:
        title: text beside the bar.

    >>> import sys
    >>> from contextlib import redirect_stderr
    >>> with redirect_stderr(sys.stdout), show_progress("half of it") as report:
    ...     report(0.5, "step 50 of 100")
    half of it:  50%  step 50 of 100
    """
    if _in_notebook():
        shown = _widget(title) if find_spec("ipywidgets") else _lines(title, _NO_BAR)
    elif sys.stderr.isatty():
        shown = _bar(title)
    else:
        shown = _lines(title)
    with shown as report:
        yield report


def _in_notebook() -> bool:
    """Return True in an IPython kernel, which displays widgets; IPython on a terminal does not."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


@contextmanager
def _lines(title: str, before: str = "") -> Iterator[Report]:
    reported = -1
    if before:
        sys.stderr.write(before)

    def report(fraction: float, note: str) -> None:
        nonlocal reported
        tenth = int(10 * fraction + 1e-9)
        if tenth > reported:
            reported = tenth
            try:
                sys.stderr.write(visible(f"{title}: {fraction:4.0%}  {note}") + "\n")
                sys.stderr.flush()
            except OSError as error:  # a full disk behind it ends no run
                if error.errno == errno.EPIPE:
                    raise

    yield report


@contextmanager
def _bar(title: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False, style="dim"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(visible(title), total=1.0, note="")
        yield lambda fraction, note: bar.update(task, completed=fraction, note=visible(note))


@contextmanager
def _widget(title: str) -> Iterator[Report]:
    from IPython.display import display
    from ipywidgets import FloatProgress, HBox, Label

    bar, label = FloatProgress(value=0.0, min=0.0, max=1.0), Label("")
    display(HBox([Label(title), bar, label]))
    began, last, latest = time.monotonic(), -_OFTEN, (0.0, "")

    def draw() -> None:
        fraction, note = latest
        bar.value = fraction
        label.value = f"{fraction:.0%}  {time.monotonic() - began:.0f} s  {note}"

    def report(fraction: float, note: str) -> None:
        nonlocal last, latest
        latest = (fraction, note)
        if time.monotonic() - last >= _OFTEN:
            last = time.monotonic()
            draw()

    try:
        yield report
        latest, bar.bar_style = (1.0, latest[1]), "success"
    except BaseException:
        bar.bar_style = "danger"
        raise
    finally:
        draw()
