"""What the shell completes: names of entries, sizes and parameters, from files and dataclasses alone.

A shell starts the command at each press of the tab key, so that nothing here may load an array library.
"""

from typing import Any

VARIABLE = "_SADDLESCOPE_COMPLETE"
"""The environment variable by which a shell asks for completions instead of a command."""


def complete_entry(incomplete: str) -> list[str]:
    """The names of entries that begin so."""
    from saddlescope.reproduction import entry as entries

    return [name for name in entries.names() if name.startswith(incomplete)]


def complete_size(incomplete: str) -> list[str]:
    """The sizes that begin so."""
    from saddlescope.reproduction import SIZES

    return [size for size in SIZES if size.startswith(incomplete)]


def complete_parameter(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
    """The parameters of the entry typed before that begin so, as `NAME=`, each with its comment."""
    from saddlescope.reproduction import entry as entries
    from saddlescope.reproduction import field_comments

    # Typer hands its context to what is called ctx; the type of it that it makes public is another one.
    typed = (ctx.params.get("entry"), *ctx.args)  # not yet assigned while an option lacks its value
    entry = next((word for word in typed if word in entries.names()), None)
    comments = field_comments(entries.find(entry).params_type) if entry else {}
    return [
        (f"{name}=", comment.replace("[", r"\["))  # Typer reads brackets as markup
        for name, comment in comments.items()
        if name.startswith(incomplete)
    ]
