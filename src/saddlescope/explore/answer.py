"""Answers of a worker: a run as pictures, verdicts and commands, in JSON values."""

import shlex
import textwrap
from base64 import b64encode
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import xarray as xr
from jinja2 import ChoiceLoader, Environment, PackageLoader

from saddlescope.gallery.page_views import claim_rows, environment
from saddlescope.plot import DARK, LIGHT, Figure, draw_plotly, draw_thumbnail
from saddlescope.plot.film_images import png, sprite
from saddlescope.reproduction import Entry
from saddlescope.reproduction.formatting import SYMBOLS, tallies


def pages() -> Environment:
    """Return the environment of the gallery's templates with those of the live page."""
    found = environment()
    found.loader = ChoiceLoader([PackageLoader("saddlescope.explore"), PackageLoader("saddlescope.gallery")])
    return found


def answer(entry: Entry[Any], run: xr.Dataset, size: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the pictures, verdicts and commands of a run, whose text is escaped in what is HTML."""
    verdicts = entry.judge(run, size)
    parts = pages().get_template("claims.html")
    return {
        "figures": [_drawn(figure) for figure in entry.figures(run)],
        "claims": parts.render(rows=claim_rows(entry, verdicts), tallied=tallies(verdicts)),
        "signs": [{"claim": v.claim, "outcome": str(v.outcome), "sign": SYMBOLS[v.outcome]} for v in verdicts],
        "label": " ".join(f"{name}={value}" for name, value in settings.items()) or f"{size} size",
        "command": command(entry.name, size, settings),
        "python": python(entry.name, size, settings),
    }


def command(entry: str, size: str, settings: Mapping[str, str]) -> str:
    """Return the command that stores this run."""
    words = ["saddlescope", "run", entry, *(["--size", size] if size != "default" else [])]
    return shlex.join([*words, *(word for name, value in settings.items() for word in ("--set", f"{name}={value}"))])


def python(entry: str, size: str, settings: Mapping[str, str]) -> str:
    """Return a Python program that stores this run and shows its verdicts."""
    return textwrap.dedent(
        f"""\
        from saddlescope.reproduction import find_entry, reproduce

        entry = find_entry({entry!r})
        stored = reproduce(entry, out="results", size={size!r}, settings={dict(settings)!r})
        print(stored.run)  # an xarray.Dataset
        for verdict in stored.verdicts:
            print(verdict.claim, verdict.outcome, verdict.value)
        """
    )


def thumbnails(figure: Figure) -> dict[str, str]:
    """Return a small picture of a figure as data addresses: light and dark."""
    return {name: _address(_png(figure, theme)) for name, theme in (("light", LIGHT), ("dark", DARK))}


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
