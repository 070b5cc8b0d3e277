"""The directive `commands`: every command of the command line, from its own parser."""

from collections.abc import Iterator
from typing import Any


def commands() -> Iterator[tuple[str, Any]]:
    """The commands that do something, by the words that call them, such as `saddlescope data get`."""
    import typer

    from saddlescope.cli import app

    def below(command: Any, words: str) -> Iterator[tuple[str, Any]]:
        inner = getattr(command, "commands", {})
        if not inner:
            yield words, command
        for name, one in inner.items():
            yield from below(one, f"{words} {name}")

    yield from below(typer.main.get_command(app), "saddlescope")
