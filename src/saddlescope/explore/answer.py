"""Answers of a worker: a run as pictures, verdicts and commands, in JSON values."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict
from io import BytesIO
from typing import Any

import xarray as xr
from jinja2 import ChoiceLoader, Environment, PackageLoader

from saddlescope.gallery.page_views import claim_rows, environment, papers_first
from saddlescope.gallery.verdict_words import MEANINGS
from saddlescope.plot import DARK, LIGHT, Figure, draw_plotly, draw_thumbnail
from saddlescope.plot.film_images import png, sprite
from saddlescope.plot.series import first_legend
from saddlescope.reproduction import Entry, Verdict
from saddlescope.reproduction.formatting import SYMBOLS, position, tallies
from saddlescope.reproduction.runner import why_unjudged
from saddlescope.store.provenance import command_of


def pages() -> Environment:
    """Return the environment of the gallery's templates with those of the live page."""
    found = environment()
    found.loader = ChoiceLoader([PackageLoader("saddlescope.explore"), PackageLoader("saddlescope.gallery")])
    return found


def answer(
    entry: Entry[Any], run: xr.Dataset, size: str, settings: Mapping[str, str], entry_file: str | None = None
) -> dict[str, Any]:
    """Return the pictures, verdicts and commands of a run, whose text is escaped in what is HTML.

    Args:
        entry: the entry.
        run: its run.
        size: of its parameters.
        settings: those that differ from the size.
        entry_file: your Python file that declares the entry; None for an entry of this package.
    """
    verdicts, unjudged = entry.judge(run), why_unjudged(entry, size, settings)
    parts = pages().get_template("claims.html")
    return {
        "figures": [_drawn(figure) for figure in entry.figures(run)],
        "claims": parts.render(rows=claim_rows(verdicts), tallied=tallies(verdicts), unjudged=unjudged),
        "signs": [_sign(verdict, unjudged) for verdict in papers_first(verdicts)],
        "label": " ".join(f"{name}={value}" for name, value in settings.items()) or f"{size} values",
        "command": command_of("run", entry.name, size, settings, ["--entry", entry_file] if entry_file else ()),
        "python": python(entry.name, size, settings, entry_file),
    }


def python(entry: str, size: str, settings: Mapping[str, str], entry_file: str | None = None) -> str:
    """Return a Python program that stores this run and shows its verdicts."""
    names = "find_entry, load_entries, reproduce" if entry_file else "find_entry, reproduce"
    lines = [
        f"from saddlescope.reproduction import {names}",
        "",
        *([f"load_entries({entry_file!r})"] if entry_file else []),
        f"entry = find_entry({entry!r})",
        f'stored = reproduce(entry, out="results", size={size!r}, settings={dict(settings)!r})',
        "print(stored.run)  # an xarray.Dataset",
        "for verdict in stored.verdicts:",
        "    print(verdict.claim, verdict.outcome, verdict.value)",
    ]
    return "\n".join(lines) + "\n"


def thumbnails(figure: Figure) -> dict[str, Any]:
    """Return a small picture of a figure as data addresses, light and dark, and its legend."""
    drawn = {name: _address(_png(figure, theme)) for name, theme in (("light", LIGHT), ("dark", DARK))}
    return drawn | {"legend": [asdict(series) for series in first_legend(figure)]}


def _sign(verdict: Verdict, unjudged: str) -> dict[str, str]:
    outcome = position(verdict.outcome) if unjudged else str(verdict.outcome)
    meaning = f"{verdict.statement}: {outcome}. {unjudged or MEANINGS[verdict.outcome]}"
    words = {"claim": verdict.claim, "outcome": outcome, "meaning": meaning}
    return words | {"sign": SYMBOLS[verdict.outcome]}


def _drawn(figure: Figure) -> dict[str, Any]:
    table = pages().get_template("table.html").render(figure=figure) if figure.table else ""
    frames = _address(png(sprite(figure.film).pixels)) if figure.film else ""
    return draw_plotly(figure) | {"caption": figure.caption, "table": table, "frames": frames}


def _png(figure: Figure, theme: Any) -> bytes:
    file = BytesIO()
    draw_thumbnail(figure, theme=theme).savefig(file, format="png")
    return file.getvalue()


def _address(content: bytes) -> str:
    return "data:image/png;base64," + b64encode(content).decode()
