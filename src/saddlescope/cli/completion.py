"""Shell completion: names of entries, sizes and parameters.

A shell starts the command at each press of the tab key: names and sizes are read without loading an array library, and
parameters import one entry.
"""

from typing import Any

VARIABLE = "_SADDLESCOPE_COMPLETE"
"""Environment variable by which a shell asks for completions instead of running a command."""


def complete_entry(incomplete: str) -> list[str]:
    """Return the names of entries with this beginning."""
    from saddlescope.reproduction import catalogue

    return [name for name in catalogue.entry_names() if name.startswith(incomplete)]


def complete_paper(incomplete: str) -> list[str]:
    """Return the first parts of the names of entries with this beginning."""
    from saddlescope.reproduction import catalogue

    papers = dict.fromkeys(name.partition("/")[0] for name in catalogue.entry_names())
    return [paper for paper in papers if paper.startswith(incomplete)]


def complete_size(incomplete: str) -> list[str]:
    """Return the sizes with this beginning."""
    from saddlescope.reproduction import SIZES

    return [size for size in SIZES if size.startswith(incomplete)]


def complete_parameter(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
    """Return the parameters with this beginning of the entry typed before, as `NAME=`, each with its description."""
    from saddlescope.reproduction import catalogue
    from saddlescope.reproduction import entry as entries

    # Typer passes its context to the argument called ctx; its public context type is another one.
    typed = (ctx.params.get("entry"), *ctx.args)  # not yet assigned while an option lacks its value
    entry = next((word for word in typed if word in catalogue.entry_names()), None)
    records = entries.find_entry(entry).parameters if entry else {}
    return [
        (f"{name}=", record.words.replace("[", r"\["))  # Typer reads brackets as markup
        for name, record in records.items()
        if name.startswith(incomplete)
    ]
